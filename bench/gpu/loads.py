"""Loads on whole paths, text in and vectors out: Headrace by its gateways, and the Triton ensemble.

All gateways run from the beginning; a load goes to this many of them as it names. Closed loads, one
load generator a gateway; the ensemble is asked by as many.
"""

import json
import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Literal

from bench import corpus, load
from bench.gpu import useful
from bench.gpu.device import Busy, Layout
from bench.gpu.found import Load, Round
from bench.peers.asking import MANY
from bench.peers.model import MODEL
from bench.peers.subjects import PATIENT_SECONDS, Running, oip_rows

CALLERS = {1: 128, MANY: 32}  # of a gateway, by texts a request
SMALL_CALLERS = {1: 4, MANY: 1}
JSON, BASE64, BINARY, GRPC = "JSON", "base64", "OIP binary", "gRPC"
OF_ENSEMBLE = "OIP JSON"
_WARM_UP_SECONDS = 0.7
_SEED = 7


@dataclass(frozen=True)
class Offer:
    """A load: to how many gateways, how many texts a request, in which form the vectors come."""

    gateways: int
    texts: int
    form: str


def offers(most: int) -> list[Offer]:
    """All loads on Headrace with this many gateways, the most telling first."""
    first = [Offer(most, 1, JSON), Offer(most, MANY, BASE64), Offer(most, MANY, JSON)]
    alone = [Offer(1, 1, JSON), Offer(1, MANY, JSON), Offer(1, MANY, BASE64)]
    forms = [Offer(most, MANY, GRPC), Offer(most, MANY, BINARY)]
    between = [
        Offer(count, texts, form)
        for count in (4, 2)
        if count < most
        for texts, form in ((1, JSON), (MANY, BASE64))
    ]
    return list(dict.fromkeys([*first, *alone, *forms, *between]))


@dataclass(frozen=True)
class Target:
    """A server that runs, and what loads on it are made with."""

    engine: str
    running: Running
    layout: Layout
    seconds: float
    busy: Busy

    def ask(self, offer: Offer, callers: int) -> Load:
        """Offers one load to this many gateways at once; ``callers`` of each."""
        protocol, path, bodies = _requests(self.running, offer)
        running, cores, count = self.running, self.layout.load, offer.gateways
        ports = running.grpc_ports if protocol == "grpc" else running.ports or (running.port,)

        def one(number: int) -> load.Result:
            made = load.Load(
                host="127.0.0.1", port=ports[number % len(ports)], path=path, protocol=protocol,
                bodies=bodies[number::count], callers=callers, warm_up_seconds=_WARM_UP_SECONDS,
                seconds=self.seconds, timeout_seconds=PATIENT_SECONDS,
            )  # fmt: skip
            return load.offer(made, [cores[number % len(cores)]])

        mark = self.busy.mark
        with useful.watched(running.metrics) as counted, ThreadPoolExecutor(count) as pool:
            results = list(pool.map(one, range(count)))
        good = [each.of(200) for each in results]
        found = Round(
            texts_per_second=offer.texts * sum(each.per_second for each in good),
            p50=_middle([each.latency.p50 for each in good if each.count]),
            p99=max((each.latency.p99 for each in good if each.count), default=math.nan),
            failed=sum(each.offered for each in results) - sum(each.count for each in good),
            gpu_busy=self.busy.since(mark),
            useful=counted.share(),
            generators_busy=sum(each.processor for each in results) / min(count, len(cores)),
        )
        return Load(
            engine=self.engine, gateways=count, texts=offer.texts, form=offer.form, rounds=[found]
        )  # fmt: skip


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else math.nan


def _requests(running: Running, offer: Offer) -> tuple[Literal["http", "grpc"], str, list[str]]:
    """Protocol, path and bodies, in an order that the seed makes."""
    replay = corpus.replay()
    random.Random(_SEED).shuffle(replay)
    groups = [
        replay[at : at + offer.texts] for at in range(0, len(replay) - offer.texts + 1, offer.texts)
    ]
    protocol: Literal["http", "grpc"] = "http"
    path = running.path
    if offer.form == GRPC:
        protocol, path = "grpc", MODEL
    elif offer.form == BASE64:
        path = "/v1/embeddings"
    elif offer.form == BINARY:
        path = f"/v2/models/{MODEL}/infer"
    return protocol, path, [json.dumps(_body(texts, offer.form)) for texts in groups]


def _body(texts: Sequence[str], form: str) -> object:
    if form == GRPC:
        return list(texts)
    if form == BASE64:
        return {"model": MODEL, "input": list(texts), "encoding_format": "base64"}
    if form == OF_ENSEMBLE:
        return oip_rows(texts)
    if form == BINARY:
        tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [len(texts)], "data": list(texts)}
        return {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    return {"inputs": list(texts)}

"""Nothing that a caller sends, or is sent, holds the event loop for long, in any dialect."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from time import thread_time
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from front_fakes import FakePredictor
from front_server import Served, serving
from loop_watch import LoopHeldError, LoopWatch, WatchedLoop, unit_seconds
from worst_bodies import GRPC, WORST, WorstBody, endpoints

from contracts.endpoint import Arm
from gateway.calls import Answer, Call
from gateway.http.body import HttpLimits

pytestmark = pytest.mark.slow

_BYTES = 8 * 1024 * 1024 - 1024
_STATUSES = {"200", "400", "404", "413", "422", "OK", "INVALID_ARGUMENT", "NOT_FOUND"}
_INFER = "/inference.GRPCInferenceService/ModelInfer"


@dataclass
class WidePredictor(FakePredictor):
    """Answers with so many numbers a text; where that is 0, as the fake it is."""

    width: int = 0

    async def predict(self, call: Call) -> Answer:
        if not self.width:
            return await super().predict(call)
        endpoint = self.describe(call.endpoint)
        labels = tuple(map(str, range(self.width))) if endpoint.labels else ()
        return Answer(
            task=endpoint.task,
            ref=endpoint.refs[0],
            arm=Arm.STABLE,
            values=np.full((len(call.texts), self.width), 1 / 3, np.float32),
            tokens=[2] * len(call.texts),
            truncated=[False] * len(call.texts),
            labels=labels,
        )


@pytest.fixture(scope="module")
def watch() -> LoopWatch:
    return LoopWatch()


@pytest.fixture(scope="module")
def predictor() -> WidePredictor:
    return WidePredictor(endpoints().views, keep_calls=False)


@pytest.fixture(scope="module")
def fronts(watch: LoopWatch, predictor: WidePredictor) -> Iterator[Served]:
    served = Served(
        predictor=predictor, limits=HttpLimits(), loop_factory=lambda: WatchedLoop(watch)
    )
    with serving(served) as running:
        yield running


def ask(fronts: Served, worst: WorstBody, body: bytes) -> str:
    if worst.path == GRPC:
        return call(fronts, body)
    headers = {**worst.headers, "content-encoding": "gzip"}
    zipped = gzip.compress(body, 6)
    answer = httpx.post(fronts.url + worst.path, content=zipped, headers=headers, timeout=120)
    return str(answer.status_code)


def call(fronts: Served, message: bytes) -> str:
    options = [("grpc.max_receive_message_length", -1)]  # an answer has the id of its request
    with grpc.insecure_channel(fronts.grpc_address, options) as channel:
        method = channel.stream_unary(_INFER)
        try:
            method(iter([message]), timeout=120)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"


@pytest.mark.parametrize("worst", WORST, ids=lambda worst: worst.name)
def test_no_body_holds_the_loop(fronts: Served, watch: LoopWatch, worst: WorstBody) -> None:
    body = worst.make(_BYTES)
    ask(fronts, worst, worst.make(1000))  # what is made once
    with watch.nothing_longer():
        status = ask(fronts, worst, body)
    assert status in _STATUSES, status


_TEXTS = ["a"] * 64
_TENSOR = {"name": "TEXT", "shape": [64], "datatype": "BYTES", "data": _TEXTS}
_BINARY = {"parameters": {"binary_data_output": True}}
LARGE: dict[str, tuple[str, dict[str, Any]]] = {
    "hf: vectors": ("/endpoints/minilm", {"inputs": _TEXTS}),
    "hf: labels": ("/endpoints/sentiment", {"inputs": _TEXTS, "parameters": {"top_k": None}}),
    "hf: weights": ("/endpoints/weights", {"inputs": _TEXTS}),
    "hf: ranks": ("/endpoints/reranker", {"inputs": [{"text": "a", "text_pair": "b"}] * 64}),
    "kserve: vectors": ("/v1/models/minilm:predict", {"instances": _TEXTS}),
    "kserve: labels": ("/v1/models/sentiment:predict", {"instances": _TEXTS}),
    "oip: vectors": ("/v2/models/minilm/infer", {"inputs": [_TENSOR]}),
    "oip: bytes of vectors": ("/v2/models/minilm/infer", {"inputs": [_TENSOR], **_BINARY}),
    "oip: labels": ("/v2/models/sentiment/infer", {"inputs": [_TENSOR]}),
    "oip: weights": ("/v2/models/weights/infer", {"inputs": [_TENSOR]}),
    "openai: vectors": ("/v1/embeddings", {"model": "minilm", "input": _TEXTS}),
    "openai: base64": (
        "/v1/embeddings",
        {"model": "minilm", "input": _TEXTS, "encoding_format": "base64"},
    ),
    "openai: bits": (
        "/v1/embeddings",
        {"model": "minilm", "input": _TEXTS, "precision": "ubinary"},
    ),
    "tei: vectors": ("/endpoints/minilm/embed", {"inputs": _TEXTS}),
    "tei: weights": ("/endpoints/weights/embed_sparse", {"inputs": _TEXTS}),
    "tei: labels": ("/endpoints/sentiment/predict", {"inputs": [["a"]] * 64}),
}


@pytest.mark.parametrize("name", LARGE)
def test_no_answer_holds_the_loop(
    fronts: Served, watch: LoopWatch, predictor: WidePredictor, name: str
) -> None:
    path, body = LARGE[name]
    # The loop of tests copies what it writes, unlike the gateway's own: of labels 50 MB otherwise.
    widths = {"ranks": 1, "labels": 4096, "weights": 4096}
    predictor.width = widths.get(name.rsplit(maxsplit=1)[-1], 16_384)
    try:
        with watch.nothing_longer():
            answer = httpx.post(fronts.url + path, json=body, timeout=120)
    finally:
        predictor.width = 0
    assert answer.status_code == 200, answer.text[:300]


def test_the_watch_fails_what_holds_the_loop_and_nothing_else() -> None:
    watch = LoopWatch()
    loop = WatchedLoop(watch)
    unit = unit_seconds()

    def work(units: float) -> None:
        until = thread_time() + units * unit
        while thread_time() < until:
            json.loads("[]")

    try:
        with watch.nothing_longer():
            for _ in range(10):
                loop.call_soon(work, 0.5)
            loop.call_soon(loop.stop)
            loop.run_forever()
    finally:
        loop.close()
    with pytest.raises(LoopHeldError, match="work"), watch.nothing_longer():
        watch.note(20 * unit, work)

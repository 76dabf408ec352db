"""Random requests of every dialect and task, valid and bent, many at once.

Each gets its own answer: a valid one that which it got when it was asked by itself, a bent one
never 500. Classification, vectors, zero-shot and completions go through the whole pipeline to an
engine that answers from the ids; the other tasks end at a stand-in that answers from the text.

``HEADRACE_SOAK_REQUESTS`` says how many: a million if nothing is said.
"""

import asyncio
import copy
import gzip
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from front_fakes import Behind, FakeMetrics
from gateway_world import WORDS, endpoint_of, manifest_of, text_of, tokenizer_json, writer_of
from memory_of_bodies import Asking
from pipeline_world import ONE, world_of
from soak_record import record
from tritonclient.grpc import service_pb2 as pb
from worst_bodies import GRPC, WORST, WorstBody, endpoints

from contracts.endpoint import Guardrail
from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec
from gateway.app import create_app
from gateway.dialects.front import Front
from gateway.inference.generation import Generation
from gateway.packages import ServedModel, open_package

REQUESTS = int(os.environ.get("HEADRACE_SOAK_REQUESTS", "1000000"))
AT_ONCE = 16
VALID_REQUESTS = 400
ODD: list[Any] = [
    None, True, -1, 0, 257, 1e308, 2**64, 0.5, "", "\0", "\ud83d", "é" * 40, [], {}, [[]], [1],
    {"a": 1}, "NaN", float("nan"), ["w1", 2], [["w1"], "w2"],
]  # fmt: skip
# What differs from answer to answer of one request.
VARYING = {"created", "id", "system_fingerprint"}
LITELLM, DETECTORS = "/beta/litellm_basic_guardrail_api", "/api/v1/text/contents"


@dataclass(frozen=True)
class Valid:
    """A request that is answered, and in which of the two applications."""

    piped: bool
    path: str
    body: dict[str, Any]


@dataclass
class Found:
    """What a run showed."""

    statuses: Counter[str] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    refused: int = 0  # valid ones, by 503
    faults: list[str] = field(default_factory=list)


def words(chance: random.Random) -> str:
    return text_of(chance.randrange(1, 7), chance.randrange(len(WORDS)))


def tensor(name: str, data: list[Any], datatype: str = "BYTES") -> dict[str, Any]:
    return {"name": name, "shape": [len(data)], "datatype": datatype, "data": data}


def valid_request(chance: random.Random) -> Valid:
    """One of any dialect and task."""
    text, other = words(chance), words(chance)
    texts = [words(chance) for _ in range(chance.randrange(1, 5))]
    labels = {"candidate_labels": sorted({text, other, "w1"})}
    row = [chance.uniform(-2, 2) for _ in range(8)]
    soup = f"the soup was {text} and the rain {other}"
    question = {"question": text, "context": soup}
    return chance.choice(
        [
            Valid(True, "/endpoints/sentiment", {"inputs": texts, "parameters": {"top_k": 2}}),
            Valid(True, "/v1/models/sentiment:predict", {"instances": texts}),
            Valid(True, "/v2/models/sentiment/infer", {"inputs": [tensor("TEXT", texts)]}),
            Valid(True, "/endpoints/sentiment/predict", {"inputs": text}),
            Valid(True, "/endpoints/sentiment" + LITELLM, {"texts": texts}),
            Valid(True, "/endpoints/sentiment" + DETECTORS, {"contents": texts}),
            Valid(True, "/endpoints/minilm", {"inputs": texts}),
            Valid(True, "/v1/embeddings", {"model": "minilm", "input": texts}),
            Valid(True, "/endpoints/minilm/embed", {"inputs": texts, "normalize": False}),
            Valid(True, "/v1/models/minilm:predict", {"instances": texts}),
            Valid(True, "/endpoints/topics", {"inputs": text, "parameters": labels}),
            Valid(
                True,
                "/v1/completions",
                {"model": "writer", "prompt": text, "max_tokens": 5, "temperature": 0},
            ),
            Valid(False, "/v1/rerank", {"model": "reranker", "query": text, "documents": texts}),
            Valid(False, "/v2/rerank", {"model": "reranker", "query": text, "documents": texts}),
            Valid(False, "/endpoints/reranker/rerank", {"query": text, "texts": texts}),
            Valid(False, "/endpoints/tags", {"inputs": [soup, text]}),
            Valid(False, "/v1/models/tags:predict", {"instances": [soup]}),
            Valid(False, "/endpoints/tags" + LITELLM, {"texts": [soup]}),
            Valid(False, "/endpoints/tags" + DETECTORS, {"contents": [soup]}),
            Valid(False, "/endpoints/answers", {"inputs": question}),
            Valid(False, "/v1/models/answers:predict", {"instances": [question]}),
            Valid(False, "/endpoints/weights/embed_sparse", {"inputs": texts}),
            Valid(False, "/endpoints/minilm/tokenize", {"inputs": texts}),
            Valid(False, "/v1/models/table:predict", {"instances": [row]}),
            Valid(False, "/v2/models/tags/infer", {"inputs": [tensor("TEXT", [soup])]}),
        ]
    )


def bend(chance: random.Random, value: Any) -> Any:
    """The value with one part of it taken out, doubled or made odd; the value itself is changed."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(list(value))
        match chance.randrange(8):
            case 0:
                del value[name]
            case 1:
                value["odd"] = chance.choice(ODD)
            case _:
                value[name] = bend(chance, value[name])
        return value
    if isinstance(value, list) and value and chance.random() < 0.75:
        at = chance.randrange(len(value))
        match chance.randrange(4):
            case 0:
                value += [value[at]] * chance.randrange(100)
            case _:
                value[at] = bend(chance, value[at])
        return value
    return chance.choice(ODD)


def bent_request(chance: random.Random) -> tuple[bool, str, bytes, dict[str, str]]:
    """Application, path, body and headers."""
    valid = valid_request(chance)
    headers: dict[str, str] = {}
    if chance.random() < 0.1:
        worst = chance.choice([each for each in WORST if each.path != GRPC])
        return False, worst.path, worst.make(chance.randrange(2, 2000)), dict(worst.headers)
    content = json.dumps(bend(chance, copy.deepcopy(valid.body))).encode()
    if chance.random() < 0.2:
        at = chance.randrange(len(content) + 1)
        cut = content[at + chance.randrange(3) :]
        content = content[:at] + chance.randbytes(chance.randrange(4)) + cut
    if chance.random() < 0.1:
        headers["content-encoding"] = chance.choice(["gzip", "deflate", "br", "x"])
        content = gzip.compress(content, 1) if chance.random() < 0.7 else content
    if chance.random() < 0.1:
        name = chance.choice(["x-headrace-version", "inference-header-content-length"])
        headers[name] = chance.choice(["3", "-1", "0", "7", "x", "9" * 30])
    path = valid.path if chance.random() < 0.9 else valid_request(chance).path
    return valid.piped, path, content, headers


def bent_message(chance: random.Random) -> bytes:
    """One of gRPC."""
    if chance.random() < 0.3:
        worst = chance.choice([each for each in WORST if each.path == GRPC])
        return worst.make(chance.randrange(2, 2000))
    request = pb.ModelInferRequest(model_name=chance.choice(["sentiment", "table", "tags", "no"]))
    names, kinds = ["TEXT", "TEXT_PAIR", "x"], ["BYTES", "FP32", "INT8", "x"]
    made = request.inputs.add(
        name=chance.choice(names), datatype=chance.choice(kinds), shape=[chance.randrange(-1, 4)]
    )
    made.contents.bytes_contents.extend([b"w1"] * chance.randrange(4))
    message = bytearray(request.SerializeToString())
    if chance.random() < 0.5:
        message[chance.randrange(len(message))] = chance.randrange(256)
    return bytes(message)


def told(answer: httpx.Response) -> Any:
    """What was answered, less what varies."""
    found = answer.json()
    return (
        {k: v for k, v in found.items() if k not in VARYING} if isinstance(found, dict) else found
    )


def embedder() -> ServedModel:
    vectors = TensorSpec(name="embedding", datatype=Datatype.FP32, shape=(-1, 2))
    plain = manifest_of(model="minilm", task=Task.TEXT_EMBEDDING, labels=())
    manifest = plain.model_copy(update={"dimension": 2, "outputs": (vectors,)})
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


def zero_shot() -> ServedModel:
    manifest = manifest_of(
        model="topics",
        task=Task.ZERO_SHOT_CLASSIFICATION,
        labels=("entailment", "not_entailment"),
    )
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


@asynccontextmanager
async def both_applications() -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient, Asking]]:
    """That over stand-ins, that over the pipeline, and gRPC's."""
    behind = Behind(endpoints())
    behind.metrics.keep = False
    asking = Asking(behind)
    writer = writer_of("9", rows=AT_ONCE)
    more = (embedder(), zero_shot(), writer)
    names = ("minilm", "topics", "writer")
    guarded = endpoint_of(ONE.ref)
    rules = Guardrail(labels={"positive": 0.5}, long_texts="cut")
    spec = guarded.spec.model_copy(update={"guardrail": rules})
    guarded = guarded.model_copy(update={"spec": spec})
    async with world_of(guarded, more=more) as world:
        others = [endpoint_of(m.ref, name=n) for m, n in zip(more, names, strict=True)]
        world.serve(guarded, *others)
        generation = Generation(world.pipeline)
        metrics = FakeMetrics(keep=False)
        front = Front(
            world.endpoints, world.admission, world.pipeline, metrics, generation=generation
        )
        fakes, piped = (
            httpx.ASGITransport(app, raise_app_exceptions=False)  # it is a 500, then
            for app in (behind.app, create_app(front))
        )
        url = "http://gateway"
        async with (
            httpx.AsyncClient(transport=fakes, base_url=url, timeout=60) as one,
            httpx.AsyncClient(transport=piped, base_url=url, timeout=60) as two,
        ):
            yield one, two, asking
    front.large.close()
    behind.front.large.close()


class Fuzz:
    """One run over both applications."""

    def __init__(self, clients: list[httpx.AsyncClient], asking: Asking, seed: int) -> None:
        self._clients, self._asking = clients, asking
        self._chance = random.Random(seed)
        self._valid = [valid_request(self._chance) for _ in range(VALID_REQUESTS)]
        self._alone: list[Any] = []
        self._asked = 0
        self.found = Found()

    async def run(self, requests: int) -> None:
        for valid in self._valid:
            answer = await self._clients[valid.piped].post(valid.path, json=valid.body)
            assert answer.status_code == 200, (valid, answer.text)
            self._alone.append(told(answer))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._work(requests // AT_ONCE))

    async def _work(self, requests: int) -> None:
        for _ in range(requests):
            kind = self._chance.random()
            if kind < 0.35:
                await self._ask_valid(self._chance.randrange(VALID_REQUESTS))
            elif kind < 0.9:
                await self._ask_bent()
            else:
                await self._call_bent()

    async def _ask_valid(self, at: int) -> None:
        valid = self._valid[at]
        content = json.dumps(valid.body).encode()
        answer = await self._ask(valid.piped, valid.path, content, {})
        if answer.status_code == 503:  # the gateway is behind, on a machine that others use too
            self.found.refused += 1
            return
        self.found.compared += 1
        if answer.status_code != 200 or told(answer) != self._alone[at]:
            self.found.faults.append(f"{valid}: {answer.status_code} {answer.text[:200]}")

    async def _ask_bent(self) -> None:
        await self._ask(*bent_request(self._chance))

    async def _ask(
        self, piped: bool, path: str, content: bytes, headers: dict[str, str]
    ) -> httpx.Response:
        self._asked += 1
        name = f"fuzzed-{self._asked}"
        headers = {"x-request-id": name, "content-type": "application/json", **headers}
        answer = await self._clients[piped].post(path, content=content, headers=headers)
        self.found.statuses[str(answer.status_code)] += 1
        self.found.paths[path] += 1
        if answer.status_code == 500 or answer.headers.get("x-request-id") != name:
            self.found.faults.append(f"{path} {content[:300]!r} {headers}: {answer.status_code}")
        return answer

    async def _call_bent(self) -> None:
        message = bent_message(self._chance)
        code = await self._asking.ask(WorstBody("", GRPC, bytes), message)
        self.found.statuses[code] += 1
        self.found.paths[GRPC] += 1
        if code in ("INTERNAL", "UNKNOWN"):
            self.found.faults.append(f"gRPC {message[:300]!r}: {code}")


async def fuzzed(requests: int, seed: int) -> Found:
    async with both_applications() as (fakes, piped, asking):
        fuzz = Fuzz([fakes, piped], asking, seed)
        await fuzz.run(requests)
    return fuzz.found


@pytest.mark.slow
async def test_requests_at_once_get_their_own_answers_and_none_is_a_500() -> None:
    found = await fuzzed(2000, 5)
    assert found.faults == []
    assert found.compared > 30  # a busy machine refuses many with 503
    assert {"200", "400", "422"} <= set(found.statuses)


@pytest.mark.soak
@pytest.mark.real
@pytest.mark.timeout(14400)
async def test_a_million_requests_get_their_own_answers_and_none_is_a_500() -> None:
    seed = random.SystemRandom().getrandbits(32)
    found = await fuzzed(REQUESTS, seed)
    figures = {
        "requests": REQUESTS,
        "seed": seed,
        "compared_with_the_answer_alone": found.compared,
        "valid_and_refused": found.refused,
        "statuses": dict(sorted(found.statuses.items())),
        "paths": dict(sorted(found.paths.items())),
        "faults": found.faults[:5],
    }
    if REQUESTS >= 100_000:
        record("fuzzed-requests", figures)
    else:
        print(json.dumps(figures, indent=1))
    assert found.faults == []
    assert found.compared > REQUESTS / 5

"""Nothing that a caller sends, or is sent, holds the event loop for long, in any dialect."""

import asyncio
import gzip
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import thread_time
from typing import Any

import grpc
import httpx
import msgspec
import numpy as np
import pytest
from front_fakes import WORDS, FakePredictor
from front_server import Served, serving
from loop_watch import LoopHeldError, LoopWatch, WatchedLoop, unit_seconds
from tritonclient.grpc import service_pb2 as pb
from worst_bodies import GRPC, MANY, WORST, WorstBody, endpoints

from contracts.endpoint import Arm
from contracts.model import ModelRef
from gateway.calls import Answer, Call
from gateway.dialects.reading import check_texts
from gateway.http.body import HttpLimits
from gateway.http.large_work import INLINE_BYTES
from preprocess.tokens import Token, tokens_of

pytestmark = pytest.mark.slow

_BYTES = 8 * 1024 * 1024 - 1024
_STATUSES = {"200", "400", "404", "413", "422", "OK", "INVALID_ARGUMENT", "NOT_FOUND"}
_INFER = "/inference.GRPCInferenceService/ModelInfer"


@dataclass
class WidePredictor(FakePredictor):
    """Answers with so many numbers a text; where that is 0, as the fake it is.

    What the fake makes of tokens takes it long: it is made once for calls of one size.
    """

    width: int = 0
    known: dict[tuple[str, int, int], Answer] = field(default_factory=dict)

    async def predict(self, call: Call) -> Answer:
        if not self.width:
            size = call.endpoint, len(call.texts), len(call.texts[0])
            if size not in self.known:
                answer = await super().predict(call)
                if call.endpoint == "tokens":
                    wide = np.tile(answer.values, (1, 64))
                    answer = msgspec.structs.replace(answer, values=wide)
                self.known[size] = answer
            return self.known[size]
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

    async def tokens(self, call: Call, *, special: bool) -> tuple[ModelRef, Arm, list[list[Token]]]:
        view = self.describe(call.endpoint)
        check_texts(len(call.texts), view)
        work = partial(tokens_of, WORDS.tokenizer, call.texts, special=special)
        return view.refs[0], Arm.STABLE, await asyncio.to_thread(work)

    async def texts(
        self, call: Call, ids: Sequence[Sequence[int]], *, skip_special: bool
    ) -> tuple[ModelRef, Arm, list[str]]:
        work = partial(super().texts, call, ids, skip_special=skip_special)
        return await asyncio.to_thread(lambda: asyncio.run(work()))


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


@pytest.mark.parametrize("size", [_BYTES, INLINE_BYTES - 200], ids=["large", "inline"])
@pytest.mark.parametrize("worst", WORST, ids=lambda worst: worst.name)
def test_no_body_holds_the_loop(
    fronts: Served, watch: LoopWatch, worst: WorstBody, size: int
) -> None:
    body = worst.make(size)
    ask(fronts, worst, worst.make(1000))  # what is made once
    status = watch.check(lambda: ask(fronts, worst, body))
    assert status in _STATUSES, status


_TEXTS = ["a"] * 64
_TENSOR = {"name": "TEXT", "shape": [64], "datatype": "BYTES", "data": _TEXTS}
_BINARY = {"parameters": {"binary_data_output": True}}
# Of 64 texts of 512 tokens: of labels, and vectors of a token model.
_LONG_TEXTS = ["good film " * 256] * 64
_LONG_TENSOR = {"name": "TEXT", "shape": [64], "datatype": "BYTES", "data": _LONG_TEXTS}
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
    "hf: tags": ("/endpoints/tags", {"inputs": _LONG_TEXTS}),
    "oip: tags": ("/v2/models/tags/infer", {"inputs": [_LONG_TENSOR]}),
    "tei: tokens": ("/endpoints/tokens/embed_all", {"inputs": _LONG_TEXTS}),
    "rerank: many": (
        "/v1/rerank",
        {"model": "many", "query": "a", "documents": ["b"] * MANY, "return_documents": True},
    ),
    "tei: labels": ("/endpoints/sentiment/predict", {"inputs": [["a"]] * 64}),
}


@pytest.mark.parametrize("name", LARGE)
def test_no_answer_holds_the_loop(
    fronts: Served, watch: LoopWatch, predictor: WidePredictor, name: str
) -> None:
    path, body = LARGE[name]
    # The loop of tests copies what it writes, unlike the gateway's own: of labels 50 MB otherwise.
    predictor.width = width_of(name)
    try:
        answer = watch.check(lambda: httpx.post(fronts.url + path, json=body, timeout=120))
    finally:
        predictor.width = 0
    assert answer.status_code == 200, answer.text[:300]


def width_of(name: str) -> int:
    widths = {"ranks": 1, "labels": 4096, "weights": 4096, "many": 1, "tags": 0, "tokens": 0}
    return widths.get(name.rsplit(maxsplit=1)[-1], 16_384)


GRPC_LARGE = {
    "vectors": ("minilm", _TEXTS),
    "labels": ("sentiment", _TEXTS),
    "weights": ("weights", _TEXTS),
    "tags": ("tags", _LONG_TEXTS),
    "tokens": ("tokens", _LONG_TEXTS),
}


@pytest.mark.parametrize("name", GRPC_LARGE)
def test_no_answer_over_grpc_holds_the_loop(
    fronts: Served, watch: LoopWatch, predictor: WidePredictor, name: str
) -> None:
    endpoint, texts = GRPC_LARGE[name]
    request = pb.ModelInferRequest(model_name=endpoint)
    tensor = request.inputs.add(name="TEXT", datatype="BYTES", shape=[len(texts)])
    tensor.contents.bytes_contents.extend(text.encode() for text in texts)
    predictor.width = width_of(name)
    try:
        status = watch.check(lambda: call(fronts, request.SerializeToString()))
    finally:
        predictor.width = 0
    assert status == "OK"


@dataclass(frozen=True)
class Flood:
    """Bytes that cost the parser the most, before anybody looks at what they say.

    Attributes:
        head: of the request.
        piece: what comes again and again behind it.
        status: of the answer; 0 for none.
    """

    head: str
    piece: str
    status: int


_CHUNKED = "POST /endpoints/{} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
FLOODS = {
    "chunks of one byte": Flood(_CHUNKED.format("sentiment"), "1\r\na\r\n", 400),
    "chunks of one byte that nobody reads": Flood(_CHUNKED.format("none"), "1\r\na\r\n", 404),
    "fields of nothing": Flood("POST /endpoints/sentiment HTTP/1.1\r\n", "a:\r\n", 431),
    "trailers": Flood(_CHUNKED.format("sentiment") + "1\r\n1\r\n0\r\n", "a:\r\n", 400),
    "requests": Flood("", "GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n", 200),
}
_FLOOD_BYTES = 2 * 1024 * 1024


def flood(fronts: Served, sent: Flood) -> int:
    """The status of the first answer to a flood, which ends as a body in chunks does."""
    data = (sent.head + sent.piece * (_FLOOD_BYTES // len(sent.piece)) + "0\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", fronts.port), 60) as connection:
        with suppress(OSError):  # it may be ended before it has taken all
            connection.sendall(data)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(4096)
    return int(answer.split()[1]) if answer else 0


@pytest.mark.parametrize("name", FLOODS)
def test_no_flood_of_small_pieces_holds_the_loop(
    fronts: Served, watch: LoopWatch, name: str
) -> None:
    assert watch.check(lambda: flood(fronts, FLOODS[name])) in (FLOODS[name].status, 0)


def test_the_watch_fails_what_holds_the_loop_and_nothing_else() -> None:
    watch = LoopWatch()
    loop = WatchedLoop(watch)
    unit = unit_seconds()

    def work(units: float) -> None:
        until = thread_time() + units * unit
        while thread_time() < until:
            json.loads("[]")

    def turn() -> None:
        for _ in range(10):
            loop.call_soon(work, 0.5)
        loop.call_soon(loop.stop)
        loop.run_forever()

    try:
        watch.check(turn)
    finally:
        loop.close()
    with pytest.raises(LoopHeldError, match="work"):
        watch.check(lambda: watch.note(20 * unit, work))

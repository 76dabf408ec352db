"""One caller, one text after the other, by every way: HTTP, gRPC, and its ids straight to Triton.

A blocking client on one kept connection, with as little Python as can be: what it adds is what a
lone caller sees.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence

import grpc
import numpy as np
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2 as pb

from bench import corpus, grpc_wire, wire
from bench.gpu.found import Caller
from bench.peers.model import MODEL, PreparedModel
from bench.peers.subjects import Running
from contracts.manifest import TOKENIZER, EngineKind, Manifest
from contracts.tasks import ATTENTION_MASK, INPUT_IDS, ROW_STARTS

TOKENS = (16, 128)
HTTP, GRPC, ENGINE = "HTTP", "gRPC", "ids to Triton"
_TEXTS = 64
_UNCOUNTED = 100
_MOST_SECONDS = 8.0
_READ = 262_144

Ask = Callable[[bytes], object]


def measure(
    engine: str,
    running: Running,
    prepared: PreparedModel,
    calls: int,
    body: Callable[[str], object],
) -> Iterator[Caller]:
    """Each way for each number of tokens.

    Args:
        engine: what is asked.
        running: where.
        prepared: its model, whose tokeniser counts.
        calls: of each way.
        body: of HTTP.
    """
    manifest = prepared.manifest
    known = Tokenizer.from_file(str(prepared.package / TOKENIZER))
    known.no_padding()
    for tokens in TOKENS:
        texts = corpus.of_length(tokens, _TEXTS, known)
        ask = _Http(running.port)
        posts = [wire.request(running.path, "127.0.0.1", json.dumps(body(text))) for text in texts]
        yield _caller(engine, HTTP, tokens, _times(ask, posts, calls))
        ask.close()
        if running.grpc_ports:
            messages = [grpc_wire.message(MODEL, [text]) for text in texts]
            times = _by_grpc(f"127.0.0.1:{running.grpc_ports[0]}", messages, calls)
            yield _caller(engine, GRPC, tokens, times)
        if running.engine:
            rows = [known.encode(text).ids for text in texts]
            messages = [ids_message(manifest, row) for row in rows]
            yield _caller(engine, ENGINE, tokens, _by_grpc(running.engine, messages, calls))


def ids_message(manifest: Manifest, row: Sequence[int]) -> bytes:
    """A row as the package's engine takes it, encoded."""
    made = pb.ModelInferRequest(model_name=manifest.ref().triton_model)
    ids = np.array(row)
    if manifest.engine is EngineKind.PACKED:
        tensors = {INPUT_IDS: ids.astype(np.int32), ROW_STARTS: np.array([0, len(row)], np.int32)}
    else:
        values = {INPUT_IDS: ids, ATTENTION_MASK: np.ones_like(ids)}
        tensors = {
            spec.name: values.get(spec.name, np.zeros_like(ids))[np.newaxis].astype(np.int64)
            for spec in manifest.inputs
        }
    for name, array in tensors.items():
        datatype = "INT32" if array.dtype == np.int32 else "INT64"
        made.inputs.add(name=name, datatype=datatype, shape=array.shape)
        made.raw_input_contents.append(array.tobytes())
    encoded: bytes = made.SerializeToString()
    return encoded


def _by_grpc(address: str, messages: Sequence[bytes], calls: int) -> list[float]:
    with grpc.insecure_channel(address) as channel:
        method = "/inference.GRPCInferenceService/ModelInfer"
        return _times(channel.unary_unary(method), messages, calls)


def _times(ask: Ask, messages: Sequence[bytes], calls: int) -> list[float]:
    """Milliseconds of each call."""
    for number in range(min(calls, _UNCOUNTED)):
        ask(messages[number % len(messages)])
    taken: list[float] = []
    ends = time.perf_counter() + _MOST_SECONDS
    while len(taken) < calls and time.perf_counter() < ends:
        message = messages[len(taken) % len(messages)]
        began = time.perf_counter()
        ask(message)
        taken.append(1000 * (time.perf_counter() - began))
    return taken


def _caller(engine: str, way: str, tokens: int, times: list[float]) -> Caller:
    p50, p99 = (float(each) for each in np.percentile(times, (50, 99)))
    return Caller(engine=engine, way=way, tokens=tokens, p50=p50, p99=p99, calls=len(times))


class _Http:
    """A kept connection. Answers are read to their end and not decoded."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __call__(self, message: bytes) -> None:
        self._socket.sendall(message)
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._received()
        if data[9:12] != b"200":
            raise RuntimeError(f"answered {data[:400]!r}")
        left = wire.body_length(data[:end].lower()) - (len(data) - end - 4)
        while left > 0:
            left -= len(self._received())

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def _received(self) -> bytes:
        data = self._socket.recv(_READ)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

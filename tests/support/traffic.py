"""Callers of gateways in every dialect, in a thread of their own, who write down every answer.

A caller keeps to one gateway and one dialect, as a client with a connection does: what one
gateway's callers met can be told from what the other's did.
"""

import asyncio
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import grpc
import httpx
import numpy as np
from tritonclient.grpc import InferResult, service_pb2_grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import serialize_byte_tensor

from headrace.stack.state import GatewayRecord

CONNECTION_FAILED = 0  # in place of a status
OIP_GRPC = "oip_grpc"
FEEDBACK_EVERY = 5  # answers with a receipt
LOOK_SECONDS = 0.05  # between two looks at all replies; a look at each reply would cost far more
# A channel whose gateway is away tries again as soon as that is started anew.
_GRPC_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 10_000),  # how long an attempt may take on a busy machine
    ("grpc.max_reconnect_backoff_ms", 500),
]
_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 422,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.INTERNAL: 502,
}

Texts = str | list[str]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; ``status`` 0 when the connection itself failed, else as HTTP says it.

    ``label``, ``score`` and ``values`` are those of the first text.
    """

    at: float  # monotonic, seconds, when it came
    seconds: float
    status: int
    version: str = ""
    retry_after: str = ""
    body: str = ""  # what came with a failure
    gateway: str = ""  # the process' name
    dialect: str = ""
    text: str = ""
    label: str = ""
    score: float = 0.0
    values: tuple[float, ...] = ()  # of a vector
    receipt: str = ""
    endpoint: str = ""

    @property
    def sent(self) -> float:
        """Monotonic seconds when the request was sent."""
        return self.at - self.seconds


@dataclass(frozen=True)
class Way:
    """One dialect in which callers ask one gateway for one endpoint.

    ``texts`` are sent in place of those of all callers.
    """

    gateway: GatewayRecord
    endpoint: str
    dialect: str = "huggingface"
    texts: Sequence[Texts] = ()


@dataclass(frozen=True)
class _Dialect:
    """How texts are put over HTTP, and what a good answer says of the first of them."""

    path: str
    body: Callable[[str, Texts], object]
    read: Callable[[Any], dict[str, Any]]


def _labelled(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"label": row["label"], "score": row["score"]}


def _huggingface(said: Any) -> dict[str, Any]:
    return _labelled(said[0][0] if isinstance(said[0], list) else said[0])


def _tensor(_: str, texts: Texts) -> object:
    data = _all(texts)
    return {"inputs": [{"name": "TEXT", "shape": [len(data)], "datatype": "BYTES", "data": data}]}


def _outputs(said: Any) -> dict[str, Any]:
    first = {output["name"]: output["data"][0] for output in said["outputs"]}
    return {"label": first["LABEL"], "score": first["SCORE"]}


def _all(texts: Texts) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


_HTTP = {
    "huggingface": _Dialect("/endpoints/{}", lambda _, texts: {"inputs": texts}, _huggingface),
    "kserve_v1": _Dialect(
        "/v1/models/{}:predict",
        lambda _, texts: {"instances": _all(texts)},
        lambda said: _labelled(said["predictions"][0]),
    ),
    # Rows of tables, each as JSON in place of a text.
    "rows": _Dialect(
        "/v1/models/{}:predict",
        lambda _, rows: {"instances": [json.loads(row) for row in _all(rows)]},
        lambda said: _labelled(said["predictions"][0]),
    ),
    "oip_http": _Dialect("/v2/models/{}/infer", _tensor, _outputs),
    "openai": _Dialect(
        "/v1/embeddings",
        lambda endpoint, texts: {"model": endpoint, "input": texts, "encoding_format": "float"},
        lambda said: {"values": tuple(said["data"][0]["embedding"])},
    ),
}


@dataclass
class Traffic:
    """``callers`` who each send the next text as soon as they have an answer (a closed loop).

    The callers are dealt out over the ``ways``, so that each way has as many, or one more. To some
    answers the text's label in ``truths`` is told as feedback. Use as a context manager around what
    is done to the stack meanwhile.
    """

    ways: Sequence[Way]
    texts: Sequence[Texts]
    callers: int = 8
    pause_seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    timeout_seconds: float = 20.0
    truths: Mapping[str, str] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)
    feedback: "Counter[int]" = field(default_factory=Counter)  # how many were told, by status

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._resting = threading.Event()
        self._taking = threading.Lock()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="traffic")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(self.timeout_seconds + 10)
        assert not self._thread.is_alive(), "a caller hangs"

    def until(
        self, what: str, seconds: float, enough: Callable[[Sequence[Reply]], bool]
    ) -> Sequence[Reply]:
        """Waits until the replies since this call are ``enough``, and returns them."""
        first, deadline = len(self.replies), time.monotonic() + seconds
        while not enough(replies := self.replies[first:]):
            assert time.monotonic() < deadline, (
                f"not within {seconds:.0f} s: {what}; {self.statuses()}"
            )
            time.sleep(LOOK_SECONDS)
        return replies

    def more(self, count: int, seconds: float = 180) -> Sequence[Reply]:
        """Waits for ``count`` further replies."""
        return self.until(f"{count} replies", seconds, lambda replies: len(replies) >= count)

    def take(self) -> list[Reply]:
        """The replies since the last call, which are kept no longer."""
        with self._taking:
            taken, self.replies = self.replies, []
        return taken

    def rest(self) -> None:
        """Has all callers pause until ``go_on``."""
        self._resting.set()

    def go_on(self) -> None:
        """Ends ``rest``."""
        self._resting.clear()

    @property
    def alive(self) -> bool:
        """Whether its thread still runs: a caller that ended early proves nothing."""
        return self._thread.is_alive()

    def statuses(self, gateway: str | None = None) -> "Counter[int]":
        """How many replies of each status there are, of all gateways or of one."""
        return Counter(reply.status for reply in self.replies if gateway in {None, reply.gateway})

    def answered_ways(self) -> set[tuple[str, str]]:
        """Gateway and dialect of every way that has given an answer."""
        return {(each.gateway, each.dialect) for each in self.replies if each.status == 200}

    async def _run(self) -> None:
        texts = itertools.cycle(self.texts)
        tls = httpx.create_ssl_context()  # one for all: it takes long to make
        async with AsyncExitStack() as stack:
            ways = []
            for way in self.ways:
                stub = None
                if way.dialect == OIP_GRPC:
                    channel = grpc.aio.insecure_channel(way.gateway.grpc, options=_GRPC_OPTIONS)
                    stack.push_async_callback(channel.close)
                    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                ways.append((way, stub, itertools.cycle(way.texts) if way.texts else texts))
            calls = []
            for way, stub, own_texts in itertools.islice(itertools.cycle(ways), self.callers):
                # A client each: a pool of several gateways' connections closes those that were idle
                # for long, even one that a caller has just begun to use, who then reads nothing.
                client = httpx.AsyncClient(timeout=self.timeout_seconds, verify=tls)
                await stack.enter_async_context(client)
                over_http = partial(self._ask_over_http, client)
                ask = over_http if stub is None else partial(self._ask_over_grpc, stub)
                calls.append(self._call(client, way, ask, own_texts))
            await asyncio.gather(*calls)

    async def _call(
        self,
        client: httpx.AsyncClient,
        way: Way,
        ask: Callable[[Way, Texts], Awaitable[dict[str, Any]]],
        texts: Iterator[Texts],
    ) -> None:
        for count in itertools.count():
            if self._stop.is_set():
                return
            if self._resting.is_set():
                await asyncio.sleep(0.05)
                continue
            sent = next(texts)
            began = time.monotonic()
            told = await ask(way, sent)
            now = time.monotonic()
            reply = Reply(
                now, now - began, gateway=way.gateway.name, dialect=way.dialect,
                endpoint=way.endpoint, text=_all(sent)[0], **told,
            )  # fmt: skip
            with self._taking:
                self.replies.append(reply)
            if reply.receipt and reply.text in self.truths and count % FEEDBACK_EVERY == 0:
                await self._tell(client, way, reply)
            if reply.status != 200 or self.pause_seconds:
                await asyncio.sleep(max(0.02, self.pause_seconds))

    async def _ask_over_http(
        self, client: httpx.AsyncClient, way: Way, texts: Texts
    ) -> dict[str, Any]:
        dialect = _HTTP[way.dialect]
        url = f"{way.gateway.url}{dialect.path.format(way.endpoint)}"
        try:
            answer = await client.post(
                url, json=dialect.body(way.endpoint, texts), headers=self.headers
            )
        except httpx.HTTPError as error:
            return {"status": CONNECTION_FAILED, "body": repr(error)[:300]}
        headers = answer.headers
        told = {"status": answer.status_code, "retry_after": headers.get("retry-after", "")}
        if answer.status_code != 200:
            return {**told, "body": answer.text[:300]}
        told["version"] = headers.get("x-headrace-version", "")
        told["receipt"] = headers.get("x-headrace-receipt", "")
        try:
            return {**told, **dialect.read(answer.json())}
        except (KeyError, IndexError, ValueError, TypeError) as error:
            return {**told, "body": f"not an answer of this dialect: {error!r}"}

    async def _ask_over_grpc(
        self, stub: service_pb2_grpc.GRPCInferenceServiceStub, way: Way, texts: Texts
    ) -> dict[str, Any]:
        call = stub.ModelInfer(
            _request(way.endpoint, _all(texts)),
            timeout=self.timeout_seconds,
            metadata=tuple(self.headers.items()),
        )
        try:
            answer = InferResult(await call)
        except grpc.aio.AioRpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            # What a gateway itself refuses has its name; else nobody answered.
            known = "x-headrace-error" in trailers
            return {
                "status": _STATUSES.get(error.code(), 500) if known else CONNECTION_FAILED,
                "retry_after": trailers.get("retry-after", ""),
                "body": f"{error.code()} {error.details()}"[:300],
            }
        return {
            "status": 200,
            "version": answer.get_response().model_version,
            "label": answer.as_numpy("LABEL")[0].decode(),
            "score": float(answer.as_numpy("SCORE")[0]),
        }

    async def _tell(self, client: httpx.AsyncClient, way: Way, reply: Reply) -> None:
        body = {"receipt": reply.receipt, "label": self.truths[reply.text]}
        try:
            status = (await client.post(f"{way.gateway.url}/feedback", json=body)).status_code
        except httpx.HTTPError:
            status = CONNECTION_FAILED
        self.feedback[status] += 1


def _request(endpoint: str, texts: list[str]) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=endpoint)
    request.inputs.add(name="TEXT", datatype="BYTES", shape=[len(texts)])
    column = np.array([text.encode() for text in texts], dtype=np.object_)
    request.raw_input_contents.append(serialize_byte_tensor(column).item())
    return request


def answered_by_all(ways: int, since: float = 0.0) -> Callable[[Sequence[Reply]], bool]:
    """Whether so many ways have answered what was sent ``since``, in monotonic seconds."""

    def enough(replies: Sequence[Reply]) -> bool:
        good = (each for each in replies if each.status == 200 and each.sent >= since)
        return len({(each.gateway, each.dialect) for each in good}) == ways

    return enough

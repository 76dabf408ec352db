"""Callers of gateways, in a thread of their own, who write down every answer they get.

A caller keeps to one gateway and one protocol, as a client with a connection does: what one
gateway's callers met can be told from what the other's did.
"""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

import grpc
import httpx
import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import serialize_byte_tensor

TIMEOUT_SECONDS = 20.0
# A channel whose gateway is away tries again as soon as that is started anew.
_GRPC_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
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


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; ``status`` 0 when the connection itself failed, else as HTTP says it."""

    at: float  # monotonic, seconds, when it came
    seconds: float
    status: int
    version: str = ""
    retry_after: str = ""
    body: str = ""
    gateway: str = ""  # the process' name
    protocol: str = ""


class Client(Protocol):
    """One way to one gateway, once it is open."""

    async def ask(self, texts: str | list[str], headers: Mapping[str, str]) -> Reply:
        """Sends texts; a reply whatever comes of it."""
        ...


class Way(Protocol):
    """Where callers send to, and how."""

    def open(self, callers: int, stack: AsyncExitStack) -> Client:
        """Gets ready for so many callers at once; the stack closes it."""
        ...


@dataclass(frozen=True)
class Http:
    """The Hugging Face dialect at ``url``, the endpoint's own."""

    url: str
    gateway: str = "gateway"

    def open(self, callers: int, stack: AsyncExitStack) -> Client:
        client = httpx.AsyncClient(
            timeout=TIMEOUT_SECONDS, limits=httpx.Limits(max_connections=callers)
        )
        stack.push_async_callback(client.aclose)
        return _HttpClient(self, client)


@dataclass(frozen=True)
class _HttpClient:
    way: Http
    client: httpx.AsyncClient

    async def ask(self, texts: str | list[str], headers: Mapping[str, str]) -> Reply:
        began = time.monotonic()
        try:
            answer = await self.client.post(
                self.way.url, json={"inputs": texts}, headers=dict(headers)
            )
        except httpx.HTTPError as error:
            told = (0, "", "", repr(error))
        else:
            told = (
                answer.status_code,
                answer.headers.get("x-headrace-version", ""),
                answer.headers.get("retry-after", ""),
                answer.text if answer.status_code != 200 else "",
            )
        now = time.monotonic()
        return Reply(now, now - began, *told, gateway=self.way.gateway, protocol="http")


@dataclass(frozen=True)
class Grpc:
    """The Open Inference Protocol at ``address``, host:port."""

    address: str
    endpoint: str
    gateway: str = "gateway"

    def open(self, callers: int, stack: AsyncExitStack) -> Client:
        channel = grpc.insecure_channel(self.address, options=_GRPC_OPTIONS)
        stack.callback(channel.close)
        threads = ThreadPoolExecutor(callers, thread_name_prefix="caller")
        stack.callback(threads.shutdown)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        return _GrpcClient(self, stub, threads)


@dataclass(frozen=True)
class _GrpcClient:
    way: Grpc
    stub: service_pb2_grpc.GRPCInferenceServiceStub
    threads: ThreadPoolExecutor

    async def ask(self, texts: str | list[str], headers: Mapping[str, str]) -> Reply:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, self._ask, texts, headers)

    def _ask(self, texts: str | list[str], headers: Mapping[str, str]) -> Reply:
        request = _request(self.way.endpoint, [texts] if isinstance(texts, str) else texts)
        began = time.monotonic()
        try:
            _, call = self.stub.ModelInfer.with_call(
                request, timeout=TIMEOUT_SECONDS, metadata=tuple(headers.items())
            )
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            # What a gateway itself refuses has its name; else nobody answered.
            known = "x-headrace-error" in trailers
            status = _STATUSES.get(error.code(), 500) if known else 0
            told = (
                status,
                "",
                trailers.get("retry-after", ""),
                f"{error.code()} {error.details()}",
            )
        else:
            metadata = dict(call.initial_metadata())
            told = (200, metadata.get("x-headrace-version", ""), "", "")
        now = time.monotonic()
        return Reply(now, now - began, *told, gateway=self.way.gateway, protocol="grpc")


def _request(endpoint: str, texts: list[str]) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=endpoint)
    request.inputs.add(name="TEXT", datatype="BYTES", shape=[len(texts)])
    column = np.array([text.encode() for text in texts], dtype=np.object_)
    request.raw_input_contents.append(serialize_byte_tensor(column).item())
    return request


@dataclass
class Traffic:
    """``callers`` who each send the next text as soon as they have an answer (a closed loop).

    The callers are dealt out over the ``ways``, so that each way has as many, or one more.
    Use as a context manager around what is done to the stack meanwhile.
    """

    ways: Sequence[Way]
    texts: Sequence[str | list[str]]
    callers: int = 8
    pause_seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="traffic")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_SECONDS + 10)
        assert not self._thread.is_alive(), "a caller hangs"

    def until(
        self, what: str, seconds: float, enough: Callable[[Sequence[Reply]], bool]
    ) -> Sequence[Reply]:
        """Waits until the replies since this call are ``enough``, and returns them."""
        first = len(self.replies)
        with self._news:
            arrived = self._news.wait_for(lambda: enough(self.replies[first:]), seconds)
        assert arrived, f"not within {seconds:.0f} s: {what}; {self.statuses()}"
        return self.replies[first:]

    def more(self, count: int, seconds: float = 180) -> Sequence[Reply]:
        """Waits for ``count`` further replies."""
        return self.until(f"{count} replies", seconds, lambda replies: len(replies) >= count)

    def statuses(self, gateway: str | None = None) -> Counter[int]:
        """How many replies of each status there are, of all gateways or of one."""
        return Counter(reply.status for reply in self.replies if gateway in {None, reply.gateway})

    def answered_ways(self) -> set[tuple[str, str]]:
        """Gateway and protocol of every way that has given an answer."""
        return {(each.gateway, each.protocol) for each in self.replies if each.status == 200}

    async def _run(self) -> None:
        texts = itertools.cycle(self.texts)
        async with AsyncExitStack() as stack:
            clients = [way.open(self.callers, stack) for way in self.ways]
            dealt = itertools.islice(itertools.cycle(clients), self.callers)
            await asyncio.gather(*(self._call(client, texts) for client in dealt))

    async def _call(self, client: Client, texts: Iterator[str | list[str]]) -> None:
        while not self._stop.is_set():
            reply = await client.ask(next(texts), self.headers)
            with self._news:
                self.replies.append(reply)
                self._news.notify_all()
            if reply.status != 200 or self.pause_seconds:
                await asyncio.sleep(max(0.02, self.pause_seconds))


def answered_by_all(ways: int) -> Callable[[Sequence[Reply]], bool]:
    """Whether so many ways have answered since."""

    def enough(replies: Sequence[Reply]) -> bool:
        return len({(r.gateway, r.protocol) for r in replies if r.status == 200}) == ways

    return enough

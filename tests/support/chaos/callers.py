"""Callers of every gateway in every dialect, in a thread of their own, who write down each answer.

A closed loop each: the next text as soon as there is an answer, after a pause. What they saw is
handed over by ``take``; whether it was right is ``invariants.py``'s to say.
"""

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol

import grpc
import httpx
import numpy as np
import tritonclient.grpc.aio as oip_grpc
from tritonclient.utils import InferenceServerException

from chaos.outages import CONNECTION_FAILED, Seen

DEADLINE_SECONDS = 10.0  # asked of the gateway; the endpoint allows more
PATIENCE_SECONDS = 45.0  # of the client, for a gateway that says nothing at all
FEEDBACK_EVERY = 5  # answers with a receipt
_HEADERS = {"x-request-timeout": f"{DEADLINE_SECONDS:g}"}
_CODES = {
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNKNOWN: 500,
}


@dataclass(frozen=True, slots=True)
class Door:
    """One gateway: its service's name and where it listens."""

    name: str
    url: str
    grpc: str


@dataclass(frozen=True, slots=True)
class Said:
    """What a dialect made of an answer, before it is known when it began and ended."""

    status: int
    version: str = ""
    label: str = ""
    score: float = 0.0
    values: tuple[float, ...] = ()
    receipt: str = ""
    said: str = ""


class Dialect(Protocol):
    """One way to ask."""

    name: str

    async def ask(self, text: str) -> Said:
        """Asks a text; raises ``httpx.HTTPError`` where the connection fails."""
        ...


class _Http:
    """What the dialects over HTTP share."""

    name = ""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    async def ask(self, text: str) -> Said:
        answer = await self._client.post(self._url, json=self._body(text), headers=_HEADERS)
        if answer.status_code != httpx.codes.OK:
            return Said(answer.status_code, said=answer.text[:300])
        said = self._read(answer.json())
        return replace(
            said,
            version=answer.headers.get("x-headrace-version", ""),
            receipt=answer.headers.get("x-headrace-receipt", ""),
        )

    def _body(self, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def _read(self, answer: Any) -> Said:
        raise NotImplementedError


class HuggingFace(_Http):
    """``POST /endpoints/{endpoint}``."""

    name = "huggingface"

    def _body(self, text: str) -> dict[str, Any]:
        return {"inputs": text}

    def _read(self, answer: Any) -> Said:
        best = answer[0]
        best = best[0] if isinstance(best, list) else best
        return Said(200, label=best["label"], score=best["score"])


class KServe(_Http):
    """``POST /v1/models/{endpoint}:predict``."""

    name = "kserve_v1"

    def _body(self, text: str) -> dict[str, Any]:
        return {"instances": [text]}

    def _read(self, answer: Any) -> Said:
        (row,) = answer["predictions"]
        return Said(200, label=row["label"], score=row["score"])


class OipHttp(_Http):
    """``POST /v2/models/{endpoint}/infer``."""

    name = "oip_http"

    def _body(self, text: str) -> dict[str, Any]:
        return {"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": [text]}]}

    def _read(self, answer: Any) -> Said:
        data = {output["name"]: output["data"] for output in answer["outputs"]}
        return Said(200, label=data["LABEL"][0], score=data["SCORE"][0])


class Embeddings(_Http):
    """``POST /v1/embeddings``."""

    name = "openai"

    def __init__(self, client: httpx.AsyncClient, url: str, endpoint: str) -> None:
        super().__init__(client, url)
        self._endpoint = endpoint

    def _body(self, text: str) -> dict[str, Any]:
        return {"model": self._endpoint, "input": text, "encoding_format": "float"}

    def _read(self, answer: Any) -> Said:
        return Said(200, values=tuple(answer["data"][0]["embedding"]))


class OipGrpc:
    """``ModelInfer`` of an unmodified ``tritonclient``."""

    name = "oip_grpc"

    def __init__(self, client: "oip_grpc.InferenceServerClient", endpoint: str) -> None:
        self._client = client
        self._endpoint = endpoint

    async def ask(self, text: str) -> Said:
        tensor = oip_grpc.InferInput("TEXT", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([text.encode()], dtype=np.object_))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                result = await self._client.infer(self._endpoint, [tensor], headers=_HEADERS)
        except InferenceServerException as error:
            return Said(_status(error), said=str(error)[:300])
        except TimeoutError:
            return Said(CONNECTION_FAILED, said="no answer within the client's patience")
        return Said(
            200,
            version=result.get_response().model_version,
            label=result.as_numpy("LABEL")[0].decode(),
            score=float(result.as_numpy("SCORE")[0]),
        )


def _status(error: InferenceServerException) -> int:
    name = (error.status() or "").removeprefix("StatusCode.")
    said = str(error)
    # What the channel itself says is no gateway's answer.
    if name == "UNAVAILABLE" and any(
        word in said for word in ("connect", "Socket closed", "GOAWAY", "Connection", "recvmsg")
    ):
        return CONNECTION_FAILED
    return next((code for status, code in _CODES.items() if status.name == name), 500)


@dataclass
class Callers:
    """All callers. Use as a context manager around what is done to the stack meanwhile.

    Args:
        doors: every gateway.
        classifier: the endpoint that the texts are asked of.
        texts: with their true label, which is told as feedback to some answers; None: not known.
        embedding: an endpoint that answers vectors; empty: none.
        pause_seconds: of each caller between two requests.
    """

    doors: Sequence[Door]
    classifier: str
    texts: Sequence[tuple[str, str | None]]
    embedding: str = ""
    embedded: Sequence[str] = ()
    pause_seconds: float = 0.1
    feedback: dict[int, int] = field(default_factory=dict)  # status -> how many were told

    def __enter__(self) -> "Callers":
        self._stop = threading.Event()
        self._resting = threading.Event()
        self._lock = threading.Lock()
        self._seen: list[Seen] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="callers")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS + 30)

    def take(self) -> list[Seen]:
        """What was seen since the last call."""
        with self._lock:
            seen, self._seen = self._seen, []
        return seen

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

    async def _run(self) -> None:
        limits = httpx.Limits(max_connections=64)
        options = [("grpc.max_reconnect_backoff_ms", 1000)]
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS, limits=limits) as client:
            loops: list[Awaitable[None]] = []
            channels = []
            for door in self.doors:
                channel = oip_grpc.InferenceServerClient(door.grpc, channel_args=options)
                channels.append(channel)
                for dialect in self._dialects(door, client, channel):
                    texts: Sequence[tuple[str, str | None]] = self.texts
                    if dialect.name == Embeddings.name:
                        texts = [(text, None) for text in self.embedded]
                    loops.append(self._loop(door, dialect, texts, client))
            try:
                await asyncio.gather(*loops)
            finally:
                for channel in channels:
                    await channel.close()

    def _dialects(
        self,
        door: Door,
        client: httpx.AsyncClient,
        channel: "oip_grpc.InferenceServerClient",
    ) -> list[Dialect]:
        name = self.classifier
        found: list[Dialect] = [
            HuggingFace(client, f"{door.url}/endpoints/{name}"),
            KServe(client, f"{door.url}/v1/models/{name}:predict"),
            OipHttp(client, f"{door.url}/v2/models/{name}/infer"),
            OipGrpc(channel, name),
        ]
        if self.embedding:
            found.append(Embeddings(client, f"{door.url}/v1/embeddings", self.embedding))
        return found

    async def _loop(
        self,
        door: Door,
        dialect: Dialect,
        texts: Sequence[tuple[str, str | None]],
        client: httpx.AsyncClient,
    ) -> None:
        order = random.Random(f"{door.name} {dialect.name}")
        for count in itertools.count():
            if self._stop.is_set():
                return
            if self._resting.is_set():
                await asyncio.sleep(0.05)
                continue
            text, truth = texts[order.randrange(len(texts))]
            began = time.monotonic()
            said = await _asked(dialect, text)
            seen = Seen(
                began=began,
                ended=time.monotonic(),
                gateway=door.name,
                dialect=dialect.name,
                status=said.status,
                deadline_seconds=DEADLINE_SECONDS,
                text=text,
                version=said.version,
                label=said.label,
                score=said.score,
                values=said.values,
                said=said.said,
            )
            with self._lock:
                self._seen.append(seen)
            if said.receipt and truth is not None and count % FEEDBACK_EVERY == 0:
                await self._tell(client, door, said.receipt, truth)
            await asyncio.sleep(self.pause_seconds * order.uniform(0.5, 1.5))

    async def _tell(self, client: httpx.AsyncClient, door: Door, receipt: str, truth: str) -> None:
        body = {"receipt": receipt, "label": truth}
        try:
            status = (await client.post(f"{door.url}/feedback", json=body)).status_code
        except httpx.HTTPError:
            status = CONNECTION_FAILED
        self.feedback[status] = self.feedback.get(status, 0) + 1


async def _asked(dialect: Dialect, text: str) -> Said:
    try:
        return await dialect.ask(text)
    except httpx.HTTPError as error:
        return Said(CONNECTION_FAILED, said=repr(error)[:300])
    except (KeyError, IndexError, ValueError, TypeError) as error:
        return Said(200, said=f"not an answer of this dialect: {error!r}")

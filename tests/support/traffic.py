"""Callers of a gateway, in a thread of their own, who write down every answer they get."""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import httpx

TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; ``status`` 0 when the connection itself failed."""

    at: float  # monotonic, seconds, when it came
    seconds: float
    status: int
    version: str = ""
    retry_after: str = ""
    body: str = ""


@dataclass
class Traffic:
    """``callers`` who each send the next text as soon as they have an answer (a closed loop).

    Use as a context manager around what is done to the stack meanwhile.
    """

    url: str
    texts: Sequence[str | list[str]]
    callers: int = 8
    pause_seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)

    def __enter__(self) -> "Traffic":
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

    def statuses(self) -> Counter[int]:
        return Counter(reply.status for reply in self.replies)

    async def _run(self) -> None:
        texts = itertools.cycle(self.texts)
        limits = httpx.Limits(max_connections=self.callers)
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits) as client:
            await asyncio.gather(*(self._call(client, texts) for _ in range(self.callers)))

    async def _call(
        self, client: httpx.AsyncClient, texts: "itertools.cycle[str | list[str]]"
    ) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                answer = await client.post(
                    self.url, json={"inputs": next(texts)}, headers=self.headers
                )
            except httpx.HTTPError as error:
                reply = Reply(time.monotonic(), time.monotonic() - began, 0, body=repr(error))
            else:
                reply = Reply(
                    time.monotonic(),
                    time.monotonic() - began,
                    answer.status_code,
                    answer.headers.get("x-headrace-version", ""),
                    answer.headers.get("retry-after", ""),
                    answer.text if answer.status_code != 200 else "",
                )
            with self._news:
                self.replies.append(reply)
                self._news.notify_all()
            if reply.status != 200 or self.pause_seconds:
                await asyncio.sleep(max(0.02, self.pause_seconds))

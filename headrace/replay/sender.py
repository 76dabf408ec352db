"""Sends texts at an even pace, whatever the answers do, and counts what came of them.

The loop is open: a request is due at its time and not when another is answered, and its latency
counts from then. At most ``concurrency`` requests are in flight; one that finds no room for
``LATEST_SECONDS`` is skipped and counted, never queued. It follows no redirect, and sends no
request twice.
"""

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from headrace.errors import sentence_of
from headrace.replay.tally import Tally
from headrace.replay.texts import ReplayText

LATEST_SECONDS = 1.0
DRAIN_SECONDS = 10.0
NO_ANSWER = "none"  # instead of a status
_KEPT_SECONDS = 2.0  # less than servers keep an idle connection, so that none ends as it is used


class NoAnswerError(Exception):
    """No whole answer came: refused, cut off, too late, or no HTTP."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send.

    Without ``seconds`` and ``requests`` it goes on until it is stopped. ``callers`` is how many
    callers are made up for texts without a key; 0: nobody is named.
    """

    url: str
    endpoint: str
    rate: float  # requests a second
    seconds: float | None = None
    requests: int | None = None
    concurrency: int = 256
    callers: int = 0
    feedback: bool = False
    api_key: str | None = None
    timeout_seconds: float = 30.0
    seed: int = 0


class Replay:
    """One replay; ``tally`` can be looked at while it runs."""

    def __init__(self, plan: Plan, texts: Sequence[ReplayText]) -> None:
        self.tally = Tally()
        self.began = 0.0  # of the event loop's clock
        self._plan = plan
        self._texts = texts
        self._fault: asyncio.Future[None]  # of a request, if the program is wrong
        # Only the transport, because the whole client takes more than twice its time.
        self._server = plan.url.rstrip("/")
        self._headers = {} if plan.api_key is None else {"authorization": f"Bearer {plan.api_key}"}
        self._transport = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(keepalive_expiry=_KEPT_SECONDS),  # ``concurrency`` is the bound
            trust_env=False,
        )
        self._room = asyncio.Semaphore(plan.concurrency)
        self._on_their_way: set[asyncio.Task[None]] = set()
        self._callers = random.Random(plan.seed)  # noqa: S311 - repeatable, not secret

    async def run(self, stop: asyncio.Event) -> float:
        """Sends until the plan is done or ``stop`` is set, then waits a little for what is out."""
        loop = asyncio.get_running_loop()
        self.began = loop.time()
        self._fault = loop.create_future()
        sending = asyncio.create_task(self._send())
        stopping = asyncio.create_task(stop.wait())
        try:
            ends: set[asyncio.Future[Any]] = {sending, stopping, self._fault}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            took = loop.time() - self.began
            for end in (sending, self._fault):
                if end.done():
                    end.result()
            sending.cancel()
            await self._drain()
        finally:
            sending.cancel()
            stopping.cancel()
            for task in self._on_their_way:
                task.cancel()
            everything = (sending, stopping, *self._on_their_way)
            await asyncio.gather(*everything, return_exceptions=True)
            await self._transport.aclose()
        return took

    async def _send(self) -> None:
        plan, loop = self._plan, asyncio.get_running_loop()
        number = turn = 0  # a turn may be skipped
        end = math.inf if plan.seconds is None else self.began + plan.seconds
        while plan.requests is None or number < plan.requests:
            due = self.began + turn / plan.rate
            if due >= end:
                break
            turn += 1
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self._room.acquire()
            if loop.time() - due > LATEST_SECONDS:
                self._room.release()
                self.tally.skipped += 1
                continue
            task = asyncio.create_task(self._send_one(self._texts[number % len(self._texts)], due))
            number += 1
            self.tally.sent += 1
            self._on_their_way.add(task)
            task.add_done_callback(self._finish)
        # A turn lasts until the next one is due, the last one too: so the rate is what was asked.
        await asyncio.sleep(min(end, self.began + turn / plan.rate) - loop.time())

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self._on_their_way.discard(task)
        self._room.release()
        fault = None if task.cancelled() else task.exception()
        if fault is not None and not self._fault.done():
            self._fault.set_exception(fault)

    async def _drain(self) -> None:
        if self._on_their_way:
            await asyncio.wait(self._on_their_way, timeout=DRAIN_SECONDS)
        self.tally.unfinished = len(self._on_their_way)

    async def _send_one(self, text: ReplayText, due: float) -> None:
        tally = self.tally
        path = f"/endpoints/{quote(self._plan.endpoint, safe='')}"
        try:
            answer = await self._post(path, {"inputs": text.text}, self._key(text))
        except NoAnswerError as error:
            tally.statuses[NO_ANSWER] += 1
            tally.note_failure(f"no answer: {error}")
            return
        tally.latencies.add(asyncio.get_running_loop().time() - due)
        tally.statuses[str(answer.status_code)] += 1
        if answer.status_code != HTTPStatus.OK:
            tally.note_failure(f"{answer.status_code}: {sentence_of(answer.content)}")
            return
        tally.versions[answer.headers.get("x-headrace-version", "?")] += 1
        if text.label is not None:
            tally.labelled += 1
            tally.right += _label(answer) == text.label
            if self._plan.feedback:
                await self._tell(answer, text.label)

    async def _tell(self, answer: httpx.Response, label: str) -> None:
        tally = self.tally
        receipt = answer.headers.get("x-headrace-receipt")
        if receipt is None:
            tally.feedback["no receipt"] += 1
            return
        try:
            told = await self._post("/feedback", {"receipt": receipt, "labels": [label]}, {})
        except NoAnswerError as error:
            tally.feedback[NO_ANSWER] += 1
            tally.note_failure(f"feedback: no answer: {error}")
            return
        tally.feedback[str(told.status_code)] += 1
        if told.status_code >= HTTPStatus.BAD_REQUEST:
            tally.note_failure(f"feedback: {told.status_code}: {sentence_of(told.content)}")

    async def _post(self, path: str, body: object, headers: dict[str, str]) -> httpx.Response:
        try:
            async with asyncio.timeout(self._plan.timeout_seconds):
                named = httpx.Headers(self._headers | headers, encoding="utf-8")
                request = httpx.Request("POST", self._server + path, json=body, headers=named)
                response = await self._transport.handle_async_request(request)
                await response.aread()
                return response
        except TimeoutError:
            raise NoAnswerError("timeout") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswerError(str(error) or type(error).__name__) from error

    def _key(self, text: ReplayText) -> dict[str, str]:
        if text.key is not None:
            # What is no word of a header is written as in a URL.
            return {"x-headrace-key": quote(text.key, safe="@:+,;=!*()")}
        if self._plan.callers:
            return {"x-headrace-key": f"caller-{self._callers.randrange(self._plan.callers)}"}
        return {}


def _label(answer: httpx.Response) -> str | None:
    try:
        first = answer.json()[0]
        label = first["label"]
    except (ValueError, LookupError, TypeError):
        return None
    return str(label)

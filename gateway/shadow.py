"""Shadow traffic: copies of answered requests for a version on trial, out of spare capacity alone.

``attempts.py`` offers each request that stable has answered. A copy waits here until neither the
engine nor this process has anything better to do, goes to the candidate's own lane, and its answer
is compared and thrown away. Whatever is short, copies are what is dropped, and counted by reason.
Nothing here is awaited by a request, and nothing that goes wrong here reaches a caller.

How it stays out of the callers' way: a copy is sent only while an engine idles and nobody waits; no
more copies are out than there are engines; and all together they get a fixed share of the engines'
time and of the event loop's, for a batch that has begun cannot be stopped when a caller comes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Arm
from contracts.events import Latency, Pairing, PredictionEvent, TextRecord
from gateway import unknown
from gateway.admission import TokenBudget
from gateway.caller import caller_hash
from gateway.calls import Call
from gateway.errors import GatewayError
from gateway.lag import LoopLag
from gateway.lanes import Job, Lane
from gateway.metrics import Metrics
from gateway.packages import ServedModel
from gateway.pairing import pair
from gateway.recording import Recorder
from gateway.routing import Shadow
from gateway.tracing import trace_id
from preprocess.encoder import Encoded
from preprocess.observe import answered as answered_records
from preprocess.observe import unanswered as unanswered_records

log = logging.getLogger(__name__)


class Drop(StrEnum):
    """Why a copy was not sent."""

    NOT_LOADED = "not_loaded"  # no Triton serves the candidate
    FULL = "full"  # enough copies wait already
    GATEWAY_BUSY = "gateway_busy"  # the event loop is late, or half of the token budget is in use
    ENGINE_BUSY = "engine_busy"  # no engine was idle for as long as it could wait
    PACED = "paced"  # copies have had their share of engine or event loop
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Pace:
    """What copies may take.

    Attributes:
        engine_share: of each engine's time.
        texts_per_second: of this process's; one costs about 0.2 ms of the event loop.
        burst_seconds: how long an unused share is saved up.
        waiting: copies that wait at most.
        waiting_tokens: and their tokens; a single copy may have more.
        patience_seconds: how long a copy waits for an engine to idle.
        most_lag_seconds: of an event loop that still has time.
        look_seconds: between two looks while copies wait.
    """

    engine_share: float = 0.05
    texts_per_second: float = 250.0
    burst_seconds: float = 0.5
    waiting: int = 32
    waiting_tokens: int = 32_768
    patience_seconds: float = 0.5
    most_lag_seconds: float = 0.01
    look_seconds: float = 0.005


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that stable has answered, with what a copy of it needs."""

    call: Call
    model: ServedModel
    encoded: Encoded
    values: NDArray[np.float32]
    tokenise: float  # seconds
    seconds: float  # tokenise + wait + infer


@dataclass(slots=True)
class _Copy:
    """One copy that waits."""

    shadow: Shadow
    answered: Answered
    lanes: Mapping[str, Lane]
    timeout_seconds: float
    offered: float  # the event loop's clock, seconds

    @property
    def tokens(self) -> int:
        """Of all its texts, as stable saw them."""
        return sum(self.answered.encoded.tokens)


class Share:
    """A leaky bucket: who has overdrawn it waits until it has filled up again.

    Args:
        rate: units a second.
        burst: units that it holds at most.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = 0.0

    def open(self, now: float) -> bool:
        """Whether anything may be taken."""
        self._level = min(self._burst, self._level + self._rate * max(0.0, now - self._at))
        self._at = now
        return self._level > 0

    def take(self, units: float) -> None:
        """Takes units, if need be those of the future."""
        self._level -= units


class Shadows:
    """All copies of one process.

    Args:
        recorder: hears of each copy's attempt.
        metrics: counts copies and drops.
        budget: tokens of requests in flight, read here and never taken.
        pace: what copies may take.
    """

    def __init__(
        self,
        recorder: Recorder,
        metrics: Metrics,
        budget: TokenBudget,
        pace: Pace | None = None,
    ) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._budget = budget
        self._pace = pace or Pace()
        self._lag = LoopLag()
        self._waiting: deque[_Copy] = deque()
        self._tokens = 0
        self._engines: dict[str, Share] = {}  # by package
        texts = self._pace.texts_per_second
        self._texts = Share(texts, texts * self._pace.burst_seconds)
        self._tasks: dict[asyncio.Task[None], str] = {}  # and the package that each is for
        self._timer: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="shadow")
        self._closed = False

    def start(self) -> None:
        """Begins to watch the event loop; ``close`` ends it."""
        self._lag.start()

    async def close(self) -> None:
        """Drops what waits and gives up what is out."""
        self._closed = True
        self._lag.close()
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._drop(Drop.STOPPING)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def waiting(self) -> int:
        """Copies that wait."""
        return len(self._waiting)

    @property
    def out(self) -> int:
        """Copies that were sent and have no answer yet."""
        return len(self._tasks)

    def offer(
        self,
        shadow: Shadow,
        answered: Answered,
        lanes: Mapping[str, Lane],
        timeout_seconds: float,
    ) -> None:
        """Takes a copy of a request, if it is among the share to be copied and there is room.

        Args:
            shadow: who gets copies of this endpoint's requests.
            answered: the request and what its caller got.
            lanes: by package id.
            timeout_seconds: for the candidate, as for any caller of the endpoint.
        """
        if self._closed or not shadow.takes(answered.call.request_id):
            return
        try:
            self._take(_Copy(shadow, answered, lanes, timeout_seconds, monotonic()))
        except Exception:
            # The caller's answer is at hand and must reach it, whatever mistake is made here.
            log.exception("a bug: a copy was lost", extra={"request_id": answered.call.request_id})

    def _take(self, copy: _Copy) -> None:
        full = (
            len(self._waiting) >= self._pace.waiting
            or self._tokens + copy.tokens > self._pace.waiting_tokens
        )
        if self._waiting and full:
            self._metrics.shadow_dropped(copy.answered.call.endpoint, Drop.FULL)
            return
        self._waiting.append(copy)
        self._tokens += copy.tokens
        self._pump()

    def _pump(self) -> None:
        """Sends what may be sent now, drops what must be, and looks again soon if any waits."""
        while self._waiting:
            now = monotonic()
            copy = self._waiting[0]
            late = now >= copy.offered + self._pace.patience_seconds
            reason = self._obstacle(copy, now)
            if reason is None:
                self._send(self._pop())
            elif reason in (Drop.NOT_LOADED, Drop.GATEWAY_BUSY) or late:
                self._drop(reason)
            else:
                if self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(self._pace.look_seconds, self._look)
                return

    def _look(self) -> None:
        self._timer = None
        self._pump()

    def _obstacle(self, copy: _Copy, now: float) -> Drop | None:
        """What speaks against sending a copy now."""
        candidate = copy.lanes.get(copy.shadow.way.model.ref.package)
        if candidate is None or not candidate.serves:
            return Drop.NOT_LOADED
        if self._lag.seconds() > self._pace.most_lag_seconds or not self._budget.half_empty:
            return Drop.GATEWAY_BUSY
        stable = copy.lanes.get(copy.answered.model.ref.package)
        engines = sum(replica.instances for replica in candidate.replicas if replica.serves)
        package = candidate.model.ref.package
        out = sum(1 for other in self._tasks.values() if other == package)
        if out >= engines or candidate.queued_rows or (stable is not None and not _idles(stable)):
            return Drop.ENGINE_BUSY
        if not self._texts.open(now) or not self._share(package, engines).open(now):
            return Drop.PACED
        return None

    def _share(self, package: str, engines: int) -> Share:
        share = self._engines.get(package)
        if share is None:
            if len(self._engines) >= 64:  # packages of rollouts long gone
                self._engines.clear()
            rate = self._pace.engine_share * engines
            share = self._engines[package] = Share(rate, rate * self._pace.burst_seconds)
        return share

    def _send(self, copy: _Copy) -> None:
        package = copy.shadow.way.model.ref.package
        lane = copy.lanes[package]
        self._texts.take(len(copy.answered.encoded))
        # In stable's tokens they may be longer than the candidate's rows.
        longest = lane.model.buckets[-1]
        rows = [min(count, longest) for count in copy.answered.encoded.tokens]
        self._engines[package].take(lane.work_seconds(rows))
        self._metrics.shadow_sent(copy.answered.call.endpoint)
        task = asyncio.get_running_loop().create_task(self._run(copy, lane), name="shadow")
        self._tasks[task] = package
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not self._closed:
            self._pump()

    def _pop(self) -> _Copy:
        copy = self._waiting.popleft()
        self._tokens -= copy.tokens
        return copy

    def _drop(self, reason: Drop) -> None:
        self._metrics.shadow_dropped(self._pop().answered.call.endpoint, reason)

    async def _run(self, copy: _Copy, lane: Lane) -> None:
        """One copy's way: encode if need be, infer, compare, record. Ends in one event."""
        answered, model = copy.answered, lane.model
        attempt = _Attempt(copy, answered.encoded, answered.tokenise)
        status, texts, pairing = int(HTTPStatus.OK), None, None
        try:
            if not model.encodes_like(answered.model):
                await self._encode(attempt, model)
            deadline = monotonic() + copy.timeout_seconds
            attempt.job = lane.submit(attempt.encoded, answered.call.endpoint, deadline)
            values = await attempt.job.future
            texts = answered_records(attempt.encoded, model.task, values, model.manifest.labels)
            pairing = pair(answered.model, answered.values, model, values, answered.seconds)
        except GatewayError as error:
            status = int(error.status)
        except asyncio.CancelledError:
            if attempt.job is not None:
                lane.abandon(attempt.job)
            self._metrics.shadow_dropped(answered.call.endpoint, Drop.STOPPING)
            raise
        except Exception:
            # Whatever it is, the candidate met it and the caller did not.
            log.exception("a shadow failed", extra={"request_id": answered.call.request_id})
            status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        self._record(attempt, model, status, texts, pairing)

    async def _encode(self, attempt: "_Attempt", model: ServedModel) -> None:
        """The texts in the candidate's own tokens, off the event loop."""
        call = attempt.copy.answered.call
        start = monotonic()
        loop = asyncio.get_running_loop()
        attempt.encoded = await loop.run_in_executor(
            self._threads, model.encoder.encode, call.texts, call.pairs
        )
        attempt.tokenise = monotonic() - start

    def _record(
        self,
        attempt: "_Attempt",
        model: ServedModel,
        status: int,
        texts: list[TextRecord] | None,
        pairing: Pairing | None,
    ) -> None:
        answered, encoded, job = attempt.copy.answered, attempt.encoded, attempt.job
        if texts is None:
            texts = unanswered_records(encoded)
        wait, infer = (0.0, 0.0) if job is None else (job.wait, job.infer)
        call = answered.call
        event = PredictionEvent(
            request_id=call.request_id,
            time=call.received,
            endpoint=call.endpoint,
            version=model.ref.version,
            package=model.ref.package,
            arm=Arm.SHADOW,
            status=status,
            answered=False,
            latency=Latency(0.0, attempt.tokenise, wait, infer, attempt.tokenise + wait + infer),
            texts=texts,
            trace_id=trace_id(call.trace_parent),
            caller=caller_hash(call.endpoint, call.sticky_key),
            pairing=pairing,
            observations=call.observed or {},
            unk_words=unknown.words_of(call, model, encoded),
        )
        self._recorder.attempt(event)
        self._metrics.attempt_finished(event, len(texts), sum(encoded.tokens))


@dataclass(slots=True)
class _Attempt:
    """A copy that was sent, with what its event needs."""

    copy: _Copy
    encoded: Encoded
    tokenise: float
    job: Job | None = None


def _idles(lane: Lane) -> bool:
    """Whether nobody waits and an engine has nothing to do."""
    return not lane.queued_rows and any(r.idle for r in lane.replicas if r.serves)

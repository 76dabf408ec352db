"""Mirrors requests to a rollout's shadow, within spare capacity only.

Each request that stable has answered or failed at is offered here. Its mirrored request waits until
an instance is idle and this process is not busy; then it is sent (``mirrored.py``). Without spare
capacity, mirrored requests are dropped and counted by reason. No caller waits for one, and no
failure of one reaches a caller.

No more mirrored requests are in flight than the shadow has instances. All together get a fixed
share of the instances' time and of the event loop's, because a batch that has begun cannot be
stopped when a caller comes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic

from gateway.admission.token_budget import TokenBudget
from gateway.batching.batcher import Batcher
from gateway.batching.bulk import BulkShare
from gateway.batching.lag import LoopLag
from gateway.events.buffer import Recorder
from gateway.inference.attempt import AnsweredRequest
from gateway.inference.encoding import Encoding
from gateway.inference.own_code import OwnCode
from gateway.mirroring.kept_pairs import KeptPairs
from gateway.mirroring.mirrored import MirroredRequests
from gateway.routing.routes import Shadow
from gateway.telemetry.metrics import Metrics

_MOST_PACKAGES = 64  # with more, the others' rollouts have ended long ago


@dataclass(frozen=True, slots=True)
class MirrorLimits:
    """Limits of mirrored requests.

    Attributes:
        engine_share: share of each instance's time that they may use.
        texts_per_second: their texts in this process; each takes about 0.2 ms of event loop.
        burst_seconds: for how long an unused share accumulates.
        waiting: how many may wait.
        waiting_tokens: most tokens of all that wait; a single one may have more.
        longest_wait_seconds: how long one waits for an idle instance.
        most_lag_seconds: event loop lag above which they are dropped.
        look_seconds: time between two checks while some wait.
    """

    engine_share: float = 0.05
    texts_per_second: float = 250.0
    burst_seconds: float = 0.5
    waiting: int = 32
    waiting_tokens: int = 32_768
    longest_wait_seconds: float = 0.5
    most_lag_seconds: float = 0.01
    look_seconds: float = 0.005


class TokenBucket:
    """A token bucket that may be overdrawn: it is closed until its level is positive again."""

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
        """Takes units, below zero if need be."""
        self._level -= units


class EngineBuckets:
    """Token buckets of engine time, one for each package, counted for each of its instances."""

    def __init__(self, share: float, burst_seconds: float) -> None:
        self._share = share
        self._burst = share * burst_seconds
        self._of_one: dict[str, TokenBucket] = {}  # instance, by package

    def open(self, package: str, now: float) -> bool:
        """Whether a package's instances have time for a mirrored request."""
        return self._of(package).open(now)

    def take(self, package: str, seconds: float, instances: int) -> None:
        """Takes engine time from this many instances in equal parts."""
        self._of(package).take(seconds / instances)

    def _of(self, package: str) -> TokenBucket:
        share = self._of_one.get(package)
        if share is None:
            if len(self._of_one) >= _MOST_PACKAGES:
                self._of_one.clear()
            share = self._of_one[package] = TokenBucket(self._share, self._burst)
        return share


log = logging.getLogger(__name__)


class Drop(StrEnum):
    """Reasons for which a mirrored request is dropped."""

    NOT_LOADED = "not_loaded"  # no Triton serves the candidate
    FULL = "full"  # as many wait as may
    GATEWAY_BUSY = "gateway_busy"  # the event loop is late, or half of the token budget is in use
    ENGINE_BUSY = "engine_busy"  # no instance was idle for as long as it could wait
    PACED = "paced"  # their share of the instances or the event loop is used up
    STOPPING = "stopping"


@dataclass(slots=True)
class _MirrorJob:
    """One mirrored request that waits."""

    shadow: Shadow
    answered: AnsweredRequest
    batchers: Mapping[str, Batcher]
    timeout_seconds: float
    offered: float  # the event loop's clock, seconds

    @property
    def tokens(self) -> int:
        """Of all its texts, as stable saw them."""
        return sum(self.answered.encoded.tokens)


class Shadows:
    """The mirrored requests of one process."""

    def __init__(
        self,
        recorder: Recorder,
        metrics: Metrics,
        budget: TokenBudget,
        limits: MirrorLimits | None = None,
        *,
        pairs: KeptPairs | None = None,
        bulk: BulkShare | None = None,
        own: OwnCode | None = None,
        encoding: Encoding | None = None,
    ) -> None:
        self._mirrored = MirroredRequests(recorder, metrics, pairs, own, encoding)
        self._metrics = metrics
        self._budget = budget
        self._limits = limits = limits or MirrorLimits()
        self._lag = LoopLag()
        self._bulk = bulk or BulkShare()
        self._waiting: deque[_MirrorJob] = deque()
        self._tokens = 0
        self._engines = EngineBuckets(limits.engine_share, limits.burst_seconds)
        self._texts = TokenBucket(
            limits.texts_per_second, limits.texts_per_second * limits.burst_seconds
        )
        self._tasks: dict[asyncio.Task[None], str] = {}  # and the package that each is for
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        """Begins to watch the event loop; ``close`` ends it."""
        self._lag.start()

    async def close(self) -> None:
        """Drops the mirrored requests that wait and cancels those in flight."""
        self._closed = True
        self._bulk.yields = False
        self._lag.close()
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._drop(Drop.STOPPING)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._mirrored.close()

    @property
    def waiting(self) -> int:
        """Mirrored requests that wait."""
        return len(self._waiting)

    @property
    def out(self) -> int:
        """Mirrored requests in flight."""
        return len(self._tasks)

    def offer(
        self,
        shadow: Shadow,
        answered: AnsweredRequest,
        batchers: Mapping[str, Batcher],
        timeout_seconds: float,
    ) -> None:
        """Takes a request, if it belongs to the shadow's share and the queue is not full."""
        if self._closed or not shadow.takes(answered.call.request_id):
            return
        try:
            self._take(_MirrorJob(shadow, answered, batchers, timeout_seconds, monotonic()))
        except Exception:
            # The caller's answer must not be lost by a bug here.
            fields = {"request_id": answered.call.request_id}
            log.exception("a bug: a mirrored request was lost", extra=fields)

    def _take(self, mirrored: _MirrorJob) -> None:
        full = (
            len(self._waiting) >= self._limits.waiting
            or self._tokens + mirrored.tokens > self._limits.waiting_tokens
        )
        if self._waiting and full:
            self._metrics.shadow_dropped(mirrored.answered.call.endpoint, Drop.FULL)
            return
        self._waiting.append(mirrored)
        self._tokens += mirrored.tokens
        self._pump()

    def _pump(self) -> None:
        """Sends or drops what waits, and checks again soon if anything is left."""
        self._bulk.yields = bool(self._tasks)
        while self._waiting:
            now = monotonic()
            mirrored = self._waiting[0]
            late = now >= mirrored.offered + self._limits.longest_wait_seconds
            reason = self._obstacle(mirrored, now)
            if reason is None:
                self._send(self._pop())
            elif reason in (Drop.NOT_LOADED, Drop.GATEWAY_BUSY) or late:
                self._drop(reason)
            else:
                # The engine may be busy with bulk requests, which come after these.
                self._bulk.yields = self._bulk.yields or reason is Drop.ENGINE_BUSY
                if self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(self._limits.look_seconds, self._look)
                return

    def _look(self) -> None:
        self._timer = None
        self._pump()

    def _obstacle(self, mirrored: _MirrorJob, now: float) -> Drop | None:
        """The reason for not sending a mirrored request now; None to send it."""
        candidate = mirrored.batchers.get(mirrored.shadow.target.model.ref.package)
        if candidate is None or not candidate.serves:
            return Drop.NOT_LOADED
        if self._lag.seconds() > self._limits.most_lag_seconds or not self._budget.half_empty:
            return Drop.GATEWAY_BUSY
        stable = mirrored.batchers.get(mirrored.answered.model.ref.package)
        instances = _instances(candidate)
        package = candidate.model.ref.package
        out = sum(1 for other in self._tasks.values() if other == package)
        if out >= instances or candidate.queued_rows or (stable is not None and not _idles(stable)):
            return Drop.ENGINE_BUSY
        if not self._texts.open(now) or not self._engines.open(package, now):
            return Drop.PACED
        return None

    def _send(self, mirrored: _MirrorJob) -> None:
        package = mirrored.shadow.target.model.ref.package
        batcher = mirrored.batchers[package]
        self._texts.take(len(mirrored.answered.encoded))
        # Counted by stable's tokeniser, rows may be longer than the candidate takes.
        longest = batcher.model.buckets[-1]
        rows = [min(count, longest) for count in mirrored.answered.encoded.tokens]
        seconds = batcher.work_seconds(rows)
        if mirrored.answered.written:  # it has a row for as long as stable's text had one
            seconds = mirrored.answered.seconds
        self._engines.take(package, seconds, _instances(batcher))
        self._metrics.shadow_sent(mirrored.answered.call.endpoint)
        task = asyncio.get_running_loop().create_task(self._run(mirrored, batcher), name="shadow")
        self._tasks[task] = package
        self._bulk.yields = True
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not self._closed:
            self._pump()

    def _pop(self) -> _MirrorJob:
        mirrored = self._waiting.popleft()
        self._tokens -= mirrored.tokens
        return mirrored

    def _drop(self, reason: Drop) -> None:
        self._metrics.shadow_dropped(self._pop().answered.call.endpoint, reason)

    async def _run(self, mirrored: _MirrorJob, batcher: Batcher) -> None:
        try:
            await self._mirrored.run(
                mirrored.answered, mirrored.shadow.target, batcher, mirrored.timeout_seconds
            )
        except asyncio.CancelledError:
            self._metrics.shadow_dropped(mirrored.answered.call.endpoint, Drop.STOPPING)
            raise


def _idles(batcher: Batcher) -> bool:
    """Whether no text waits and an instance is idle."""
    return not batcher.queued_rows and any(r.idle for r in batcher.replicas if r.serves)


def _instances(batcher: Batcher) -> int:
    """Batches that the serving replicas run at once, all together."""
    return sum(replica.instances for replica in batcher.replicas if replica.serves)

"""The loaders' heartbeats as they are read, and the controller's own as it is written.

A loader writes its report again and again, with its own node's time in it. That clock may be wrong,
so that what counts is when a report was last seen to change here.

The controller's own heartbeat is due when a pass over all endpoints has ended, and only then: a
loop that hangs, or whose passes are cut short, is as silent as a controller that is away. One that
can't be written holds up no pass.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping

from contracts.controller import BEAT_SECONDS, ControllerBeat
from contracts.loading import LoaderReport
from registry.reconcile.release_claim import ReleaseClaim
from registry.stores.heartbeats import Heartbeats

log = logging.getLogger(__name__)

_CLOCK_SKEW_SECONDS = 60.0  # that a node's clock may be behind
# A Triton that restarts, or whose pod moves to another node, is expected back so long.
_BACK_SECONDS = 600.0


class HeartbeatTracker:
    """Remembers when each loader was last heard.

    After ``seconds`` of silence a loader is not counted on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._heard: dict[str, tuple[float, float]] = {}  # the report's own time, and ours
        self._seen: dict[str, tuple[str, float]] = {}  # the pool, and when its Triton answered last
        self._here: frozenset[str] = frozenset()  # whose Triton answers
        self._looked = 0.0

    def alive(
        self, reports: Iterable[LoaderReport], now: float, *, disconnected: bool = False
    ) -> tuple[LoaderReport, ...]:
        """Those of the reports whose loaders are not silent.

        While ``disconnected``, no report can reach us, and none of this time counts as silence, now
        or later.
        """
        told = tuple(reports)
        if disconnected:
            missed = now - self._looked
            self._heard = {
                loader: (at, heard + missed) for loader, (at, heard) in self._heard.items()
            }
        self._looked = now
        for new in (each for each in told if each.loader not in self._heard):
            self._seen.setdefault(new.loader, (new.pool, min(new.at, now)))
        self._heard = {report.loader: (report.at, self._heard_at(report, now)) for report in told}
        alive = tuple(
            report for report in told if now - self._heard[report.loader][1] <= self._seconds
        )
        here = {report.loader: (report.pool, now) for report in alive if not report.silent}
        self._here = frozenset(here)
        seen = self._seen | here
        self._seen = {name: each for name, each in seen.items() if now - each[1] <= _BACK_SECONDS}
        return alive

    def absent(self) -> Mapping[str, frozenset[str]]:
        """Loaders that were silent at the last look, or whose Triton was, and are expected back."""
        found: dict[str, set[str]] = {}
        for loader, (pool, _) in self._seen.items():
            if loader not in self._here:
                found.setdefault(pool, set()).add(loader)
        return {pool: frozenset(loaders) for pool, loaders in found.items()}

    def _heard_at(self, report: LoaderReport, now: float) -> float:
        known = self._heard.get(report.loader)
        if known is not None:
            return known[1] if known[0] == report.at else now
        # After a start, a report may be what a loader left that is gone for good.
        return now if now - report.at <= self._seconds + _CLOCK_SKEW_SECONDS else report.at


class HeartbeatWriter:
    """The one writer of the controller's heartbeat.

    If another release's is there instead, it writes no more and calls ``on_taken``. Over one that
    can't be read it writes nothing.
    """

    def __init__(
        self,
        store: Heartbeats,
        *,
        every_seconds: float = BEAT_SECONDS,
        now: Callable[[], float] = time.time,
        claim: ReleaseClaim | None = None,
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._claim = claim
        self._on_taken = on_taken
        self._every_seconds = every_seconds
        self._now = now
        self._instance = uuid.uuid4().hex
        self._count = 0
        self._passed = asyncio.Event()
        self._unattended: tuple[str, ...] = ()
        self._failing = False

    def pass_ended(self, unattended: Iterable[str]) -> None:
        """A pass over all endpoints has ended, which could not look after these."""
        self._unattended = tuple(sorted(unattended))
        self._passed.set()

    async def run(self) -> None:
        """Writes until it is cancelled, the first time after the first pass."""
        while True:
            await self._passed.wait()
            self._passed.clear()
            try:
                if self._claim is not None and (
                    taken := await asyncio.to_thread(self._claim.explain_conflict)
                ):
                    log.error("%s", taken)
                    self._on_taken()
                    return
                await self._write()
                self._failing = False
            except OSError as error:
                if not self._failing:
                    log.warning(
                        "the heartbeat can't be written; gateways will take candidates' callers "
                        "back: %s",
                        error,
                    )
                self._failing = True
            await asyncio.sleep(self._every_seconds)

    async def _write(self) -> None:
        self._count += 1
        beat = ControllerBeat(
            instance=self._instance,
            count=self._count,
            at=self._now(),
            release="" if self._claim is None else self._claim.mark,
            unattended=self._unattended,
        )
        await asyncio.to_thread(self._store.put, beat)

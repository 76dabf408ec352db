"""The conversions that run, one task each, few at a time.

It starts what the controller asks for, keeps each one's last message until
the controller has written it into a status, and ends what no endpoint wants any more. It never
decides whether to convert.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from contracts.endpoint import Phase
from registry import metrics
from registry.conversions.launcher import ConversionLauncher
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    ConversionRequest,
    PublishedPackage,
)

log = logging.getLogger(__name__)

State = ConversionProgress | PublishedPackage | ConversionFailure


class _RunningConversion(NamedTuple):
    """A conversion that runs, with the words for its version."""

    task: "asyncio.Task[None]"
    version: str
    tenant: str


class ConversionJobs:
    """Conversions by their options' digest.

    At most ``most`` run at a time, and of one tenant half of them (one at least): a start beyond
    that is refused. ``changed`` is set whenever one says something.
    """

    def __init__(self, launcher: ConversionLauncher, *, most: int, changed: asyncio.Event) -> None:
        self._launcher = launcher
        self._most = most
        self._changed = changed
        self._running: dict[str, _RunningConversion] = {}
        self._waiting: dict[str, None] = {}  # those refused a start, in order of asking
        self._states: dict[str, State] = {}

    @property
    def states(self) -> Mapping[str, State]:
        """Each conversion's last message."""
        return self._states

    @property
    def busy(self) -> bool:
        """Whether no more may start now."""
        return len(self._running) >= self._most

    def has_room(self, tenant: str) -> bool:
        """Whether another one of a tenant may start now."""
        of_tenant = sum(1 for each in self._running.values() if each.tenant == tenant)
        return not self.busy and of_tenant < (self._most + 1) // 2

    def waits_for(self, options: str, tenant: str) -> str:
        """What a conversion that has yet to start waits for; empty if it may start now.

        One that asks is counted as waiting until it starts or nobody wants it any more.
        """
        if options in self._states or self.has_room(tenant):
            self._waiting.pop(options, None)
            return ""
        self._waiting.setdefault(options)
        in_the_way = (each for each in self._running.values() if self.busy or each.tenant == tenant)
        running = ", ".join(each.version for each in in_the_way)
        before = list(self._waiting).index(options)
        return f"waits for the conversion of {running} to end" + (
            f"; {before} more waiting before it" if before else ""
        )

    def start(self, options: str, request: ConversionRequest, tenant: str = "") -> None:
        """Starts a conversion, unless it runs, has ended, or too many run already."""
        if options in self._states or not self.has_room(tenant):
            return
        self._waiting.pop(options, None)
        self._states[options] = ConversionProgress(phase=Phase.CONVERTING, message="starts")
        version = f"{request.model} version {request.version}"
        task = asyncio.create_task(self._run(options, request), name=f"convert {version}")
        self._running[options] = _RunningConversion(task, version, tenant)
        task.add_done_callback(lambda ended: self._end(options, ended))

    def forget(self, options: str) -> None:
        """Drops the last message of a conversion that has ended and is on record."""
        if options not in self._running:
            self._states.pop(options, None)

    def keep_only(self, wanted: Iterable[str]) -> None:
        """Ends the conversions that no endpoint wants any more."""
        kept = set(wanted)
        for options in self._waiting.keys() - kept:
            del self._waiting[options]
        for options in self._states.keys() - kept:
            running = self._running.get(options)
            if running is not None:
                log.info("the conversion of %s is not wanted any more", running.version)
                running.task.cancel()
            else:
                del self._states[options]

    async def close(self) -> None:
        """Ends all, and waits until their processes are gone."""
        tasks = [each.task for each in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, options: str, request: ConversionRequest) -> None:
        started = time.monotonic()

        def note(progress: ConversionProgress) -> None:
            self._states[options] = progress
            self._changed.set()

        try:
            result = await self._launcher.run(request, note)
        except OSError as error:
            result = ConversionFailure(
                reason=f"the conversion can't be started: {error}", by_version=False
            )
        seconds = time.monotonic() - started
        self._states[options] = result
        _count(result, seconds)
        log.info(
            "conversion of %s version %s ended",
            request.model,
            request.version,
            extra={"outcome": result.kind, "seconds": round(seconds, 2)},
        )

    def _end(self, options: str, task: "asyncio.Task[None]") -> None:
        """The task is over: a cancelled one leaves nothing, a broken one its error."""
        del self._running[options]
        if task.cancelled():
            self._states.pop(options, None)
        elif (error := task.exception()) is not None:
            log.error("%s broke", task.get_name(), exc_info=error)
            reason = f"the controller failed while it converted: {error!r}"
            self._states[options] = ConversionFailure(reason=reason, by_version=False)
        self._changed.set()


def _count(result: PublishedPackage | ConversionFailure, seconds: float) -> None:
    if isinstance(result, PublishedPackage):
        metrics.CONVERSIONS.labels("published").inc()
        metrics.CONVERSION_SECONDS.observe(seconds)
    else:
        metrics.CONVERSIONS.labels("version" if result.by_version else "environment").inc()

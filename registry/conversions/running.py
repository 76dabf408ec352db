"""The conversions that run, one task each, few at a time.

It starts what the controller asks for, keeps each one's last message until
the controller has written it into a status, and ends what no endpoint wants any more. It never
decides whether to convert.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
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


_STALE_SECONDS = 30.0  # an endpoint asks in each pass


class _Place(NamedTuple):
    """Of an endpoint that waits."""

    tenant: str
    asked_at: float


class ConversionJobs:
    """Conversions by their options' digest.

    At most ``most`` run at a time, and of one tenant half of them (one at least): a start beyond
    that is refused. Endpoints wait in the order in which they asked, whatever version each asks for
    by now. ``changed`` is set whenever one says something.
    """

    def __init__(self, launcher: ConversionLauncher, *, most: int, changed: asyncio.Event) -> None:
        self._launcher = launcher
        self._most = most
        self._changed = changed
        self._running: dict[str, _RunningConversion] = {}
        self._waiting: dict[str, _Place] = {}  # of endpoints, in the order of asking
        self._granted: dict[str, str] = {}  # tenants of what may start in this pass, by options
        self._states: dict[str, State] = {}

    @property
    def states(self) -> Mapping[str, State]:
        """Each conversion's last message."""
        return self._states

    @property
    def busy(self) -> bool:
        """Whether no more may start now."""
        return len(self._running) + len(self._granted) >= self._most

    def has_room(self, tenant: str) -> bool:
        """Whether another one of a tenant may start now."""
        tenants = [*(each.tenant for each in self._running.values()), *self._granted.values()]
        return not self.busy and tenants.count(tenant) < (self._most + 1) // 2

    def waits_for(self, endpoint: str, options: str, tenant: str) -> str:
        """What an endpoint's conversion that has yet to start waits for; empty if it may start now.

        The endpoint is counted as waiting until it may start, or asks for nothing: no ``options``.
        The first one with room may start. It has that room until ``end_pass``: it may
        not start after all, and must not hold up the others then.
        """
        if not options or options in self._states or options in self._granted:
            self._waiting.pop(endpoint, None)
            return ""
        self._waiting[endpoint] = _Place(tenant, time.monotonic())
        if self.has_room(tenant) and endpoint == self._find_first():
            self._granted[options] = self._waiting.pop(endpoint).tenant
            return ""
        in_the_way = (each for each in self._running.values() if self.busy or each.tenant == tenant)
        running = ", ".join(each.version for each in in_the_way)
        before = list(self._waiting).index(endpoint)
        said = f"waits for the conversion of {running} to end" if running else "waits for its turn"
        return said + (f"; {before} more waiting before it" if before else "")

    def _find_first(self) -> str:
        """The first that may start; one that has not asked for long holds up nobody."""
        since = time.monotonic() - _STALE_SECONDS
        return next(
            name
            for name, place in self._waiting.items()
            if place.asked_at >= since and self.has_room(place.tenant)
        )

    def start(self, options: str, request: ConversionRequest, tenant: str = "") -> None:
        """Starts a conversion, unless it runs, has ended, or too many run already."""
        self._granted.pop(options, None)
        of_tenant = sum(1 for each in self._running.values() if each.tenant == tenant)
        full = len(self._running) >= self._most or of_tenant >= (self._most + 1) // 2
        if options in self._states or full:
            return
        self._states[options] = ConversionProgress(phase=Phase.CONVERTING, message="starts")
        version = f"{request.model} version {request.version}"
        task = asyncio.create_task(self._run(options, request), name=f"convert {version}")
        self._running[options] = _RunningConversion(task, version, tenant)
        task.add_done_callback(lambda ended: self._end(options, ended))

    def forget(self, options: str) -> None:
        """Drops the last message of a conversion that has ended and is on record."""
        if options not in self._running:
            self._states.pop(options, None)

    def end_pass(self) -> None:
        """Takes back the room of those that did not start."""
        self._granted.clear()

    def keep_only(self, wanted: Mapping[str, str]) -> None:
        """Ends the conversions that no endpoint wants any more: options by endpoint."""
        kept = set(wanted.values())
        for endpoint in self._waiting.keys() - wanted.keys():
            del self._waiting[endpoint]
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

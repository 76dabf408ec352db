"""Runs the stack's processes: starts all at once, restarts what dies, stops them in order.

One task owns each process. Every process gets a session of its own, so that a Ctrl-C reaches only
``up`` and the supervisor decides the order of stopping. It signals processes that it started and
their descendants, by id, and never any other.
"""

import asyncio
import contextlib
import math
import os
import signal
import sys
import time
import uuid
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from contracts.backoff import Backoff
from headrace.errors import ServiceFailedError
from headrace.stack import logs, watchdog

Probe = Callable[[], Awaitable[bool]]

RETRIES = Backoff(0.2, 5.0)  # after deaths in a row
SETTLED_SECONDS = 30.0  # a process that ran longer has no failures behind it
_PROBE_EVERY_SECONDS = 0.1
_STUCK_EVERY_SECONDS = 5.0
_STUCK_TIMES = 3  # in a row: one slow answer on a busy machine ends nothing


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the stack.

    ``uses`` are stopped only after it has ended, so that it can finish what it has in hand. ``env``
    is its whole environment. ``stuck`` tells of one that was ready that it does nothing any more:
    it is ended and started again.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    ready: Probe
    uses: tuple[str, ...] = ()
    ready_within_seconds: float = 1800.0  # for a hang: one that ends is noticed at once
    say_every_seconds: float = 30.0  # that it is not ready yet
    stop_within_seconds: float = 10.0
    before_start: Callable[[], None] | None = None
    stuck: Probe | None = None
    stuck_every_seconds: float = _STUCK_EVERY_SECONDS


class StartObserver(Protocol):
    """Shows what the supervisor does."""

    def note_start(self, service: str) -> None:
        """A service is started for the first time."""

    def note_wait(self, service: str, seconds: float, said: str) -> None:
        """A service is not ready ``seconds`` after its start; ``said``: the end of its log."""

    def note_ready(self, service: str, seconds: float) -> None:
        """A service answers ``seconds`` after its start; also after a restart."""

    def note_death(self, service: str, how: str, retry_seconds: float) -> None:
        """A service ended by itself and will be started again."""

    def note_stop(self, service: str, seconds: float) -> None:
        """A service has ended as asked."""


@dataclass(slots=True)
class _RunningService:
    service: Service
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    process: Process | None = None
    failures: int = 0


class Supervisor:
    """Owns the processes of one stack; use as an async context manager, which stops them all."""

    def __init__(self, services: tuple[Service, ...], logs: Path, observer: StartObserver) -> None:
        """``logs``: folder, one file a service."""
        self._running = {service.name: _RunningService(service) for service in services}
        self._logs = logs
        self._observer = observer
        self._tasks: list[asyncio.Task[None]] = []
        self._log_keeper: asyncio.Task[None] | None = None
        self._watchdog: Process | None = None
        self._watchdog_keeper: asyncio.Task[None] | None = None
        self._killing = False
        self._mark = f"{uuid.uuid4().hex}/"  # what the marks of all services begin with

    async def __aenter__(self) -> "Supervisor":
        """Starts the watchdog; no service yet."""
        watchdog.adopt_orphans(adopt=True)
        await self._start_watchdog()
        self._watchdog_keeper = asyncio.create_task(self._keep_watchdog(), name="keep-watchdog")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stops every service, then the watchdog."""
        await self.stop()
        if self._watchdog_keeper is not None:
            self._watchdog_keeper.cancel()
            await asyncio.gather(self._watchdog_keeper, return_exceptions=True)
        if self._watchdog is not None:
            if self._watchdog.stdin is not None:
                self._watchdog.stdin.close()
            await self._watchdog.wait()
        watchdog.adopt_orphans(adopt=False)

    @property
    def pids(self) -> dict[str, int]:
        """Process id by service, of those that run now."""
        return {
            name: running.process.pid
            for name, running in self._running.items()
            if running.process is not None and running.process.returncode is None
        }

    async def start(self) -> None:
        """Starts all services and waits until each has been ready once.

        Raises:
            ServiceFailedError: one ended or was not ready in time, with the end of its log. The
                others still run; leaving the context stops them.
        """
        paths = [self._log(running.service) for running in self._running.values()]
        self._log_keeper = asyncio.create_task(logs.keep_bounded(paths), name="bound-logs")
        for running in self._running.values():
            task = asyncio.create_task(
                self._supervise(running), name=f"supervise-{running.service.name}"
            )
            self._tasks.append(task)
        ready = asyncio.create_task(self._all_ready(), name="all-ready")
        failed = asyncio.create_task(self.run(), name="first-failure")
        try:
            await asyncio.wait([ready, failed], return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
        finally:
            ready.cancel()
            failed.cancel()

    async def _all_ready(self) -> None:
        for running in self._running.values():
            await running.ready.wait()

    async def run(self) -> None:
        """Keeps the started services running until it is cancelled.

        Raises:
            ServiceFailedError: one can't be started again, because its program is gone.
        """
        if not self._tasks:
            return
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Stops every service in order: each ends before what it uses. Can be called again."""
        for running in self._running.values():
            running.stop.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._log_keeper is not None:
            self._log_keeper.cancel()
            await asyncio.gather(self._log_keeper, return_exceptions=True)

    def kill(self) -> None:
        """Ends every process at once, without order; for a second Ctrl-C."""
        self._killing = True
        for running in self._running.values():
            running.stop.set()
            if running.process is not None and running.process.returncode is None:
                _signal_group(running.process, signal.SIGKILL)

    async def _supervise(self, running: _RunningService) -> None:
        """The life of one service, from first start to its end."""
        try:
            while not running.stop.is_set():
                await self._run_once(running)
        finally:
            running.ended.set()

    async def _run_once(self, running: _RunningService) -> None:
        service = running.service
        started = time.monotonic()
        first = not running.ready.is_set()
        if first:
            self._observer.note_start(service.name)
        try:
            process = await self._spawn(running)
        except ServiceFailedError as error:
            if first or isinstance(error.__cause__, FileNotFoundError):
                raise
            # It ran before: what it lacks now, room on a disk for instance, may come back.
            await self._put_off(running, started, str(error))
            return
        stuck = late = False
        try:
            waiter = asyncio.create_task(process.wait())
            if await self._until_ready(running, waiter):
                self._observer.note_ready(service.name, time.monotonic() - started)
                running.ready.set()
                await _wait_for_either(
                    _wait_for(waiter), running.stop.wait(), _until_stuck(service)
                )
                stuck = not waiter.done()
            if running.stop.is_set():
                await self._wait_for_users(running)
                began = time.monotonic()
                await self._end(service, process, waiter)
                self._observer.note_stop(service.name, time.monotonic() - began)
                return
            late = not waiter.done()
            if late:
                await self._end(service, process, waiter)
        finally:
            _signal_group(process, signal.SIGKILL)  # what the service left behind in its group
            watchdog.end_orphans(f"{self._mark}{service.name}")
        if first and not running.ready.is_set():
            seconds = time.monotonic() - started
            how = (
                f"it lived and was not ready {seconds:.0f} s after its start: --start-within "
                "gives it longer"
                if late
                else f"{_how_it_ended(process)}, {seconds:.0f} s after its start"
            )
            raise ServiceFailedError(
                f"{service.name} did not start ({how}). Its log, {self._log(service)}, ends with:\n"
                f"{logs.tail(self._log(service))}"
            )
        how = "it was stuck, and was ended" if stuck else _how_it_ended(process)
        await self._put_off(running, started, how)

    async def _put_off(self, running: _RunningService, started: float, how: str) -> None:
        """Says how a run ended, and waits before the next one, the longer the more have failed."""
        running.failures = failures_after(running.failures, time.monotonic() - started)
        retry = RETRIES.after(running.failures)
        self._observer.note_death(running.service.name, how, retry)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(retry):
                await running.stop.wait()

    async def _spawn(self, running: _RunningService) -> Process:
        """Starts the process; raises ``ServiceFailedError``, whose cause is what went wrong."""
        service = running.service
        try:
            if service.before_start is not None:
                await asyncio.to_thread(service.before_start)
            with self._log(service).open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *service.argv,
                    stdin=DEVNULL,
                    stdout=log,
                    stderr=STDOUT,
                    env={**service.env, watchdog.MARK: f"{self._mark}{service.name}"},
                    cwd=service.cwd,
                    start_new_session=True,
                )
        except OSError as error:
            raise ServiceFailedError(f"{service.name} can't be started: {error}.") from error
        running.process = process
        return process

    async def _until_ready(self, running: _RunningService, waiter: "asyncio.Task[int]") -> bool:
        """Whether the service became ready; False when it ended, was stopped, or took too long.

        A restarted service has no time limit: what it waits for may be away.
        """
        service = running.service
        limit = service.ready_within_seconds if not running.ready.is_set() else math.inf
        began = said = time.monotonic()
        while not waiter.done() and not running.stop.is_set():
            if await service.ready():
                return True
            now = time.monotonic()
            if now - began > limit:
                return False
            if now - said > service.say_every_seconds:
                said = now
                last = logs.tail(self._log(service)).rpartition("\n")[2]
                self._observer.note_wait(service.name, now - began, last)
            await _wait_for_either(
                _wait_for(waiter), running.stop.wait(), asyncio.sleep(_PROBE_EVERY_SECONDS)
            )
        return False

    async def _wait_for_users(self, running: _RunningService) -> None:
        name = running.service.name
        for other in self._running.values():
            if name in other.service.uses:
                await other.ended.wait()

    async def _end(self, service: Service, process: Process, waiter: "asyncio.Task[int]") -> None:
        if not waiter.done():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL if self._killing else signal.SIGTERM)
            await asyncio.wait([waiter], timeout=service.stop_within_seconds)
        _signal_group(process, signal.SIGKILL)
        await waiter

    async def _start_watchdog(self) -> None:
        self._watchdog = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", watchdog.__file__, self._mark,
            stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True,
        )  # fmt: skip

    async def _keep_watchdog(self) -> None:
        """Starts the watchdog again if something ended it: without one a kill leaves orphans."""
        while self._watchdog is not None:
            await self._watchdog.wait()
            await asyncio.sleep(RETRIES.first)
            await self._start_watchdog()

    def _log(self, service: Service) -> Path:
        return self._logs / f"{service.name}.log"


def failures_after(failures: int, ran_seconds: float) -> int:
    """The count of deaths in a row after one more, the last run having lasted ``ran_seconds``."""
    return 1 if ran_seconds >= SETTLED_SECONDS else failures + 1


def _signal_group(process: Process, how: signal.Signals) -> None:
    # The group outlives its leader for as long as it has members, and its number can't be
    # given to another process meanwhile; once it is empty there is nobody to signal.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, how)


def _how_it_ended(process: Process) -> str:
    code = process.returncode
    if code is None:
        return "it still runs"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"


async def _until_stuck(service: Service) -> None:
    """Returns once the service was found stuck several times in a row, if ever."""
    times = 0
    while times < _STUCK_TIMES:
        await asyncio.sleep(service.stuck_every_seconds)
        times = times + 1 if service.stuck is not None and await service.stuck() else 0


async def _wait_for(task: "asyncio.Task[int]") -> None:
    await asyncio.wait([task])


async def _wait_for_either(*waits: Awaitable[object]) -> None:
    """Waits until one of them is done, and cancels the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

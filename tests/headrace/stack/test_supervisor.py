"""The supervisor over real processes: small Python programs that act as services."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from chaos.processes import descendants
from loop_clocks import ShiftedLoop, runs_on

from headrace.errors import ServiceFailedError
from headrace.stack.supervisor import (
    SETTLED_SECONDS,
    Probe,
    Service,
    Supervisor,
    failures_after,
)

pytestmark = pytest.mark.slow

T = TypeVar("T")

# Touches the file it is given, then waits for SIGTERM and says so in a second file.
SERVICE = """
import pathlib, signal, sys
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
def end(*_):
    with (folder / "ends").open("a") as file: file.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
(folder / name).touch()
while True: signal.pause()
"""
STUBBORN = SERVICE.replace("sys.exit(0)", "pass")
PARENT = """
import pathlib, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"],
                         start_new_session=True)
folder = pathlib.Path(sys.argv[1])
(folder / "child").write_text(str(child.pid))
(folder / sys.argv[2]).touch()
signal.pause()
"""


# A supervisor of one service, in a process of its own that can be killed.
SUPERVISED = """
import asyncio, os, pathlib, sys
from headrace.stack.supervisor import Service, Supervisor
folder, program = pathlib.Path(sys.argv[1]), sys.argv[2]
class Silent:
    def note_start(self, service): pass
    def note_wait(self, service, seconds, said): pass
    def note_ready(self, service, seconds): pass
    def note_death(self, service, how, retry_seconds): pass
    def note_stop(self, service, seconds): pass
async def ready():
    return (folder / "one").exists()
async def main():
    argv = (sys.executable, "-S", "-c", program, str(folder), "one")
    one = Service("one", argv, {"PATH": os.defpath}, folder, ready)
    async with Supervisor((one,), folder, Silent()) as supervisor:
        await supervisor.start()
        print(supervisor.pids["one"], flush=True)
        await supervisor.run()
asyncio.run(main())
"""


class Seen:
    """An observer that remembers, and can be awaited."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self._changed = asyncio.Event()

    def note_start(self, service: str) -> None:
        self._add("starting", service)

    def note_wait(self, service: str, seconds: float, said: str) -> None:
        self._add(f"waiting {seconds:.0f} s: {said}", service)

    def note_ready(self, service: str, seconds: float) -> None:
        self._add("ready", service)

    def note_death(self, service: str, how: str, retry_seconds: float) -> None:
        self._add("died", service)

    def note_stop(self, service: str, seconds: float) -> None:
        self._add("stopped", service)

    def _add(self, what: str, service: str) -> None:
        self.events.append((what, service))
        self._changed.set()

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not check():
                await self._changed.wait()
                self._changed.clear()


def exists(path: Path) -> Probe:
    async def probe() -> bool:
        return await asyncio.to_thread(path.exists)

    return probe


async def at_once() -> bool:
    return True


async def never() -> bool:
    return False


def service(
    folder: Path,
    name: str,
    *,
    program: str = SERVICE,
    ready: Probe | None = None,
    stuck: Probe | None = None,
    uses: tuple[str, ...] = (),
    ready_within: float = 60,
    stop_within: float = 30,
) -> Service:
    return Service(
        name=name,
        argv=(sys.executable, "-S", "-c", program, str(folder), name),
        env={"PATH": os.defpath},
        cwd=folder,
        ready=ready or exists(folder / name),
        uses=uses,
        ready_within_seconds=ready_within,
        stop_within_seconds=stop_within,
        stuck=stuck,
        stuck_every_seconds=0.01,
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def watchdog_of(supervisor: int) -> int | None:
    """The process id of a supervisor's watchdog, if it runs."""
    for pid in descendants(supervisor):
        with contextlib.suppress(OSError):
            if b"watchdog.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def until(what: str, check: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + 60
    while not (found := check()):
        assert time.monotonic() < deadline, f"not within a minute: {what}"
        time.sleep(0.02)
    return found


async def test_services_start_side_by_side_and_all_are_awaited(tmp_path: Path) -> None:
    seen = Seen()
    second = tmp_path / "second"
    services = (service(tmp_path, "first", ready=exists(second)), service(tmp_path, "second"))
    async with Supervisor(services, tmp_path, seen) as supervisor:
        await supervisor.start()
    assert seen.events[:2] == [("starting", "first"), ("starting", "second")]
    assert set(seen.events[2:4]) == {("ready", "first"), ("ready", "second")}


async def test_leaving_stops_everything_each_before_what_it_uses(tmp_path: Path) -> None:
    services = (
        service(tmp_path, "store"),
        service(tmp_path, "engine"),
        service(tmp_path, "front", uses=("store", "engine")),
    )
    async with Supervisor(services, tmp_path, Seen()) as supervisor:
        await supervisor.start()
        pids = supervisor.pids
        assert set(pids) == {"store", "engine", "front"}
    assert (tmp_path / "ends").read_text().split()[0] == "front"
    assert not any(alive(pid) for pid in pids.values())


async def test_a_killed_service_is_started_again(tmp_path: Path) -> None:
    seen = Seen()
    async with Supervisor((service(tmp_path, "one"),), tmp_path, seen) as supervisor:
        await supervisor.start()
        dead = supervisor.pids["one"]
        os.kill(dead, signal.SIGKILL)
        await seen.until(lambda: seen.events.count(("ready", "one")) == 2)
        assert supervisor.pids["one"] != dead
    assert ("died", "one") in seen.events


async def test_a_service_that_lacks_room_at_its_restart_is_tried_again_until_it_has_it(
    tmp_path: Path,
) -> None:
    full = tmp_path / "full"
    tries = 0

    def prepare() -> None:
        nonlocal tries
        tries += 1
        if full.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    seen = Seen()
    one = replace(service(tmp_path, "one"), before_start=prepare)
    async with Supervisor((one,), tmp_path, seen) as supervisor:
        await supervisor.start()
        full.touch()
        first = supervisor.pids["one"]
        os.kill(first, signal.SIGKILL)
        await seen.until(lambda: seen.events.count(("died", "one")) >= 3)
        assert tries >= 3
        full.unlink()
        await seen.until(lambda: seen.events.count(("ready", "one")) == 2)
        assert supervisor.pids["one"] != first


async def test_a_service_that_lacks_room_at_its_first_start_fails_the_start(
    tmp_path: Path,
) -> None:
    def prepare() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    one = replace(service(tmp_path, "one"), before_start=prepare)
    async with Supervisor((one,), tmp_path, Seen()) as supervisor:
        with pytest.raises(ServiceFailedError, match="No space left"):
            await supervisor.start()


async def test_a_service_that_is_stuck_is_ended_and_started_again(tmp_path: Path) -> None:
    seen = Seen()
    answers = iter([True, True, False, True, True, True])

    async def stuck() -> bool:
        return next(answers, False)

    async with Supervisor((service(tmp_path, "one", stuck=stuck),), tmp_path, seen) as supervisor:
        await supervisor.start()
        dead = supervisor.pids["one"]
        await seen.until(lambda: seen.events.count(("ready", "one")) == 2)
        assert supervisor.pids["one"] != dead
        assert next(answers, None) is None  # twice in a row was not enough
    assert seen.events.count(("died", "one")) == 1


async def test_a_service_that_ends_while_starting_fails_the_start_with_its_last_words(
    tmp_path: Path,
) -> None:
    broken = service(tmp_path, "broken", program="raise SystemExit('no such flag')", ready=never)
    fine = service(tmp_path, "fine")
    async with Supervisor((fine, broken), tmp_path, Seen()) as supervisor:
        with pytest.raises(ServiceFailedError, match="no such flag") as caught:
            await supervisor.start()
        pids = supervisor.pids
    assert "broken.log" in caught.value.message
    assert not any(alive(pid) for pid in pids.values())


async def test_a_service_that_is_not_ready_in_time_fails_the_start(tmp_path: Path) -> None:
    slow = service(tmp_path, "slow", ready=never, ready_within=0.2)
    told = r"slow did not start \(it lived and was not ready .*--start-within"
    with pytest.raises(ServiceFailedError, match=told):
        async with Supervisor((slow,), tmp_path, Seen()) as supervisor:
            await supervisor.start()


async def test_a_service_that_takes_long_is_waited_for_and_what_it_says_is_told(
    tmp_path: Path,
) -> None:
    seen = Seen()
    program = "print('migrating', flush=True)\n" + SERVICE
    slow = service(tmp_path, "slow", program=program, ready=exists(tmp_path / "go"))
    slow = replace(slow, say_every_seconds=0.05)
    async with Supervisor((slow,), tmp_path, seen) as running:
        starting = asyncio.create_task(running.start())
        await seen.until(lambda: any(what.endswith("s: migrating") for what, _ in seen.events))
        (tmp_path / "go").touch()
        await starting
    assert ("ready", "slow") in seen.events


async def test_a_program_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    gone = Service("gone", ("/no/such/program",), {}, tmp_path, at_once)
    with pytest.raises(ServiceFailedError, match="gone can't be started"):
        async with Supervisor((gone,), tmp_path, Seen()) as supervisor:
            await supervisor.start()


@runs_on(ShiftedLoop)
async def test_one_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    asked, loop = exists(tmp_path / "ends"), asyncio.get_running_loop()
    assert isinstance(loop, ShiftedLoop)

    async def let_its_time_pass() -> None:
        while not await asked():  # noqa: ASYNC110 - a file says nothing
            await asyncio.sleep(0.01)
        loop.shift_seconds += 600

    stubborn = service(tmp_path, "stubborn", program=STUBBORN, stop_within=600)
    async with Supervisor((stubborn,), tmp_path, Seen()) as supervisor:
        await supervisor.start()
        pid = supervisor.pids["stubborn"]
        passing = asyncio.create_task(let_its_time_pass())
    await passing
    assert not alive(pid)


async def test_kill_waits_for_nobody(tmp_path: Path) -> None:
    stubborn = service(tmp_path, "stubborn", program=STUBBORN, stop_within=600)
    async with Supervisor((stubborn,), tmp_path, Seen()) as supervisor:
        await supervisor.start()
        pid = supervisor.pids["stubborn"]
        supervisor.kill()
    assert not (tmp_path / "ends").exists()
    assert not alive(pid)


async def test_what_a_killed_service_left_in_another_session_is_ended_too(tmp_path: Path) -> None:
    seen = Seen()
    parent = service(tmp_path, "parent", program=PARENT)
    async with Supervisor((parent,), tmp_path, seen) as supervisor:
        await supervisor.start()
        child = int((tmp_path / "child").read_text())
        assert alive(child)
        os.kill(supervisor.pids["parent"], signal.SIGKILL)
        await seen.until(lambda: ("died", "parent") in seen.events)
        assert not alive(child)


def test_after_its_watchdog_was_killed_a_killed_supervisor_still_leaves_nothing(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-P", "-c", SUPERVISED, str(tmp_path), SERVICE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        try:
            first = until("a watchdog", lambda: watchdog_of(supervisor.pid))
            os.kill(first, signal.SIGKILL)
            until("another watchdog", lambda: watchdog_of(supervisor.pid) not in {None, first})
        finally:
            supervisor.kill()
    try:
        until("the service has ended", lambda: not alive(pid))
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


async def test_a_process_that_it_did_not_start_is_left_alone(tmp_path: Path) -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", "import signal; signal.pause()"
    )
    try:
        async with Supervisor((service(tmp_path, "one"),), tmp_path, Seen()) as supervisor:
            await supervisor.start()
        assert other.returncode is None
        assert alive(other.pid)
    finally:
        other.kill()
        await other.wait()


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    pids: dict[str, int] = {}
    runs = asyncio.Event()

    async def seen_but_never_ready() -> bool:
        if all([await asyncio.to_thread((tmp_path / name).exists) for name in ("one", "two")]):
            runs.set()
        return False

    one = service(tmp_path, "one", ready=seen_but_never_ready)
    two = service(tmp_path, "two")

    async def begin() -> None:
        async with Supervisor((one, two), tmp_path, Seen()) as supervisor:
            try:
                await supervisor.start()
            finally:
                pids.update(supervisor.pids)

    task = asyncio.create_task(begin())
    await asyncio.wait_for(runs.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(pids) == {"one", "two"}
    assert not any(alive(pid) for pid in pids.values())


def test_a_process_that_ran_long_begins_again_at_the_first_wait() -> None:
    assert failures_after(7, SETTLED_SECONDS) == 1
    assert failures_after(7, SETTLED_SECONDS - 0.1) == 8

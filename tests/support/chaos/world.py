"""The stack that faults strike: its processes, its home on a file system of its own, its store.

What a fault needs to know of the machine is here, and nothing of any fault.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
from running_stack import RunningStack
from sick_triton import Ward

from chaos.processes import descendants
from chaos.schedule import UP
from contracts.endpoint import ModelEndpoint, WaitsFor
from headrace.commands import status
from headrace.stack.settings import LOADER
from headrace.stack.state import GatewayRecord, Home
from registry.stores.endpoints import FileEndpointStore

GATEWAYS = 2
TRITONS = 2
DISK_BYTES = 12 << 30  # sparse: what is not written takes no room
ASK_SECONDS = 10.0
GONE = frozenset({psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})
STILL = GONE | {psutil.STATUS_STOPPED}
STUB = "stub"
WATCHDOG = "watchdog"
_STUB_PROGRAM = "triton_python_backend_stub"


class NotHereError(Exception):
    """What a fault wants to strike is not there at the moment."""


@dataclass
class World:
    """One stack, and where each of its parts is.

    Attributes:
        stack: ``headrace up``, started anew by ``restart`` and ``start``.
        services: names of all its processes.
        gateways: where they listen.
        tritons: service -> URL of its HTTP interface.
        ports: service -> the port that others reach it at.
        disk: mount point of the file system that holds the home; None where none could be made.
        store: id of the process of the package store; None where packages lie in the home.
        wards: service -> what makes a Triton sick, of those behind a proxy.
        pools: service -> the pool, of every Triton.
    """

    stack: RunningStack
    services: frozenset[str]
    gateways: tuple[GatewayRecord, ...]
    tritons: dict[str, str]
    ports: dict[str, int]
    disk: Path | None = None
    store: Callable[[], int] | None = None
    wards: Mapping[str, Ward] = field(default_factory=dict)
    pools: Mapping[str, str] = field(default_factory=dict)
    starts: int = field(default=1)

    @property
    def home(self) -> Path:
        """The stack's home."""
        return self.stack.home

    def pids(self) -> dict[str, int]:
        """Service -> process id, of those that run as the stack says."""
        record = self.stack.record()
        return {} if record is None else dict(record.services)

    def pid(self, target: str) -> int:
        """The process that a fault's target means now.

        Raises:
            NotHereError: there is none.
        """
        if target == UP:
            return self.stack.process.pid
        if target == STUB:
            stubs = descendants(self.stack.process.pid, _STUB_PROGRAM)
            if not stubs:
                raise NotHereError("no stub runs")
            return stubs[0]
        if target == WATCHDOG:
            return self._watchdog()
        try:
            return self.pids()[target]
        except KeyError:
            raise NotHereError(f"{target} does not run") from None

    def told(self) -> dict[str, Any]:
        """What ``headrace status --json`` says now."""
        return status.document(Home(self.home), None)

    def signal(self, target: str, number: signal.Signals) -> int:
        """Signals a target's process; returns its id; raises ``NotHereError``."""
        pid = self.pid(target)
        signal_process(pid, number)
        return pid

    def endpoints(self) -> list[ModelEndpoint]:
        """As they are stored now."""
        return list(FileEndpointStore(self.home / "endpoints").list())

    def only_there(self, triton: str) -> frozenset[str]:
        """Endpoints that no other Triton serves."""
        pool = self.pools[triton]
        if list(self.pools.values()).count(pool) > 1:
            return frozenset()
        return frozenset(each.name for each in self.endpoints() if each.status.pool == pool)

    def loader(self, triton: str) -> str:
        """The name by which people read of a Triton."""
        return triton.replace("triton", LOADER)

    def start(self) -> None:
        """``headrace up`` again on the same home, after whatever ended the last one."""
        self.starts += 1
        self.stack.start()

    def end(self) -> None:
        """Ends a stack that does not come back, whatever state it is in."""
        process = self.stack.process
        for pid in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(NotHereError):
                signal_process(pid, signal.SIGCONT)
        try:
            self.stack.stop()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            time.sleep(ASK_SECONDS)  # for the watchdog, which ends the rest

    def not_whole(self) -> str:
        """What is not as it should be, in a few words; empty where all processes serve."""
        if self.stack.process.poll() is not None:
            return "headrace up has ended"
        pids = self.pids()
        if lacking := sorted(self.services - pids.keys()):
            return f"not running: {', '.join(lacking)}"
        if dead := sorted(name for name, pid in pids.items() if _status(pid) in STILL):
            return f"dead or stopped: {', '.join(dead)}"
        for check in (self._gateways, self._mlflow, self._held, self._in_service):
            if said := check():
                return said
        return ""

    def _gateways(self) -> str:
        endpoints = self.endpoints()
        for gateway in self.gateways:
            for endpoint in endpoints:
                if endpoint.status.stable is None:
                    continue
                url = f"{gateway.url}/endpoints/{endpoint.name}"
                try:
                    answer = httpx.post(url, json={"inputs": "fine"}, timeout=ASK_SECONDS)
                except httpx.HTTPError as error:
                    return f"{gateway.name} does not answer: {error!r}"
                if answer.status_code != httpx.codes.OK:
                    return f"{gateway.name} says {answer.status_code} for {endpoint.name}"
        return ""

    def _mlflow(self) -> str:
        url = f"{self.stack.mlflow}/api/2.0/mlflow/registered-models/search?max_results=1"
        try:
            answer = httpx.get(url, timeout=ASK_SECONDS)
        except httpx.HTTPError as error:
            return f"MLflow does not answer: {error!r}"
        return "" if answer.status_code == httpx.codes.OK else f"MLflow says {answer.status_code}"

    def _held(self) -> str:
        """Every Triton holds what every gateway may send it."""
        wanted = {
            (route.ref.triton_model, f"{endpoint.name} version {route.ref.version}", pool)
            for endpoint in self.endpoints()
            for route in endpoint.status.routes
            for pool in (endpoint.status.pool,)
        }
        for name, url in self.tritons.items():
            for model, version, pool in wanted:
                if self.pools.get(name, pool) != pool:
                    continue
                try:
                    answer = httpx.get(f"{url}/v2/models/{model}/ready", timeout=ASK_SECONDS)
                except httpx.HTTPError as error:
                    return f"{name} does not answer: {error!r}"
                if answer.status_code != httpx.codes.OK:
                    return f"{name} does not hold {version}"
        return ""

    def _in_service(self) -> str:
        """No Triton is out of service, or called sick, where that is what is struck."""
        for endpoint in self.endpoints() if self.wards else ():
            status = endpoint.status
            said = [wait.what for wait in status.waits if wait.cause is WaitsFor.SICK_TRITON]
            if said or status.cordoned:
                return f"{endpoint.name}: {'; '.join(said)} {status.cordoned}"
        return ""

    def _watchdog(self) -> int:
        for pid in descendants(self.stack.process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(word.endswith("watchdog.py") for word in psutil.Process(pid).cmdline()):
                    return pid
        raise NotHereError("there is no watchdog")


def recounted(world: World, since: float) -> str:
    """What ``headrace recount`` finds wrong of all that was published after ``since``; or nothing.

    Args:
        world: the stack, which answers.
        since: unix seconds; 0 for all.
    """
    begin = datetime.fromtimestamp(since, UTC).isoformat()
    # Of two hours of requests; a record of them is not to be lost because a machine is busy.
    asked = ("recount", "--from", begin, "--to", "now", "--json")
    done = world.stack.command(*asked, seconds=1800.0)
    return "" if done.returncode == 0 else f"{done.stdout[-2000:]} {done.stderr[-1000:]}"


def signal_process(pid: int, number: signal.Signals) -> None:
    """Signals a process; raises ``NotHereError`` where it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        raise NotHereError(f"process {pid} is gone") from None


def wait_until(check: Callable[[], bool], seconds: float, every: float = 0.1) -> bool:
    """Whether something became true in time."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    return _status(pid) in GONE


def _status(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


@contextlib.contextmanager
def own_disk(folder: Path) -> Iterator[Path | None]:
    """A file system of its own for a home, that can be filled; None where we may not mount one."""
    image, mount = folder / "disk.img", folder / "disk"
    mount.mkdir()
    tools = shutil.which("mkfs.ext4") and shutil.which("mount")
    if os.geteuid() != 0 or not tools:
        yield None
        return
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    made = _ran("mkfs.ext4", "-q", "-m", "0", str(image))
    if not made or not _ran("mount", "-o", "loop", str(image), str(mount)):
        image.unlink()
        yield None
        return
    try:
        yield mount
    finally:
        _ran("umount", "--lazy", str(mount))


def _ran(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, timeout=120, check=False).returncode == 0

"""``python -P -m bench.servers``: processor time a request under several HTTP servers.

Each server runs the same application on one core: an echo, which shows what the server itself
takes, and a gateway with an echo in place of a Triton. Callers on the other core send the requests
of ``bench.core``, each its next one when the last is answered. The servers take turns of some tenth
of a second, so that all get their share of what else the machine does. granian and hypercorn come
from a lock of their own (``locks/peers-servers.txt``); all else is this environment's.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import psutil
import uvloop

from bench import corpus, machine
from bench.core.subject import TOKENS, request
from bench.peers import environments
from bench.peers.started import started
from bench.processes import free_port
from bench.servers import applications
from bench.wire import Connection

CALLERS = 64
_TEXTS = 256
_LONGEST_SECONDS = 30.0  # of a turn
_WARM_UP_TURNS = 5
_MOST_REFUSED = 50  # turns in a row, after which something else is wrong
APPLICATIONS = ("ECHO", "GATEWAY")
OWN = "uvicorn, the gateway's connections"
SERVERS = (OWN, "uvicorn, ASGI", "granian, ASGI", "granian, RSGI", "hypercorn, ASGI")


def command(server: str, application: str, port: int) -> list[str]:
    """How a server is started; one worker, uvloop, no access log."""
    python = [sys.executable, "-P", "-m"]
    target = f"{applications.__name__}:{application}"
    name, _, interface = server.partition(", ")
    if name == "uvicorn":
        own = applications.OWN if server == OWN else interface
        return [*python, applications.__name__, application, own, str(port)]
    if name == "granian":
        interface = {"ASGI": "asginl", "RSGI": "rsgi"}[interface]
        return [
            *python, "granian", "--interface", interface, "--port", str(port), "--http", "1",
            "--no-ws", "--loop", "uvloop", "--workers", "1", "--log-level", "warning", target,
        ]  # fmt: skip
    return [
        *python, "hypercorn", "--bind", f"127.0.0.1:{port}", "--worker-class", "uvloop",
        "--workers", "1", target,
    ]  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """Microseconds of processor time a request: of all threads, and of the busiest alone."""

    all: float
    busiest: float


Seconds = Mapping[tuple[int, int], float]  # processor time by process and thread


def turn(before: Seconds, after: Seconds, requests: int) -> Turn:
    """What so many requests took between two readings."""
    taken = [seconds - before.get(thread, 0.0) for thread, seconds in after.items()]
    return Turn(1e6 * sum(taken) / requests, 1e6 * max(taken) / requests)


def table(found: Mapping[str, Sequence[Turn]]) -> str:
    """Medians, tenths and ratios to the first server within a turn, in markdown."""
    first = next(iter(found.values()))
    lines = [
        "| microseconds a request | median | a tenth of turns | busiest thread | to the first, "
        "quartiles |\n" + "|---" * 5 + "|",
    ]
    for name, turns in found.items():
        ratios = [own.all / its.all for own, its in zip(turns, first, strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        tenth = quantiles([each.all for each in turns], n=10)[0]
        lines.append(
            f"| {name} | {median(each.all for each in turns):.1f} | {tenth:.1f} "
            f"| {median(each.busiest for each in turns):.1f} "
            f"| {middle:.2f} ({low:.2f} to {high:.2f}) |"
        )
    return "\n".join(lines)


def seconds_of(pid: int) -> Seconds:
    """Processor time of every thread of a process and its children, by the kernel's own clock."""
    leader = psutil.Process(pid)
    found = {}
    for process in (leader, *leader.children(recursive=True)):
        for path in Path(f"/proc/{process.pid}/task").iterdir():
            spent = (path / "schedstat").read_text(encoding="ascii").split()[0]
            found[process.pid, int(path.name)] = int(spent) / 1e9
    return found


class _Callers:
    """Connections to one server, on the running loop."""

    def __init__(self, port: int, payloads: Sequence[bytes]) -> None:
        self._port = port
        self._payloads = payloads
        self._connections: list[Connection] = []
        self._sent = self._good = self._busy = 0
        self._until = 0.0
        self._finished = asyncio.Event()

    async def connect(self) -> None:
        """Opens those that are not open: servers end what is idle for long."""
        loop = asyncio.get_running_loop()
        self._connections = [each for each in self._connections if each.open]
        while len(self._connections) < CALLERS:
            _, connection = await loop.create_connection(
                lambda: Connection(self._answered, _lost), "127.0.0.1", self._port
            )
            self._connections.append(connection)

    async def ask(self, seconds: float) -> int:
        """Asks for so long; gives the requests, or 0 if not all were answered with 200."""
        self._good, self._busy = 0, len(self._connections)
        self._until = time.monotonic() + seconds
        self._finished.clear()
        sent = self._sent
        for each in self._connections:
            self._send(each)
        await asyncio.wait_for(self._finished.wait(), _LONGEST_SECONDS)
        return self._good if self._good == self._sent - sent else 0

    def close(self) -> None:
        """Ends them."""
        for each in self._connections:
            each.close()

    def _send(self, connection: Connection) -> None:
        connection.send(self._payloads[self._sent % len(self._payloads)], 0.0, self._sent)
        self._sent += 1

    def _answered(self, connection: Connection, status: int) -> None:
        self._good += status == 200
        if connection.open and time.monotonic() < self._until:
            self._send(connection)
            return
        self._busy -= 1
        if self._busy == 0:
            self._finished.set()


def _lost(connection: Connection) -> None:
    """Nothing: its request counts as not answered, and it is opened anew."""


async def _measure(
    ports: Mapping[str, int], pids: Mapping[str, int], turns: int, seconds: float
) -> dict[str, list[Turn]]:
    """The servers in turns, first to last and then last to first.

    A turn in which the gateway refuses anything, as the machine is too busy, is done again.

    Raises:
        RuntimeError: that happened too often.
    """
    payloads = [request(body) for body in corpus.bodies(corpus.of_length(TOKENS, _TEXTS))]
    everybody = {name: _Callers(port, payloads) for name, port in ports.items()}
    found: dict[str, list[Turn]] = {name: [] for name in ports}
    for number in range(-_WARM_UP_TURNS, turns):
        for name in list(ports) if number % 2 == 0 else reversed(list(ports)):
            for _ in range(_MOST_REFUSED):
                await everybody[name].connect()
                before = seconds_of(pids[name])
                if asked := await everybody[name].ask(seconds):
                    break
            else:
                raise RuntimeError(f"{name}: requests were not answered with 200")
            if number >= 0:
                found[name].append(turn(before, seconds_of(pids[name]), asked))
    for callers in everybody.values():
        callers.close()
    return found


def main() -> int:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.servers", description=__doc__)
    add = parser.add_argument
    add("--turns", type=int, default=40, help="of each server")
    add("--seconds", type=float, default=0.15, help="of a turn")
    add("--only", choices=APPLICATIONS, help="one application")
    cache = Path(os.environ.get("HEADRACE_CACHE", "~/.cache/headrace"))
    add("--cache", type=Path, default=cache, help="folder of downloads")
    options = parser.parse_args()
    environment = environments.ensure("servers", options.cache.expanduser(), print)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    under_test, rest = machine.two_cores()
    os.sched_setaffinity(0, [rest])
    for application in APPLICATIONS:
        if options.only not in (None, application):
            continue
        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-servers-")))
            ports = {name: free_port() for name in SERVERS}
            pids = {
                name: stack.enter_context(
                    started(
                        command(name, application, port),
                        environment={"PYTHONPATH": str(packages)},
                        folder=home / str(port),
                        cores=[under_test],
                        ready=f"http://127.0.0.1:{port}/livez",
                    )
                )
                for name, port in ports.items()
            }
            found = uvloop.run(_measure(ports, pids, options.turns, options.seconds))
        print(f"\n{application}\n\n{table(found)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

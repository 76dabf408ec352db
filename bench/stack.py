"""The whole local stack for a suite: ``headrace up`` with a home of its own, engine pinned apart.

Suites that measure the real path call ``running_stack``. Everything runs as users run it; only
Triton and its engine processes are moved to the core under test once the example answers.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.metrics import Snapshot
from bench.plan import Plan
from bench.processes import free_port, pin, running
from contracts.endpoint import ModelEndpoint
from headrace.stack import example
from headrace.stack.settings import Ports

_START_SECONDS = 300.0
_PORTS = tuple(name.replace("_", "-") for name in Ports().named())


@dataclass(frozen=True)
class Stack:
    """A stack that answers for the example."""

    home: Path
    ports: dict[str, int]
    engine_pids: list[int]

    @property
    def path(self) -> str:
        """Where the example is asked, Hugging Face style."""
        return f"/endpoints/{example.ENDPOINT}"

    @property
    def gateway(self) -> Snapshot:
        """The gateway's metrics now."""
        return Snapshot.of(self.ports["gateway-operations"])

    @property
    def triton(self) -> Snapshot:
        """Triton's metrics now."""
        return Snapshot.of(self.ports["triton-metrics"])

    @property
    def package(self) -> Path:
        """Folder of the package that is served."""
        content = (self.home / "endpoints" / f"{example.ENDPOINT}.json").read_bytes()
        ref = ModelEndpoint.model_validate_json(content).status.stable
        if ref is None:
            raise RuntimeError("the example is not served")
        return self.home / "packages" / ref.package


@contextmanager
def running_stack(plan: Plan) -> Iterator[Stack]:
    """Starts the stack and waits until the example answers."""
    home = plan.folder / "home"
    ports = {name: free_port() for name in _PORTS}
    program = Path(sys.executable).parent / "headrace"
    command = [str(program), "up", "--home", str(home), "--cache", str(plan.cache)]
    for name, port in ports.items():
        command += [f"--port-{name}", str(port)]
    ready = f"http://127.0.0.1:{ports['gateway-http']}/v2/models/{example.ENDPOINT}/ready"
    log = plan.folder / "up.log"
    with running(command, [plan.rest], ready, log, start_seconds=_START_SECONDS) as pid:
        below = psutil.Process(pid).children(recursive=True)
        engine = [each.pid for each in below if "triton" in "".join(each.cmdline()[:1])]
        for each in engine:
            pin(each, [plan.under_test])
        yield Stack(home, ports, engine)

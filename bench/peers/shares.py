"""Whose processor time a request takes: that of each process that a peer is made of.

All of a peer shares one core, so what its processes take together bounds what it can do. A process
is known by its command line. Kafka and the load generator have the other core. How long the engine
computed is Triton's own count: the simulated accelerator takes time and no processor.
"""

import os
import resource
from collections.abc import Mapping

import psutil

from bench.metrics import Snapshot
from bench.peers.subjects import Running

ENGINE = "engine's process"
TRITON = "Triton"
GATEWAY = "gateway"
TOKENISER = "tokeniser's process"
REST = "loader and others"
UNDER_TEST = (ENGINE, TRITON, GATEWAY, TOKENISER, REST)
KAFKA = "Kafka"
GENERATOR = "load generator"
COMPUTES = "engine computes"
_COMPUTED = "nv_inference_compute_infer_duration_us"

# The first that a command line holds says what a process is.
_MARKS = (
    ("/tokenizer/1/model.py", TOKENISER),
    ("triton_python_backend_stub", ENGINE),
    ("tritonserver", TRITON),
    ("gateway.main", GATEWAY),
    ("servers.sixty_lines", GATEWAY),
    ("fastapi_server", ENGINE),
    ("multiprocessing", ENGINE),  # uvicorn's workers
    ("kafka.Kafka", KAFKA),
)


def role_of(command: str) -> str:
    """What the process of a command line is to its peer."""
    return next((role for mark, role in _MARKS if mark in command), REST)


class Meter:
    """Processor time since it was made, of all processes below this one.

    Args:
        running: the peer, whose Triton says how long its engine computed; if it has one.
    """

    def __init__(self, running: Running | None = None) -> None:
        self._running = running
        self._before = self._seconds()

    def a_request(self, answered: int) -> dict[str, float]:
        """Microseconds an answered request, by role; empty where nothing was answered."""
        if answered == 0:
            return {}
        spent = {role: now - self._before.get(role, 0.0) for role, now in self._seconds().items()}
        return {role: 1e6 * each / answered for role, each in spent.items() if each > 0}

    def _seconds(self) -> dict[str, float]:
        found = _processor_seconds()
        if self._running is not None and self._running.metrics:
            counts = Snapshot.of(self._running.metrics)
            found[COMPUTES] = counts.total(_COMPUTED, model=self._running.computing) / 1e6
        return found


def under_test(processor: Mapping[str, float]) -> float:
    """The microseconds that were taken of the core under test."""
    return sum(processor.get(role, 0.0) for role in UNDER_TEST)


def _processor_seconds() -> dict[str, float]:
    """Seconds so far, by role; what has ended while a load is made is its generator."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {GENERATOR: ended.ru_utime + ended.ru_stime}
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            times, command = process.cpu_times(), " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        role = role_of(command)
        found[role] = found.get(role, 0.0) + times.user + times.system
    return found

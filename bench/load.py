"""What load to make and what came of it, and the call that has another process make it.

``offer`` is the call; ``loadgen.py`` is that other process. Both sides share the two records.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal

import msgspec

_GRACE_SECONDS = 60.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One run of load.

    With ``rate`` the load is open: requests are due at fixed times whatever the answers do, and
    latency counts from the due time, so that a stall is not omitted by those it holds up. What is
    given up has status 0. Without a rate, ``callers`` each send their next request when the last
    is answered. Over HTTP a body is JSON that is posted to ``path``; over gRPC it is a JSON list of
    texts for the endpoint ``path``.
    """

    host: str
    port: int
    path: str
    bodies: list[str]
    protocol: Literal["http", "grpc"] = "http"
    callers: int = 1
    rate: float | None = None  # requests a second
    warm_up_seconds: float = 2.0
    seconds: float = 5.0
    timeout_seconds: float = 5.0
    gives_up: bool = False  # open load: a request that finds all connections taken
    connections: int = 1024  # open load: at most this many at once


class LatencyMilliseconds(msgspec.Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p99: float
    max: float


class StatusOutcome(msgspec.Struct, frozen=True):
    """What requests with one status saw. Status 0: no answer at all."""

    status: int
    count: int
    per_second: float
    latency: LatencyMilliseconds


class Result(msgspec.Struct, frozen=True):
    """Of the requests due after the warm-up."""

    offered: int
    seconds: float
    outcomes: list[StatusOutcome]
    send_late_p99_ms: float  # how far the generator itself was behind: small, or it was the limit
    processor: float = 0.0  # share of a core that the generator took: near 1, or it was the limit

    def of(self, status: int) -> StatusOutcome:
        """The outcome of one status, empty if there was none."""
        nothing = StatusOutcome(status, 0, 0.0, LatencyMilliseconds(*[float("nan")] * 3))
        return next((each for each in self.outcomes if each.status == status), nothing)


def offer(load: Load, cores: Sequence[int]) -> Result:
    """Has a process on ``cores`` make the load, and waits for it."""
    limit = load.warm_up_seconds + load.seconds + load.timeout_seconds + _GRACE_SECONDS
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.loadgen"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        os.sched_setaffinity(process.pid, cores)
        try:
            said, words = process.communicate(msgspec.json.encode(load), limit)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise RuntimeError(f"the load generator failed: {words.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(said, type=Result)

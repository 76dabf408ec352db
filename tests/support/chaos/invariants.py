"""What must hold, whatever was struck: every violation with its evidence.

Fed by the run with what callers saw, with outages, and with the state of processes and files. It
strikes nothing, and waits for nothing but the quiet in which idle processes are measured.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from idle_processes import spinning
from outages import Outage, overdue, unexcused
from traffic import Reply

from chaos.answers import FirstAnswers, is_right
from chaos.oracle import Oracle
from chaos.processes import grown, resident_mib
from chaos.rollouts import Rollouts
from chaos.world import World

LOG_BYTES = 45_000_000  # headrace's own bound of 20 MB, and what comes between two of its looks
QUIET_SECONDS = 10.0
QUIET_LOOKS = 3  # in a row: a class that is compiled or a conversion that ends is no spin
PENDING_LIMIT = 20_000
KEPT_BYTES = 300_000  # of each log
OUTAGES_KEPT = 20
DEADLINE_SECONDS = 10.0  # asked of the gateway; the endpoint allows more
VECTORS = "openai"


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be. ``at``: seconds since the start."""

    at: float
    what: str
    evidence: tuple[str, ...] = ()


@dataclass
class Invariants:
    """Collects violations; ``seconds`` is told the run's clock by ``now``.

    Args:
        world: the stack.
        oracle: right answers.
        rollouts: by endpoint, which variant a version is.
        began: monotonic seconds at the start.
        grace_seconds: by which a request may miss its deadline on a machine that is slow.
    """

    world: World
    oracle: Oracle
    rollouts: Mapping[str, Rollouts]
    began: float
    grace_seconds: float
    violations: list[Violation] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    statuses: "Counter[str]" = field(default_factory=Counter)
    checked: int = 0
    slowest_seconds: float = 0.0
    peaks: list[tuple[float, str, float]] = field(default_factory=list)
    largest_log_bytes: int = 0
    _pending: list[Reply] = field(default_factory=list)
    _vectors: FirstAnswers = field(default_factory=FirstAnswers)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.began, 1)

    def violated(self, what: str, evidence: Iterable[object] = ()) -> None:
        """Notes a violation."""
        self.violations.append(
            Violation(self.now, what, tuple(str(each)[:600] for each in evidence))
        )

    def outage(self, outage: Outage) -> None:
        """Notes when a fault began and when the stack was whole again."""
        self.outages = [*self.outages, outage][-OUTAGES_KEPT:]

    def judge(self, seen: Sequence[Reply]) -> None:
        """Holds answers against the reference, and failures against the outages."""
        for each in seen:
            self.statuses[f"{each.dialect} {each.status}"] += 1
            self.slowest_seconds = max(self.slowest_seconds, each.seconds)
        if failed := unexcused(seen, self.outages):
            kinds = Counter((each.gateway, each.dialect, each.status) for each in failed)
            self.violated(
                f"{len(failed)} requests failed without a fault that explains it",
                [dict(kinds), *(self._told(each) for each in failed[:5])],
            )
        if late := overdue(seen, self.outages, DEADLINE_SECONDS + self.grace_seconds):
            self.violated(
                f"{len(late)} requests ended after their deadline",
                [self._told(each) for each in late[:5]],
            )
        pending, self._pending = (
            [*self._pending, *(each for each in seen if each.status == 200)],
            [],
        )
        for each in pending:
            self._check(each)
        if len(self._pending) > PENDING_LIMIT:
            versions = sorted({each.version for each in self._pending})
            self.violated("versions answered that nobody knows", [versions])
            self._pending = []

    def look(self) -> None:
        """Notes what processes and logs take now."""
        for name, pid in self.world.pids().items():
            size = resident_mib(pid)
            if size is not None:
                self.peaks.append((self.now, name, size))
        for path in (self.world.home / "logs").glob("*"):
            written = path.stat().st_size if path.exists() else 0
            self.largest_log_bytes = max(self.largest_log_bytes, written)
            if written > LOG_BYTES:
                self.violated(f"a log grows without bound: {path.name}", [f"{written} bytes"])

    def quiet(self) -> None:
        """Measures processes while nobody asks anything of them."""
        up = self.world.stack.process
        if up.poll() is not None:
            return  # that is told already
        if hot := spinning(up.pid, window_seconds=QUIET_SECONDS, windows=QUIET_LOOKS):
            self.violated("processes spin while nothing is asked of them", [hot])

    def end(self) -> None:
        """What can only be said of a whole run."""
        for name, (early, late) in sorted(grown(self.peaks, self.now).items()):
            self.violated(f"{name} grows", [f"{early:.0f} MiB at first, {late:.0f} MiB at last"])
        for rollouts in self.rollouts.values():
            for each in rollouts.wrong():
                self.violated("a version came to a wrong end", [each])
            if wrong := rollouts.watch.faults:
                self.violated(
                    f"{len(wrong)} states of the endpoint contradict themselves", wrong[:5]
                )

    def _check(self, seen: Reply) -> None:
        if seen.dialect == VECTORS:
            right = self._vectors.is_right(seen.version, seen.text, seen.values)
        else:
            variant = self.rollouts[seen.endpoint].variant_of(seen.version)
            if variant is None:
                self._pending.append(seen)
                return
            right = is_right(self.oracle.of(variant).get(seen.text), seen.label, seen.score)
        self.checked += 1
        if not right:
            self.violated("a wrong answer", [self._told(seen), self._expected(seen)])

    def _expected(self, seen: Reply) -> str:
        if seen.dialect == VECTORS:
            return "another vector before"
        variant = self.rollouts[seen.endpoint].variants.get(seen.version)
        return f"{variant}: {variant and self.oracle.of(variant).get(seen.text)}"

    def _told(self, seen: Reply) -> str:
        return (
            f"at {seen.sent - self.began:.1f} s, {seen.seconds:.2f} s: {seen.gateway} "
            f"{seen.endpoint} {seen.dialect} {seen.status} version {seen.version or '-'} "
            f"{seen.label} {seen.score:.4f} {seen.body} <{seen.text[:60]}>"
        )


def keep_logs(world: World, folder: Path, number: int) -> None:
    """Copies the end of every log, for a look at a violation later."""
    kept = folder / f"violation-{number:03}"
    kept.mkdir(parents=True, exist_ok=True)
    for path in (world.home / "logs").glob("*.log"):
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - KEPT_BYTES))
            (kept / path.name).write_bytes(log.read())
    for path in (world.home / "endpoints").glob("*.json"):
        (kept / path.name).write_bytes(path.read_bytes())

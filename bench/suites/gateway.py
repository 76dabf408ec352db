"""What the gateway itself costs: Triton replaced by an instant echo, one text of 64 tokens each.

Asks two things of one gateway on one core, load on the other: how many texts a second it takes at
most (closed load), and what it adds to a request at half of that (open load), less what a server
that does nothing takes under the same load. Rounds with and without events to Kafka alternate.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from bench import corpus, machine, world
from bench.figures import Better, Report, Target
from bench.load import Result
from bench.metrics import Snapshot
from bench.plan import Plan
from bench.processes import free_port, python, running, running_kafka
from contracts.endpoint import AnswerCache, Limits
from contracts.tasks import Task

TOKENS = 64
CALLERS = 64
AT_LEAST = Target(6000, Better.MORE)
ADDED_P50 = Target(0.5, Better.LESS)
ADDED_P99 = Target(2.0, Better.LESS)
_GIGANTIC = 10_000_000


@dataclass(frozen=True)
class Subject:
    """A server under test; ``operations_port``: of a gateway, where its metrics are."""

    name: str
    port: int
    path: str
    pid: int
    grpc_port: int = -1  # none
    operations_port: int = -1

    def offer(self, plan: Plan, bodies: list[str], rate: float | None = None) -> Result:
        """What it makes of a closed load, or of an open one of so many requests a second."""
        return plan.offer(port=self.port, path=self.path, bodies=bodies, callers=CALLERS, rate=rate)

    def metrics(self) -> Snapshot:
        """Its metrics now."""
        return Snapshot.of(self.operations_port)


def run(plan: Plan) -> Report:
    """Measures and reports."""
    report = Report("gateway", "instant echo in place of Triton, one text of 64 tokens a request")
    bodies = corpus.bodies(corpus.of_length(TOKENS, 300))
    with (
        running_kafka(plan) as bootstrap,
        _floor(plan) as floor,
        gateway(plan, "echo") as silent,
        gateway(plan, "echo", "--kafka-bootstrap", bootstrap) as talking,
    ):
        peaks: dict[str, list[float]] = {}
        a_core: dict[str, list[float]] = {}
        for _ in range(plan.rounds):
            for subject in (silent, talking):
                used = machine.cpu_seconds(subject.pid)
                result = subject.offer(plan, bodies)
                used = machine.cpu_seconds(subject.pid) - used
                peaks.setdefault(subject.name, []).append(result.good_per_second)
                a_core.setdefault(subject.name, []).append(result.answered / used)
                _keep(report, subject, "closed", result)
        half = sorted(peaks[talking.name])[len(peaks[talking.name]) // 2] / 2
        halves: dict[str, list[Result]] = {}
        for _ in range(plan.rounds):
            for subject in (floor, silent, talking):
                result = subject.offer(plan, bodies, half)
                halves.setdefault(subject.name, []).append(result)
                _keep(report, subject, f"open at {half:.0f}/s", result)
    for subject in (silent, talking):
        report.add(f"{subject.name}, most", "texts/s", peaks[subject.name], AT_LEAST)
        note = "texts by the processor time of all its threads"
        report.add(f"{subject.name}, a core", "texts/s", a_core[subject.name], AT_LEAST, note)
    floors = [result.of(200).latency for result in halves[floor.name]]
    report.add("idle server p50", "ms", [each.p50 for each in floors])
    report.add("idle server p99", "ms", [each.p99 for each in floors])
    for subject in (silent, talking):
        found = [result.of(200).latency for result in halves[subject.name]]
        for name, target in (("p50", ADDED_P50), ("p99", ADDED_P99)):
            added = [
                getattr(a, name) - getattr(b, name) for a, b in zip(found, floors, strict=True)
            ]
            note = f"at {half:,.0f} requests/s, less the idle server's"
            report.add(f"{subject.name}, added {name}", "ms", added, target, note)
    late = [result.send_late_p99_ms for results in halves.values() for result in results]
    report.add("load generator late p99", "ms", late)
    return report


@contextmanager
def gateway(
    plan: Plan,
    engine: str,
    *flags: str,
    limits: Limits | None = None,
    shadow: bool = False,
    task: Task = Task.TEXT_CLASSIFICATION,
    grpc: bool = False,
    cache: AnswerCache | None = None,
) -> Iterator[Subject]:
    """A gateway without a Triton on the core under test, with a home of its own."""
    events = "with events" if "--kafka-bootstrap" in flags else "without events"
    port, grpc_port = free_port(), free_port() if grpc else -1
    operations_port = free_port()
    home = plan.folder / f"gateway-{port}"
    accepts = limits or Limits(max_tokens_in_flight=_GIGANTIC)
    world.lay_out(home, accepts, shadow=shadow, task=task, cache=cache)
    arguments = [
        "--home", str(home), "--http-port", str(port), "--grpc-port", str(grpc_port),
        "--operations-port", str(operations_port),
        "--engine", engine, "--log-level", "warning", *flags,
    ]  # fmt: skip
    ready = f"http://127.0.0.1:{operations_port}/readyz"
    log = home / "gateway.log"
    with running(python("gateway.main", *arguments), [plan.under_test], ready, log) as pid:
        yield Subject(f"gateway {events}", port, world.PATH, pid, grpc_port, operations_port)


@contextmanager
def _floor(plan: Plan) -> Iterator[Subject]:
    port = free_port()
    log = plan.folder / "floor.log"
    url = f"http://127.0.0.1:{port}/"
    with running(python("bench.floor", str(port)), [plan.under_test], url, log) as pid:
        yield Subject("idle server", port, world.PATH, pid)


def _keep(report: Report, subject: Subject, load: str, result: Result) -> None:
    found: dict[str, object] = msgspec.to_builtins(result)
    report.raw.append({"subject": subject.name, "load": load, **found})

"""Four times what it can do, in every dialect: what still gets through, and how soon no is said.

One gateway on one core before a simulated accelerator: no real engine, and its figures are never
set beside one's. First the most that a closed load gets through, then an open load of four times
that, in alternating rounds. Two cases, for they are not the same thing: an accelerator that is slow
enough to be what is overloaded, and one (1 ms a batch and 1.2 us a padded token) that outruns a
single gateway, so that the gateway's processor is. Both in every dialect, gRPC among them.
Refusals are timed by the gateway's own histogram, since a load generator at such rates measures
itself as well.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from bench import corpus, machine, world
from bench.figures import Better, Report, Target
from bench.load import Result
from bench.metrics import quantile
from bench.plan import Plan
from bench.suites.gateway import Subject, gateway
from contracts.endpoint import Limits
from contracts.tasks import Task

# As many as the endpoint's tokens in flight have room for: of more, some would be refused and come
# back at once, and what they cost would make the peak look smaller than it is.
CALLERS = 48
TIMES = 4
GOODPUT = Target(0.90, Better.MORE)
REFUSED = Target(50.0, Better.LESS)
REFUSAL = "headrace_gateway_refusal_seconds"
SLOW = ("--simulated-batch-seconds", "0.01", "--simulated-token-seconds", "12e-6")
_EIGHT = 8  # texts a request: the engine, and not the parsing of HTTP, is what is overloaded


@dataclass(frozen=True)
class Dialect:
    """How requests are put. ``body`` makes one of some texts, to be encoded as JSON."""

    name: str
    path: str
    body: Callable[[Sequence[str]], object]
    task: Task = Task.TEXT_CLASSIFICATION
    protocol: Literal["http", "grpc"] = "http"
    texts: int = _EIGHT


def _tensor(texts: Sequence[str]) -> object:
    one = {"name": "TEXT", "datatype": "BYTES", "shape": [len(texts)], "data": list(texts)}
    return {"inputs": [one]}


DIALECTS = (
    Dialect("huggingface", world.PATH, lambda texts: {"inputs": list(texts)}, texts=16),
    Dialect("oip_http", f"/v2/models/{world.ENDPOINT}/infer", _tensor),
    Dialect(
        "kserve_v1",
        f"/v1/models/{world.ENDPOINT}:predict",
        lambda texts: {"instances": list(texts)},
    ),
    Dialect(
        "openai",
        "/v1/embeddings",
        lambda texts: {"input": list(texts), "model": world.ENDPOINT},
        Task.TEXT_EMBEDDING,
    ),
    Dialect("oip_grpc", world.ENDPOINT, list, protocol="grpc"),
)
CASES: dict[str, tuple[str, ...]] = {"accelerator full": SLOW, "processor full": ()}


def run(plan: Plan) -> Report:
    """Measures and reports."""
    report = Report("overload", f"{TIMES} times the most offered, SIMULATED accelerator")
    for case, flags in CASES.items():
        for dialect in DIALECTS:
            _case(plan, report, case, flags, dialect)
    return report


def _case(plan: Plan, report: Report, case: str, flags: tuple[str, ...], dialect: Dialect) -> None:
    bodies, size = bodies_of(dialect, plan.seed), dialect.texts
    peaks: list[float] = []
    floods: list[Result] = []
    refused: list[float] = []
    memory: list[float] = []
    grpc = dialect.protocol == "grpc"
    with gateway(
        plan, "simulated", *flags, limits=Limits(), task=dialect.task, grpc=grpc
    ) as subject:
        for _ in range(plan.rounds):
            peak = _offer(plan, subject, dialect, bodies)
            peaks.append(peak.good_per_second)
            before = subject.metrics().buckets(REFUSAL)
            rate = peak.good_per_second * TIMES
            flood = _offer(plan, subject, dialect, bodies, rate)
            after = subject.metrics().buckets(REFUSAL)
            refused.append(quantile(before, after, 0.99) * 1000)
            floods.append(flood)
            memory.append(machine.resident_megabytes(subject.pid))
            for load, result in (("closed", peak), (f"open, {TIMES} times", flood)):
                outcome: dict[str, object] = msgspec.to_builtins(result)
                report.raw.append({"case": case, "dialect": dialect.name, "load": load, **outcome})
    good = [each.good_per_second for each in floods]

    def add(
        name: str, unit: str, rounds: list[float], target: Target | None = None, note: str = ""
    ) -> None:
        report.add(f"{case}, {dialect.name}: {name}", unit, rounds, target, note)

    add(f"most, {CALLERS} callers", "texts/s", [each * size for each in peaks])
    add("offered", "texts/s", [each.offered / each.seconds * size for each in floods])
    add("goodput then", "texts/s", [each * size for each in good])
    add("goodput to most", "ratio", [a / b for a, b in zip(good, peaks, strict=True)], GOODPUT)
    add("refused within, p99", "ms", refused, REFUSED, "upper edge of the bucket")
    for name, status in (("answered", 200), ("refused", 503)):
        found = [each.of(status).latency.p99 for each in floods]
        add(f"{name} p99, as callers see it", "ms", found)
    add("neither 200 nor 503", "requests", [
        float(sum(o.count for o in each.outcomes if o.status not in {200, 503}))
        for each in floods
    ])  # fmt: skip
    add("memory after the round", "MB", memory)
    add("load generator late p99", "ms", [each.send_late_p99_ms for each in floods])


def bodies_of(dialect: Dialect, seed: int) -> list[str]:
    """Requests of the replay's texts in a dialect, in an order of their own for each seed."""
    texts = corpus.replay()
    random.Random(seed).shuffle(texts)
    size = dialect.texts
    return [
        json.dumps(dialect.body(texts[at : at + size]))
        for at in range(0, len(texts) - size + 1, size)
    ]


def _offer(
    plan: Plan, subject: Subject, dialect: Dialect, bodies: list[str], rate: float | None = None
) -> Result:
    return plan.offer(
        port=subject.grpc_port if dialect.protocol == "grpc" else subject.port,
        path=dialect.path,
        protocol=dialect.protocol,
        bodies=bodies,
        callers=CALLERS,
        rate=rate,
    )

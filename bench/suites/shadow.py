"""What shadow traffic costs callers: half of what a gateway can do, with copies and without.

Two gateways take turns on one core, load on the other. Both serve the same endpoint at half of the
most that a closed load gets through; one of them has a shadow that all requests are to be copied
to. Two cases: an instant echo, so that the gateway's processor is what there is to share, and a
SIMULATED accelerator that is slow enough to be it. Neither is a real engine.
"""

import msgspec

from bench import corpus
from bench.figures import Better, Report, Target
from bench.load import Result
from bench.plan import Plan
from bench.suites.gateway import Subject, gateway
from bench.suites.overload import SLOW

TOKENS = 64
MORE_P99 = Target(1.10, Better.LESS)
SHADOWS = "headrace_gateway_shadows_total"
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "processor shared": ("echo", ()),
    "accelerator shared": ("simulated", SLOW),
}


def run(plan: Plan) -> Report:
    """Measures and reports."""
    about = "p99 at half load with all requests to be copied, over the same without; no real engine"
    report = Report("shadow", about)
    for case, (engine, flags) in CASES.items():
        _case(plan, report, case, engine, flags)
    return report


def _case(plan: Plan, report: Report, case: str, engine: str, flags: tuple[str, ...]) -> None:
    bodies = corpus.bodies(corpus.of_length(TOKENS, 300))
    alone: list[Result] = []
    copied: list[Result] = []
    sent: list[float] = []
    with (
        gateway(plan, engine, *flags) as plain,
        gateway(plan, engine, *flags, shadow=True) as shadowed,
    ):
        most = plain.offer(plan, bodies).good_per_second
        half = most / 2
        for _ in range(plan.rounds):
            for subject, results in ((plain, alone), (shadowed, copied)):
                before = _sent(subject)
                results.append(subject.offer(plan, bodies, half))
                if subject is shadowed:
                    seconds = plan.seconds + plan.warm_up_seconds
                    sent.append((_sent(subject) - before) / seconds)
                kept = msgspec.to_builtins(results[-1])
                report.raw.append({"case": case, "copies": subject is shadowed, **kept})
    without = [each.of(200).latency for each in alone]
    with_copies = [each.of(200).latency for each in copied]
    report.add(f"{case}: offered", "requests/s", [half] * plan.rounds)
    report.add(f"{case}: copies", "requests/s", sent)
    for name in ("p50", "p99"):
        for which, found in (("without", without), ("with", with_copies)):
            report.add(f"{case}: {name} {which}", "ms", [getattr(each, name) for each in found])
    pairs = zip(with_copies, without, strict=True)
    report.add(f"{case}: p99 with to without", "ratio", [a.p99 / b.p99 for a, b in pairs], MORE_P99)
    late = [each.send_late_p99_ms for each in (*alone, *copied)]
    report.add(f"{case}: load generator late p99", "ms", late)


def _sent(subject: Subject) -> float:
    return subject.metrics().total(SHADOWS, outcome="sent")

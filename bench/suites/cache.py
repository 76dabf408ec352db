"""What a cache of answers costs where nothing comes again, and saves where everything does.

Three gateways on one core before a simulated accelerator, one text a request in turn from 2,000:
one without a cache, one whose cache is too small for them (the text that is asked next has just
made room, so that none is ever found), and one that holds them all.
"""

from bench import corpus, machine
from bench.figures import Better, Report, Target
from bench.plan import Plan
from bench.suites.gateway import gateway
from contracts.endpoint import AnswerCache

MISS = Target(1.03, Better.LESS)
CASES: dict[str, AnswerCache | None] = {
    "no cache": None,
    "every text a miss": AnswerCache(megabytes=1),
    "every text a hit": AnswerCache(megabytes=64),
}


def run(plan: Plan) -> Report:
    """Measures and reports."""
    report = Report("cache", "one text a request, SIMULATED accelerator")
    bodies = corpus.bodies(corpus.replay())
    answered: dict[str, list[float]] = {case: [] for case in CASES}
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    with (
        gateway(plan, "simulated") as none,
        gateway(plan, "simulated", cache=CASES["every text a miss"]) as small,
        gateway(plan, "simulated", cache=CASES["every text a hit"]) as large,
    ):
        subjects = dict(zip(CASES, (none, small, large), strict=True))
        for subject in subjects.values():
            subject.offer(plan, bodies)  # fills the cache
        for _ in range(plan.rounds):
            for case, subject in subjects.items():
                used = machine.cpu_seconds(subject.pid)
                result = subject.offer(plan, bodies)
                used = machine.cpu_seconds(subject.pid) - used
                answered[case].append(result.good_per_second)
                seconds[case].append(used / result.answered)
    for case in CASES:
        report.add(f"{case}: answered", "texts/s", answered[case])
        report.add(f"{case}: processor", "us/text", [1e6 * each for each in seconds[case]])
    for case in list(CASES)[1:]:
        ratios = [a / b for a, b in zip(seconds[case], seconds["no cache"], strict=True)]
        target = MISS if case == "every text a miss" else None
        report.add(f"{case}: processor, to no cache", "ratio", ratios, target)
    return report

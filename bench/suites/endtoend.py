"""The whole path against the raw engine: HTTP text in, labels out, texts of mixed lengths.

The stack runs as ``headrace up`` starts it, real Kafka and MLflow included; Triton and its engine
have one core, all the rest and the load generator the other. Rounds of the raw engine, on the same
core and package, alternate with rounds of the whole path at 64 callers and at 2.
"""

import json
import random
from statistics import median

import msgspec

from bench import corpus, machine
from bench.figures import Better, Report, Target
from bench.load import Result
from bench.metrics import Snapshot
from bench.plan import Plan
from bench.processes import python, said_by
from bench.stack import Stack, running_stack

BUSY = Target(0.95, Better.MORE)
WASTE = Target(0.10, Better.LESS)
OF_RAW = Target(0.90, Better.MORE)
MANY, FEW = 64, 2


def run(plan: Plan) -> Report:
    """Measures and reports."""
    report = Report("endtoend", "HTTP text in, labels out, mixed lengths, engine on a core apart")
    texts = corpus.replay()
    random.Random(plan.seed).shuffle(texts)
    bodies = corpus.bodies(texts)
    raw: list[float] = []
    best: list[float] = []
    rounds: list[_Round] = []
    few: list[Result] = []
    with running_stack(plan) as stack:
        for _ in range(plan.rounds):
            rates = _raw_engine(plan, stack)
            raw.append(max(rates.values()))
            best.append(float(max(rates, key=lambda size: rates[size])))
            rounds.append(_measure(plan, stack, bodies, report))
            few.append(_offer(plan, stack, bodies, FEW))
            report.raw.append({"raw_engine": rates})
    whole = [each.result.good_per_second for each in rounds]
    report.add("raw engine, sorted batches", "texts/s", raw, note=f"batches of {median(best):.0f}")
    report.add(f"whole path, {MANY} callers", "texts/s", whole)
    report.add("share of raw engine", "ratio", [a / b for a, b in zip(whole, raw, strict=True)],
               OF_RAW, "90 % is the goal that the targets name")  # fmt: skip
    report.add("engine computing", "share", [each.computing for each in rounds], BUSY)
    report.add("engine's core used", "share", [each.core for each in rounds])
    report.add("padding waste", "share", [each.waste for each in rounds], WASTE)
    report.add("rows a batch", "rows", [each.rows for each in rounds])
    for callers, results in ((MANY, [each.result for each in rounds]), (FEW, few)):
        found = [each.of(200).latency for each in results]
        report.add(f"p50, {callers} callers", "ms", [each.p50 for each in found])
        report.add(f"p99, {callers} callers", "ms", [each.p99 for each in found])
    report.add("not answered with 200", "requests", [
        float(sum(o.count for o in each.outcomes if o.status != 200))
        for each in [*few, *(one.result for one in rounds)]
    ])  # fmt: skip
    return report


class _Round(msgspec.Struct, frozen=True):
    result: Result
    computing: float  # share of the time that Triton reports as computing
    core: float  # processor time of Triton and its engine, per second
    waste: float  # share of computed tokens that are padding
    rows: float


def _measure(plan: Plan, stack: Stack, bodies: list[str], report: Report) -> _Round:
    """One round at many callers, between two looks at everybody's counters."""
    # The counters' window must hold load alone: warm up in a run of its own.
    _offer(plan, stack, bodies, MANY, seconds=0.2)
    before, engine, used = stack.gateway, stack.triton, _cpu(stack)
    result = _offer(plan, stack, bodies, MANY, warm_up_seconds=0.0)
    after, later, spent = stack.gateway, stack.triton, _cpu(stack) - used
    took = result.seconds
    computed = _grown(engine, later, "nv_inference_compute_infer_duration_us") / 1e6
    padding = _grown(before, after, "headrace_gateway_batch_tokens_total", kind="padding")
    text = _grown(before, after, "headrace_gateway_batch_tokens_total", kind="text")
    rows = _grown(before, after, "headrace_gateway_batch_rows_total")
    batches = _grown(before, after, "headrace_gateway_batches_total")
    report.raw.append({"load": f"{MANY} callers", **msgspec.to_builtins(result)})
    return _Round(
        result=result,
        computing=computed / took,
        core=spent / took,
        waste=padding / max(padding + text, 1),
        rows=rows / max(batches, 1),
    )


def _grown(before: Snapshot, after: Snapshot, name: str, **labels: str) -> float:
    return after.total(name, **labels) - before.total(name, **labels)


def _cpu(stack: Stack) -> float:
    return sum(machine.cpu_seconds(pid) for pid in stack.engine_pids)


def _raw_engine(plan: Plan, stack: Stack) -> dict[str, float]:
    command = python("bench.rawengine", str(stack.package), str(plan.seconds))
    said = said_by(command, [plan.under_test], plan.seconds * 10 + 60)
    rates: dict[str, float] = json.loads(said)["rates"]
    return rates


def _offer(plan: Plan, stack: Stack, bodies: list[str], callers: int, **length: float) -> Result:
    port = stack.ports["gateway-http"]
    return plan.offer(port=port, path=stack.path, bodies=bodies, callers=callers, **length)

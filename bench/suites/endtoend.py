"""The whole path against the raw engine: HTTP text in, labels out, texts of mixed lengths.

The stack runs as ``headrace up`` starts it, real Kafka and MLflow included; Triton and its engine
have one core, all the rest and the load generator the other. Rounds of the raw engine, on the same
core and package, alternate with rounds of the whole path at 64 callers and at 2.
"""

import json
import os
import random
import subprocess
from statistics import median

import msgspec

from bench import corpus, machine
from bench.figures import Better, Report, Target
from bench.load import Load, Result, offer
from bench.metrics import Snapshot
from bench.plan import Plan
from bench.processes import python
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
            few.append(offer(_load(plan, stack, bodies, FEW), [plan.rest]))
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
    load = _load(plan, stack, bodies, MANY)
    # The counters' window must hold load alone: warm up in a run of its own.
    offer(msgspec.structs.replace(load, seconds=0.2), [plan.rest])
    before, engine, used = stack.gateway, stack.triton, _cpu(stack)
    result = offer(msgspec.structs.replace(load, warm_up_seconds=0.0), [plan.rest])
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
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        os.sched_setaffinity(process.pid, [plan.under_test])
        said, _ = process.communicate(timeout=plan.seconds * 10 + 60)
    if process.returncode != 0:
        raise RuntimeError("the raw engine failed; its words are above")
    rates: dict[str, float] = json.loads(said)["rates"]
    return rates


def _load(plan: Plan, stack: Stack, bodies: list[str], callers: int) -> Load:
    return Load(
        host="127.0.0.1",
        port=stack.ports["gateway-http"],
        path=stack.path,
        bodies=bodies,
        callers=callers,
        warm_up_seconds=plan.warm_up_seconds,
        seconds=plan.seconds,
    )

"""Two versions of a model on their way, each phase of it with a fault in the place of some part.

What nothing may do meanwhile (``harm``), what must be told of it, and which of the shipped alerts
fire, evaluated by Prometheus' own tool on what the controller exposes.
"""

import logging
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.registry import Collector
from rollout_world import (
    BAKE_SECONDS,
    DRIP,
    FOREIGN,
    KEEP_SECONDS,
    SLOW,
    UNLOAD_SECONDS,
    Reply,
    RolloutWorld,
    Seen,
    nothing_listed,
    one_lost,
)

from contracts.endpoint import Arm, EndpointStatus, Phase
from controller.metrics import RolloutCollector
from dashboards.__main__ import GENERATED
from measures.counting import CountingState

PARTS = ("mlflow", "objects", "kubernetes")
EMPTY, LOST, UNREAD = "an empty list", "a list that lost entries", "records that can't be read"
UP = {
    "mlflow": ("headrace_registry_source_up", 1.0, 0.0),
    "objects": ("headrace_registry_store_up", 1.0, 0.0),
    "kubernetes": ("headrace_registry_kubernetes_away", 0.0, 1.0),
}
OF_PART = {
    "mlflow": {"HeadraceMlflowAway"},
    "objects": {"HeadraceStoreAway"},
    "kubernetes": {"HeadraceKubernetesAway"},
    "kafka": set[str](),  # the fold role and gateways have alerts of their own on it
}
AT_MINUTE = 13  # after ten of an outage
# Of what is not in this world, and works: other parts, and the loop of the controller, whose passes
# go on in any fault.
WELL = {
    "headrace_gateway_ready": f"1x{AT_MINUTE}",
    "headrace_fold_connected": f"1x{AT_MINUTE}",
    "headrace_evaluate_connected": f"1x{AT_MINUTE}",
    "headrace_registry_passes_total": f"0+60x{AT_MINUTE}",
}
PHASES = 13
AHEAD = (
    Phase.WAITING,
    Phase.CONVERTING,
    Phase.VERIFYING,
    Phase.PUBLISHING,
    Phase.LOADING,
    Phase.LOADED,
    Phase.SHADOW,
    Phase.CANARY,
    Phase.PROMOTED,
)
# Everything that is kept in memory of what the store said is older then.
LONG_SECONDS, SHORT_SECONDS = 62.0, 5.0


@dataclass(frozen=True)
class Fault:
    """What answers in the place of one part, and whether to every second request only."""

    part: str
    kind: str
    flaps: bool = False


# What happened, the phase of the version, and what was exposed before and meanwhile.
Case = tuple[Fault, str, dict[str, tuple[str, float]], dict[str, tuple[str, float]]]
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


class Collected(CollectorRegistry):
    """Of one collector."""

    def __init__(self, collector: Collector) -> None:
        super().__init__()
        self.register(collector)


def in_place(fault: Fault, world: RolloutWorld) -> Callable[[str], Reply | None]:
    """What the fault answers to a request; None: what the server itself does."""
    if fault.kind == EMPTY:
        reply = nothing_listed(fault.part, world)
    elif fault.kind == LOST:
        reply = one_lost(fault.part, world)
    else:
        said = FOREIGN[fault.kind]
        reply = lambda _: said  # noqa: E731
    numbers = count()
    return lambda asked: None if fault.flaps and next(numbers) % 2 else reply(asked)


def harm(before: Seen, after: Seen) -> list[str]:
    """What a fault has done that it must not."""
    was, now = before.status, after.status
    found = {
        "rejected": now.rejected != was.rejected,
        "left out": now.rejected_through != was.rejected_through,
        "not loaded any more": not before.models <= after.models,
        "converted again": after.conversions > before.conversions,
        "a conversion was ended": after.cancelled != before.cancelled,
        "deleted": not before.objects.items() <= after.objects.items(),
        "packages dropped": not set(was.packages) <= set(now.packages),
    }
    candidate, later = was.candidate, now.candidate
    if was.stable is None:
        first = candidate.ref if candidate is not None else None
        found["another version serves"] = now.stable not in (None, first)
    else:
        found["promoted or taken back"] = _shares(was) != _shares(now)
    if candidate is not None and (later is not None or now.stable == was.stable):
        found["the candidate is dropped"] = later is None or later.version != candidate.version
        if later is not None and later.phase not in {Phase.BLOCKED, candidate.phase}:
            found[f"from {candidate.phase} to {later.phase}"] = (
                later.phase not in AHEAD or AHEAD.index(later.phase) < AHEAD.index(candidate.phase)
            )
            found["its package is forgotten"] = candidate.ref not in (None, later.ref)
    return [what for what, is_so in found.items() if is_so]


def _shares(status: EndpointStatus) -> set[tuple[str, str, float]]:
    return {
        (route.arm.value, route.ref.package, route.weight)
        for route in status.routes
        if route.arm is not Arm.SHADOW
    }


async def strike(
    world: RolloutWorld, fault: Fault, caplog: pytest.LogCaptureFixture, cases: list[Case]
) -> None:
    """The fault is on for some passes, of the collection of packages too, and goes away."""
    before, exposed = world.seen(), exposition(world)
    caplog.clear()
    caplog.set_level(logging.INFO)
    if fault.part == "kafka":
        world.judged.spoil(fault.kind)
    else:
        world.servers.put(fault.part, in_place(fault, world))
    world.loads = True
    later = SHORT_SECONDS if fault.kind == LOST else LONG_SECONDS
    for seconds in (later,) if fault.kind == SLOW else (0.0, later):  # each call takes its deadline
        world.time += seconds
        world.watch.wake()
        await world.round()
        await world.read()
        await world.collect()
        if fault.part == "kubernetes":
            world.start_controller()  # which reads records in the fault
    if (fault.kind in FOREIGN and not fault.flaps) or fault.part == "kafka":
        await tells(world, fault, caplog)
        cases.append((fault, world.phase, exposed, exposition(world)))
    during = world.seen()
    world.servers.clear()
    world.judged.spoil("")
    assert harm(before, during) == [], fault
    assert not DRIP.outlasted, f"a client waited for all of a drip: {fault}"
    for part, (metric, well, _) in UP.items():
        await world.until(f"{part} answers", partial(says, metric, well))
    await world.until("Kafka answers", lambda: known(world) == (True, True))
    await world.settle()
    assert harm(before, world.seen()) == [], fault


async def tells(world: RolloutWorld, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """Waits until the sign that is for it says what is away."""
    if fault.part in UP:
        metric, _, away = UP[fault.part]
        await world.until(f"{fault} is told", partial(says, metric, away))
    else:
        if fault.kind != UNREAD:  # of a real Kafka
            await world.until(f"{fault} is met", lambda: "window records can't be" in caplog.text)
        assert known(world) == (False, False), fault
        compared = world.phase in {Phase.SHADOW, Phase.CANARY}
        assert not compared or "waits for statistics" in _reason(world.status), fault
    if fault.part == "kubernetes":
        await world.until(f"{fault} is told", lambda: "can't be watched" in caplog.text)


def known(world: RolloutWorld) -> tuple[bool, bool]:
    """Whether windows can be read, and whether it can be seen how much there is to be counted."""
    windows, counting = world.judged.windows(world.model, 0.0), world.judged.counting()
    return windows is not None, counting.state is not CountingState.UNKNOWN


def exposition(world: RolloutWorld) -> dict[str, tuple[str, float]]:
    """What Prometheus reads of the controller now: kind and value by series, times from now on."""
    found = {}
    for registry in (REGISTRY, Collected(RolloutCollector(world.endpoints.list))):
        for family in registry.collect():
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
                value = sample.value
                if sample.name.startswith("headrace_rollout_") and "timestamp" in sample.name:
                    value -= world.time
                if sample.name.startswith("headrace_"):
                    found[f"{sample.name}{{{labels}}}"] = (family.type, value)
    return found


def fired_otherwise(cases: list[Case], folder: Path) -> str:
    """What Prometheus says of alerts that did not fire as they should; empty if all did.

    A fault stays as it was for a quarter of an hour: counters and times go on as far each minute as
    they went in the fault, and everything else stays.
    """
    tests = []
    for fault, phase, before, during in cases:
        series = [{"series": name, "values": values} for name, values in WELL.items()]
        for name, (kind, read) in during.items():
            value, more = read, max(0.0, read - before.get(name, (kind, 0.0))[1])
            if "_source_round_" in name:  # by the clock of this machine
                value, more = 0.0, 60.0 if more else 0.0
            elif kind != "counter":
                more = 0.0
            series.append({"series": name, "values": f"{value:.3f}+{more:.3f}x{AT_MINUTE}"})
        fires = set(OF_PART[fault.part])
        if phase == Phase.BLOCKED:  # with what it waits for
            fires.add("HeadraceRolloutBlocked")
        fired = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(fires)]
        expected = {"expr": FIRING, "eval_time": f"{AT_MINUTE}m", "exp_samples": fired}
        tests.append(
            {
                "name": f"{fault} in {phase}",
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [expected],
            }
        )
    rules = {"rule_files": [str(GENERATED / "rules.yaml")], "evaluation_interval": "1m"}
    path = folder / f"{uuid4().hex}.yaml"
    path.write_text(yaml.safe_dump({**rules, "tests": tests}))
    command = [str(shutil.which("promtool")), "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _reason(status: EndpointStatus) -> str:
    return status.candidate.reason if status.candidate is not None else ""


def says(metric: str, value: float) -> bool:
    """Whether a gauge is at a value."""
    labels = {"workspace": ""} if "source" in metric else {}
    return REGISTRY.get_sample_value(metric, labels) == value


async def walk(world: RolloutWorld, *, good: bool) -> AsyncIterator[str]:
    """Two versions, each phase of each; the second one is ``good`` or taken back."""
    await world.settle()
    for number in ("1", "2"):
        world.register(number)
        await world.until("converting", lambda: world.phase == "Converting")
        await world.settle()
        yield "converting"
        await world.until("converting again", lambda: world.launcher.running > 0)
        await world.verifying()
        await world.until("verifying", lambda: world.phase == "Verifying")
        yield "verifying"
        world.loads = False
        await world.converted(number)
        await world.until("loading", lambda: world.phase == "Loading")
        yield "loading"
        if number == "1":
            await world.until("serving", lambda: world.status.stable is not None)
            await world.settle()
            yield "serving"
    await world.traffic("unknown")
    await world.until("in shadow", lambda: world.phase == "Shadow")
    yield "shadow"
    for share in (5, 50):
        await world.traffic("pass")
        await world.until(f"{share} %", partial(has_canary, world, share))
        yield f"{share} %"
    await world.traffic("pass" if good else "fail")
    if not good:
        await world.until("taken back", lambda: world.phase == "RolledBack")
        await world.settle()
        await _unloaded(world)
        yield "taken back"
        return
    await world.until("promoted", lambda: world.phase == "Promoted")
    yield "bake"
    world.time += BAKE_SECONDS
    await world.traffic("pass")
    await world.until("settled", lambda: world.status.rollout is None)
    await world.settle()
    yield "settled"
    world.time += KEEP_SECONDS + 1.0
    await world.until("retired", lambda: len(world.status.packages) == 1)
    await _unloaded(world)
    yield "retired"


async def _unloaded(world: RolloutWorld) -> None:
    """The version that has no callers any more leaves its Tritons."""
    world.time += UNLOAD_SECONDS + 1.0
    await world.until("unloaded", lambda: len(world.triton.models) == 1)


def has_canary(world: RolloutWorld, share: float) -> bool:
    """Whether so many percent of the callers are with the newer version."""
    return any(route.arm is Arm.CANARY and route.weight == share for route in world.status.routes)


async def struck(
    world: RolloutWorld,
    folder: Path,
    faults: list[Fault],
    caplog: pytest.LogCaptureFixture,
    *,
    good: bool,
) -> None:
    """A whole rollout with a fault in each phase."""
    phases: list[str] = []
    cases: list[Case] = []
    async for phase in walk(world, good=good):
        phases.append(phase)
        await strike(world, faults[len(phases) % len(faults)], caplog, cases)
    if shutil.which("promtool"):  # Debian's package prometheus
        assert fired_otherwise(cases, folder) == ""
    status = world.status
    assert status.stable is not None
    assert status.stable.version == ("2" if good else "1")
    assert [item.version for item in status.rejected] == ([] if good else ["2"])
    assert world.seen().conversions == 2
    assert len(phases) == (PHASES if good else PHASES - 2)

"""Whatever stands before MLflow, the object store, Kubernetes or Kafka, a rollout goes to its end.

In each phase something else answers for a while in the place of one of them. Nothing is rejected,
dropped, deleted, converted again or promoted by it, and the metric or the version's reason says
what is away. The alerts that people get are those of the shipped rules, evaluated by Prometheus'
own tool on what the controller exposes meanwhile: the one of what is away fires, and none that
blames another part.

There is no proxy before Kafka here: that its reader has no records is all that one would do, and
``tests/stats/reading/test_record_log.py`` shows that it does, with a real proxy.
"""

import asyncio
import logging
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import Phase as Tries
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.registry import Collector
from rollout_world import (
    BAKE_SECONDS,
    FOREIGN,
    KEEP_SECONDS,
    UNLOAD_SECONDS,
    Reply,
    RolloutWorld,
    Seen,
    Servers,
    nothing_listed,
    one_lost,
    opened,
    served,
)

from contracts.endpoint import Arm, EndpointStatus, Phase
from controller.metrics import RolloutCollector
from dashboards.__main__ import GENERATED

pytestmark = pytest.mark.slow  # imports clients of MLflow, S3 and Kubernetes

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
rollouts = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Tries.explicit, Tries.reuse, Tries.generate],  # a rollout takes seconds: none is shrunk
)
# Everything that is kept in memory of what the store said is older then.
LONG_SECONDS, SHORT_SECONDS = 62.0, 5.0
DAYS = 40 * 86400.0


@dataclass(frozen=True)
class Fault:
    """What answers in the place of one part, and whether to every second request only."""

    part: str
    kind: str
    flaps: bool = False


# In an order in which any thirteen in a row are before most parts and of most kinds.
FAULTS = st.permutations(
    [
        *(Fault("kafka", UNREAD) for _ in range(6)),
        *(
            Fault(part, kind, flaps)
            for flaps in (False, True)
            for kind in (LOST, EMPTY, *FOREIGN)
            for part in PARTS
        ),
    ]
)


# What happened, the phase of the version, and what was exposed before and meanwhile.
Case = tuple[Fault, str, dict[str, tuple[str, float]], dict[str, tuple[str, float]]]
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


class Collected(CollectorRegistry):
    """Of one collector."""

    def __init__(self, collector: Collector) -> None:
        super().__init__()
        self.register(collector)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with (
        pytest.MonkeyPatch.context() as patch,
        served(tmp_path_factory.mktemp("artifacts"), patch, 5.0) as made,
    ):
        yield made


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
    world.judged.away = fault.part == "kafka"
    if fault.part in PARTS:
        world.servers.put(fault.part, in_place(fault, world))
    world.loads = True
    for seconds in (0.0, SHORT_SECONDS if fault.kind == LOST else LONG_SECONDS):
        world.time += seconds
        world.watch.wake()
        await world.round()
        await world.read()
        await world.collect()
        if fault.part == "kubernetes":
            world.start_controller()  # which reads records in the fault
    if (fault.kind in FOREIGN and not fault.flaps) or fault.kind == UNREAD:
        await tells(world, fault, caplog)
        cases.append((fault, world.phase, exposed, exposition(world)))
    during = world.seen()
    world.servers.clear()
    world.judged.away = False
    assert harm(before, during) == [], fault
    for part, (metric, well, _) in UP.items():
        await world.until(f"{part} answers", partial(says, metric, well))
    await world.settle()
    assert harm(before, world.seen()) == [], fault


async def tells(world: RolloutWorld, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """Waits until the sign that is for it says what is away."""
    if fault.part in UP:
        metric, _, away = UP[fault.part]
        await world.until(f"{fault} is told", partial(says, metric, away))
    else:
        compared = world.phase in {Phase.SHADOW, Phase.CANARY}
        assert not compared or "waits for statistics" in _reason(world.status), fault
    if fault.part == "kubernetes":
        await world.until(f"{fault} is told", lambda: "can't be watched" in caplog.text)


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
    world.traffic("unknown")
    await world.until("in shadow", lambda: world.phase == "Shadow")
    yield "shadow"
    for share in (5, 50):
        world.traffic("pass")
        await world.until(f"{share} %", partial(has_canary, world, share))
        yield f"{share} %"
    world.traffic("pass" if good else "fail")
    if not good:
        await world.until("taken back", lambda: world.phase == "RolledBack")
        await world.settle()
        await _unloaded(world)
        yield "taken back"
        return
    await world.until("promoted", lambda: world.phase == "Promoted")
    yield "bake"
    world.time += BAKE_SECONDS
    world.traffic("pass")
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
    servers: Servers,
    folder: Path,
    faults: list[Fault],
    caplog: pytest.LogCaptureFixture,
    *,
    good: bool,
) -> None:
    """A whole rollout with a fault in each phase."""
    async with opened(servers, folder) as world:
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


@settings(rollouts, max_examples=2)
@given(FAULTS, st.booleans())
@example([Fault("kafka", UNREAD)], True)
@example([Fault(part, "a bad gateway") for part in PARTS], True)
@example([Fault("kubernetes", "Kong without a route"), Fault("mlflow", EMPTY)], True)
async def test_a_fault_in_each_phase_changes_nothing_but_the_time_that_it_takes(
    servers: Servers,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    faults: list[Fault],
    good: bool,
) -> None:
    await asyncio.wait_for(struck(servers, tmp_path, faults, caplog, good=good), 600)


@pytest.mark.parametrize("ahead", [pytest.param(DAYS, marks=pytest.mark.soak), -DAYS])
async def test_a_clock_that_is_wrong_for_five_minutes_in_each_phase_changes_nothing(
    servers: Servers, tmp_path: Path, ahead: float
) -> None:
    async with opened(servers, tmp_path) as world:
        async for _ in walk(world, good=True):
            before, world.ahead, world.loads = world.seen(), ahead, True
            for _ in range(6):  # looks, of which the first and the last are five minutes apart
                world.time += 60.0
                await world.round()
                await world.collect()
                assert harm(before, world.seen()) == []
            world.ahead = 0.0
            await world.settle()
            assert harm(before, world.seen()) == []
        assert world.status.stable is not None
        assert world.status.stable.version == "2"
        assert not world.status.rejected


@pytest.mark.soak
@settings(rollouts, max_examples=100)
@given(FAULTS, st.booleans())
async def test_a_hundred_rollouts_with_a_fault_in_each_phase(
    servers: Servers,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    faults: list[Fault],
    good: bool,
) -> None:
    await asyncio.wait_for(struck(servers, tmp_path, faults, caplog, good=good), 600)

"""Plan and rollout together through random events: what is stored is right at every moment."""

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from registry_fakes import endpoint, ref, surroundings
from rollout_walk import FakeJudge, MemoryStatistics, window
from rollout_watch import faults, jumps

from contracts.endpoint import (
    Arm,
    EndpointSpec,
    FollowVersion,
    ModelEndpoint,
    PinnedVersion,
)
from contracts.loading import LoadedModel, LoaderReport, LoadFailure
from contracts.model import ModelRef
from contracts.rollout import COMMAND_PREFIX, Command, RolloutSpec, Strategy, Verb
from contracts.tasks import Task
from contracts.waiting import OF_PHASE, describe_wait, to_do, waits_of
from controller.rollouts import JoinedRollouts
from registry.conversions.messages import ConversionFailure, Package, Signature
from registry.mlflow.model_registry import MlflowSnapshot, RegisteredModel, RegisteredVersion
from registry.reconcile.controller import with_generation
from registry.reconcile.plan import ObservedState, PlannedVersion, choose_version, plan
from registry.reconcile.waits import list_waits

SIGNATURE = Signature(task=Task.TEXT_CLASSIFICATION, labels=("no", "yes"))
ROLLOUT = {
    "steps": [{"shadow": 100}, {"weight": 5}, {"weight": 50}],
    "deadline": "1h",
    "bake": "2m",
}
MOST_VERSIONS = 5


class Walk(RuleBasedStateMachine):
    """One endpoint, with everything around it coming and going."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.newest = 1
        self.broken: set[str] = set()  # versions that can't be converted
        self.converted: dict[str, Package] = {}
        self.held: set[ModelRef] = set()
        self.refused: set[ModelRef] = set()
        self.ready = True
        self.mlflow = True
        self.store = True
        self.statistics = MemoryStatistics()
        self.rollouts = JoinedRollouts(FakeJudge(), self.statistics)
        self.stored = endpoint(spec=self._spec(Strategy.CANARY)).model_copy()
        self.commands = 0

    @initialize(steps=st.integers(0, 4))
    def a_rollout_of_version_2_is_on(self, steps: int) -> None:
        """Or over already, by how often traffic has flown."""
        for _ in range(2):
            self.it_passes_until_nothing_changes()
            self.triton_loads_what_is_named()
            self.it_passes_until_nothing_changes()
            self.newest = 2
        self.traffic_flows("unknown")
        self.it_passes_until_nothing_changes()
        assert self.stored.status.rollout is not None
        for _ in range(steps):
            self.traffic_flows("pass")
            self.it_passes_until_nothing_changes()
        candidate = self.stored.status.candidate
        event(candidate.phase.value if candidate else "nothing on its way")

    # The world

    @rule()
    def a_version_is_registered(self) -> None:
        self.newest = min(MOST_VERSIONS, self.newest + 1)

    @rule()
    def the_newest_can_not_be_converted(self) -> None:
        self.broken.add(str(self.newest))

    @rule()
    def triton_loads_what_is_named(self) -> None:
        self.held |= set(self.stored.status.packages) - self.refused

    @rule()
    def triton_is_restarted(self) -> None:
        self.held.clear()

    @rule(ready=st.booleans())
    def triton_is_ready_or_not(self, ready: bool) -> None:
        self.ready = ready

    @rule()
    def triton_refuses_the_candidate(self) -> None:
        candidate = self.stored.status.candidate
        if candidate is not None and candidate.ref is not None:
            self.refused.add(candidate.ref)
            self.held.discard(candidate.ref)

    @rule(mlflow=st.booleans(), store=st.booleans(), kafka=st.booleans())
    def parts_come_and_go(self, mlflow: bool, store: bool, kafka: bool) -> None:
        self.mlflow, self.store, self.statistics.away = mlflow, store, not kafka

    @rule(verdict=st.sampled_from(["pass", "pass", "pass", "unknown", "fail"]))
    def traffic_flows(self, verdict: str) -> None:
        for _ in range(21):
            made = window(self.stored.status.routes, int(self.now), verdict=verdict)
            self.statistics.known.append(made)
            self.now += 10.0

    @rule(seconds=st.sampled_from([1.0, 200.0, 700.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # People

    @rule(verb=st.sampled_from(list(Verb)))
    def somebody_decides(self, verb: Verb) -> None:
        self.commands += 1
        command = Command(id=str(self.commands), verb=verb, by="ada", at=self.now)
        notes = {
            **self.stored.metadata.annotations,
            f"{COMMAND_PREFIX}{command.id}": command.model_dump_json(),
        }
        metadata = self.stored.metadata.model_copy(update={"annotations": notes})
        self.stored = self.stored.model_copy(update={"metadata": metadata})

    @rule(
        strategy=st.sampled_from(list(Strategy)),
        pin=st.sampled_from([None, None, "1", "2"]),
    )
    def the_spec_is_edited(self, strategy: Strategy, pin: str | None) -> None:
        spec = self._spec(strategy)
        version = PinnedVersion(pin=pin) if pin else FollowVersion()
        update = {"spec": spec.model_copy(update={"version": version})}
        self.stored = self.stored.model_copy(update=update)

    # The controller

    @rule()
    def it_passes_until_nothing_changes(self) -> None:
        for _ in range(20):
            before = self.stored
            self._pass()
            if self.stored == before:
                return
        raise AssertionError(f"it never rests: {self.stored.status}")

    @rule()
    def it_is_killed_before_it_writes(self) -> None:
        kept = self.stored
        self._pass()
        self.stored = kept

    @invariant()
    def whatever_waits_says_for_what_and_since_when(self) -> None:
        status, waits = self.stored.status, waits_of(self.stored)
        if status.stable is None:
            assert waits
        if status.candidate is not None and OF_PHASE[status.candidate.phase] is not None:
            assert status.candidate.version in {wait.version for wait in waits}
        for wait in waits:
            assert describe_wait(status, wait)
            assert to_do(self.stored.name, wait)
            assert wait.since <= self.now

    @invariant()
    def what_is_stored_is_right(self) -> None:
        assert faults(self.stored.status) == []

    def _pass(self) -> None:
        before = self.stored
        reports = (self._report(),)
        seen = self._observed(reports)
        target = choose_version(before.spec, before.status, seen)
        status = plan(before.spec, before.status, seen, self.now).status
        planned = before.model_copy(update={"status": status})
        around = surroundings(reports, target.number if target else None)
        after = self.rollouts.advance(planned, around, self.now)
        snapshot = self._mlflow(seen) if self.mlflow else None
        waits = list_waits(
            before.spec, after.status, seen, snapshot, before=before.status.waits, now=self.now
        )
        status = after.status.model_copy(update={"waits": waits})
        status = with_generation(before.status, status)
        after = after.model_copy(update={"status": status})
        text = after.model_dump_json(by_alias=True)
        self.stored = ModelEndpoint.model_validate_json(text)
        self._judge_change(before, around.loaded)

    def _judge_change(self, before: ModelEndpoint, loaded: frozenset[ModelRef]) -> None:
        after = self.stored
        marked = [
            item.model_copy(update={"metadata": item.metadata.model_copy(update={"revision": "1"})})
            for item in (before, after)
        ]
        assert jumps(marked[0], marked[1]) == []
        for route in after.status.routes:
            assert route.arm is Arm.STABLE or route.ref in loaded
        if before.status.stable is not None:
            assert after.status.stable is not None
        waiting = {key for key in after.metadata.annotations if key.startswith(COMMAND_PREFIX)}
        assert waiting == set()

    def _observed(self, reports: tuple[LoaderReport, ...]) -> ObservedState:
        """Every conversion ends within a pass, well or not."""
        numbers = [str(number) for number in range(self.newest, 0, -1)]
        versions = tuple(PlannedVersion(number, f"o{number}") for number in numbers)
        for version in versions:
            if version.number not in self.broken:
                made = Package(ref(version.number, "abcdef"[int(version.number)]), SIGNATURE)
                self.converted.setdefault(version.options, made)
        return ObservedState(
            versions if self.mlflow else None,
            packages=dict(self.converted) if self.store else {},
            jobs={
                version.options: ConversionFailure(reason="a pickle", by_version=True)
                for version in versions
                if version.options not in self.converted
            },
            loaders=reports,
            stable=SIGNATURE if self.store else None,
            fault="" if self.store else "the store is away",
        )

    @staticmethod
    def _mlflow(seen: ObservedState) -> MlflowSnapshot:
        versions = tuple(
            RegisteredVersion("m", version.number, version.number)
            for version in seen.versions or ()
        )
        return MlflowSnapshot({"m": RegisteredModel("m", 1)}, {"m": versions})

    def _report(self) -> LoaderReport:
        return LoaderReport(
            loader="l",
            triton_grpc="t:1",
            at=self.now,
            ready=self.ready,
            loaded=tuple(LoadedModel(ref=item) for item in sorted(self.held, key=str)),
            failed=tuple(
                LoadFailure(ref=item, reason="too large", by_version=True)
                for item in sorted(self.refused, key=str)
            ),
        )

    def _spec(self, strategy: Strategy) -> EndpointSpec:
        rollout = RolloutSpec.model_validate({**ROLLOUT, "strategy": strategy})
        return EndpointSpec(model="m", rollout=rollout)


TestWalk = pytest.mark.slow(Walk.TestCase)
TestWalk.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)

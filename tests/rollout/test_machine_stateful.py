"""The machine through random events: what must hold after every pass, whatever happens.

A small planner stands in for the registry: it brings the wanted version to ``Loaded`` and forgets
packages that nothing needs. Passes are dropped, repeated, and read back from JSON, as they are when
a controller is killed between two of them.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from rollout_walk import SECONDS, FakeJudge, ref, window

from contracts.endpoint import (
    HISTORY_LIMIT,
    REJECTIONS_LIMIT,
    Arm,
    Candidate,
    EndpointStatus,
    Phase,
    Route,
)
from contracts.model import ModelRef
from contracts.rollout import (
    COMMANDS_LIMIT,
    Command,
    Outcome,
    RolloutSpec,
    RolloutState,
    ShadowStep,
    Step,
    Strategy,
    Verb,
    Verdict,
    WeightStep,
)
from contracts.windows import EndpointWindow
from rollout import steps
from rollout.context import Observation
from rollout.machine import advance
from rollout.steps import HISTORY_WINDOWS

DEADLINE, BAKE = 3000.0, 500.0
SHADOW = ShadowStep(shadow=100)
FIVE, HALF = WeightStep(weight=5), WeightStep(weight=50)
STEPS: tuple[tuple[Step, ...], ...] = (
    (SHADOW, FIVE, HALF),
    (SHADOW, SHADOW, WeightStep(weight=10), WeightStep(weight=60)),
    (FIVE,),
    (FIVE, WeightStep(weight=25), HALF),
    (SHADOW,),
)
FIRST = RolloutSpec(steps=STEPS[0], deadline=DEADLINE, bake=BAKE)
VERDICTS = st.sampled_from(["pass"] * 12 + ["unknown"] * 4 + ["fail"])
TURNED = "the spec's steps were edited"


@dataclass
class World:
    """Everything around the endpoint."""

    now: float = 100_000.0
    loaded: frozenset[ModelRef] = frozenset({ref("1")})
    failures: dict[ModelRef, str] = field(default_factory=dict)
    newest: int = 1
    pinned: str | None = None
    registry_away: bool = False
    statistics_away: bool = False
    windows: tuple[EndpointWindow, ...] = ()
    commands: tuple[Command, ...] = ()
    asked: int = 0
    spec: RolloutSpec = FIRST

    def ask(self, *verbs: Verb, full: bool = True) -> None:
        """Commands of a person."""
        for verb in verbs:
            self.asked += 1
            command = Command(
                id=f"c{self.asked}",
                verb=verb,
                by="ann",
                at=float(self.asked),
                version="2" if verb is Verb.PIN else None,
                full=full,
            )
            self.commands = (*self.commands, command)

    def serve(self, status: EndpointStatus, verdict: str, requests: int) -> None:
        """One more window of traffic."""
        last = self.windows[-1].start + SECONDS if self.windows else 0
        start = max(last, int(self.now // SECONDS) * SECONDS)
        made = window(status.routes, start, verdict=verdict, requests=requests)
        self.windows = (*self.windows, made)[-360:]
        self.now += SECONDS

    def target(self, status: EndpointStatus) -> str | None:
        """The version that the spec wants, as the registry says it."""
        if self.registry_away:
            return None
        stable = int(status.stable.version) if status.stable else 0
        numbers = range(self.newest, stable - 1, -1)
        wanted = [self.pinned] if self.pinned else [str(number) for number in numbers]
        rejected = {item.version for item in status.rejected}
        return next((number for number in wanted if number not in rejected), None)

    def observed(self, status: EndpointStatus) -> Observation:
        return Observation(
            loaded=self.loaded,
            failures=dict(self.failures),
            target=self.target(status),
            windows=None if self.statistics_away else self.windows,
            commands=self.commands,
        )

    def planned(self, status: EndpointStatus) -> EndpointStatus:
        """What the registry makes of the status before the machine's turn."""
        status = _retired(status)
        if status.rollout is not None and status.rollout.promoted_at is None:
            return status
        number = self.target(status)
        if number is None or (status.stable is not None and status.stable.version == number):
            return status
        wanted = ref(number)
        phase = Phase.LOADED if wanted in self.loaded else Phase.LOADING
        candidate = Candidate(version=number, phase=phase, ref=wanted, options=f"o{number}")
        packages = tuple(dict.fromkeys((*status.packages, wanted)))
        return status.model_copy(update={"candidate": candidate, "packages": packages})


def _retired(status: EndpointStatus) -> EndpointStatus:
    needed = {route.ref for route in status.routes}
    if status.candidate is not None and status.candidate.ref is not None:
        needed.add(status.candidate.ref)
    last = status.last_rollout
    if last is not None and last.outcome is Outcome.SETTLED:
        needed.add(last.stable)
    # What a rollout needs is left to the machine to name again: it must not rely on this.
    return status.model_copy(
        update={"packages": tuple(item for item in status.packages if item in needed)}
    )


class RolloutStateMachine(RuleBasedStateMachine):
    """Random events, with a pass after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.judge = FakeJudge()
        self.status = EndpointStatus(
            generation=3,
            routes=(Route(arm=Arm.STABLE, ref=ref("1"), weight=100),),
            packages=(ref("1"),),
        )
        self.answered: set[str] = set()
        for _ in range(HISTORY_WINDOWS):
            self.world.serve(self.status, "", 100)

    # What happens

    @rule(overtakes=st.sampled_from([False, False, False, True]))
    def a_version_is_registered(self, *, overtakes: bool) -> None:
        if self.status.rollout is None or overtakes:
            self.world.newest = min(self.world.newest + 1, 6)
        self.tritons_load_what_they_must()

    @rule(count=st.sampled_from([1, 2, 20]), verdict=VERDICTS, idle=st.booleans())
    def traffic_while_nobody_looks(self, count: int, verdict: str, *, idle: bool) -> None:
        for _ in range(count):
            self.world.serve(self.status, verdict, 0 if idle and count < 20 else 100)
        self.one_pass()

    @rule(verdicts=st.lists(VERDICTS, min_size=1, max_size=6))
    def traffic_with_a_pass_after_each_window(self, verdicts: list[str]) -> None:
        for verdict in verdicts:
            self.world.serve(self.status, verdict, 100)
            self.one_pass()

    @rule(seconds=st.sampled_from([0.0, 1.0, 30.0, 400.0, 600.0, 5000.0, -50.0, -4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.one_pass()

    @rule()
    def tritons_load_what_they_must(self) -> None:
        self.world.failures = {}
        self.world.loaded |= {ref(str(number)) for number in range(1, self.world.newest + 1)}
        self.one_pass()

    @rule(number=st.integers(0, 6), refuses=st.booleans())
    def a_triton_loses_a_package(self, number: int, *, refuses: bool) -> None:
        lost = ref(str(number)) if number else None
        self.world.loaded -= {lost} if lost else self.world.loaded  # or it restarts, with nothing
        if lost and refuses and number > 1:
            self.world.failures = {lost: "Triton refused it: too big"}
        self.one_pass()

    @rule(kafka=st.sampled_from([True, False, False]), mlflow=st.sampled_from([True, False, False]))
    def what_it_depends_on_is_away(self, *, kafka: bool, mlflow: bool) -> None:
        self.world.statistics_away, self.world.registry_away = kafka, mlflow
        self.one_pass()

    @rule(pinned=st.sampled_from([None, None, "1", "2", "3"]))
    def the_spec_is_pinned(self, pinned: str | None) -> None:
        self.world.pinned = pinned
        self.one_pass()

    @rule(
        walk=st.sampled_from(STEPS),
        strategy=st.sampled_from(
            [Strategy.CANARY, Strategy.CANARY, Strategy.SHADOW, Strategy.CUTOVER]
        ),
        minimum=st.sampled_from([0.0, 0.0, 60.0]),
        bake=st.sampled_from([0.0, BAKE]),
    )
    def the_spec_is_edited(
        self, walk: tuple[Step, ...], strategy: Strategy, minimum: float, bake: float
    ) -> None:
        self.world.spec = RolloutSpec(
            steps=walk, strategy=strategy, minimum_step=minimum, bake=bake, deadline=DEADLINE
        )
        self.one_pass()

    @rule(
        verbs=st.lists(st.sampled_from(list(Verb)), min_size=1, max_size=2),
        again=st.booleans(),
        full=st.booleans(),
    )
    def people_command(self, verbs: list[Verb], *, again: bool, full: bool) -> None:
        self.world.ask(*verbs, full=full)
        if again:  # the annotation is there twice
            self.world.commands += self.world.commands[-1:]
        self.one_pass()

    @rule()
    def answers_are_taken_away(self) -> None:
        self.world.commands = ()
        self.one_pass()

    @rule()
    def a_pass_is_lost(self) -> None:
        before = self.world.planned(self.status)
        advance(
            self.world.spec, before, self.world.observed(before), self.world.now + 5, self.judge
        )

    @rule()
    def the_controller_is_killed(self) -> None:
        self.status = EndpointStatus.model_validate_json(self.status.model_dump_json())
        self.judge = FakeJudge()
        self.one_pass()

    @precondition(lambda self: self.status.rollout is not None)
    @rule()
    def nobody_touches_it_any_more(self) -> None:
        """Left alone, with what it needs at hand, every rollout ends."""
        self.world.pinned, self.world.registry_away = None, True
        self.world.ask(Verb.RESUME)
        if self.world.spec.strategy is Strategy.CUTOVER:
            self.world.ask(Verb.PROMOTE)  # which no time makes up for
        on = self.status.rollout
        self.one_pass()
        self.world.now += DEADLINE
        self.one_pass()  # ended, or promoted at the last moment
        self.world.now += BAKE + DEADLINE
        self.one_pass()
        assert self.status.rollout is None or on is None or self.status.rollout.id != on.id
        self.world.registry_away = False

    # A pass, and what must hold between its two ends

    def one_pass(self) -> None:
        before = self.world.planned(self.status)
        observed = self.world.observed(before)
        after = advance(self.world.spec, before, observed, self.world.now, self.judge)
        assert advance(self.world.spec, after, observed, self.world.now, self.judge) == after
        assert after.generation == before.generation
        self._routes_are_served(after, observed)
        self._steps_forward_have_a_reason(before, after, observed)
        self._commands_are_answered_once(before, after, observed)
        self._ends_are_kept(before, after)
        self.status = after

    def _routes_are_served(self, after: EndpointStatus, observed: Observation) -> None:
        for route in after.routes:
            assert route.arm is Arm.STABLE or route.ref in observed.loaded
            assert route.ref in after.packages
        if self.world.spec.strategy is Strategy.CUTOVER and after.rollout is not None:
            assert len({route.ref for route in after.routes if route.arm is not Arm.SHADOW}) <= 1
        if after.rollout is not None:
            assert {after.rollout.stable, after.rollout.candidate} <= set(after.packages)

    def _steps_forward_have_a_reason(
        self, before: EndpointStatus, after: EndpointStatus, observed: Observation
    ) -> None:
        then, now = before.rollout, after.rollout or after.last_rollout
        if then is None or now is None or now.id != then.id or not _is_further(then, now):
            return
        promoted = [c for c in after.commands if c.verb is Verb.PROMOTE and c.accepted]
        if any(c not in before.commands for c in promoted):
            return
        new = after.history[len(before.history) :]
        if len(before.history) == HISTORY_LIMIT or any(
            line.reason.startswith(TURNED) for line in new
        ):
            return
        if _place(self.world.spec, before, then) >= now.step and now.promoted_at is None:
            return  # the same step, which stands elsewhere among edited ones
        assert observed.windows is not None
        assert then.candidate in observed.loaded
        assert then.stable in observed.loaded
        assert then.paused_at is None or any(c.verb is Verb.RESUME for c in after.commands)
        assert self.world.now >= min(then.step_began, self.world.now) + (
            self.world.spec.minimum_step if self.world.now >= then.step_began else 0.0
        )
        edited = then.model_copy(update={"step": _place(self.world.spec, before, then)})
        looked = self.judge.look(self.world.spec, edited, observed.windows)
        assert [check.verdict for check in looked.checks] == [Verdict.PASS]
        assert now.step <= edited.step + 1

    def _commands_are_answered_once(
        self, before: EndpointStatus, after: EndpointStatus, observed: Observation
    ) -> None:
        known = {item.id for item in before.commands}
        new = [item.id for item in after.commands if item.id not in known]
        assert len(new) == len(set(new))
        for item in new:
            assert item not in self.answered
            self.answered.add(item)
        for command in observed.commands:
            assert command.id in self.answered

    def _ends_are_kept(self, before: EndpointStatus, after: EndpointStatus) -> None:
        """A rollout that went down is not tried again; it comes back only as a new one."""
        last = after.last_rollout
        if last is None or last == before.last_rollout:
            return
        assert last.ended_at == self.world.now
        assert last.reason
        rejected = {(item.version, item.options) for item in after.rejected}
        own = (last.candidate.version, last.options)
        forgiven = any(command.verb is Verb.RETRY for command in self.world.commands)
        if last.outcome in (Outcome.ROLLED_BACK, Outcome.EXPIRED) and not forgiven:
            assert own in rejected
        if last.outcome is Outcome.SETTLED:
            assert own not in rejected

    # What must hold at all times

    @invariant()
    def weights_sum_to_a_hundred(self) -> None:
        routes = self.status.routes
        arms = [route.arm for route in routes]
        assert len(arms) == len(set(arms))
        assert arms.count(Arm.STABLE) == 1
        assert sum(route.weight for route in routes if route.arm is not Arm.SHADOW) == 100

    @invariant()
    def a_rollout_that_goes_on_has_time_left(self) -> None:
        state = self.status.rollout
        if state is None or state.promoted_at is not None or state.paused_at is not None:
            return
        # After the clock was set back there was no pass yet that could have observed it.
        assert self.world.now - state.began - state.paused_seconds < DEADLINE
        assert state.began <= self.world.now

    @invariant()
    def memory_is_bounded_and_says_why(self) -> None:
        status = self.status
        assert len(status.history) <= HISTORY_LIMIT
        assert len(status.rejected) <= REJECTIONS_LIMIT
        assert len(status.commands) <= COMMANDS_LIMIT
        assert all(line.reason and line.at > 0 for line in status.history)

    @invariant()
    def the_status_survives_being_stored(self) -> None:
        assert EndpointStatus.model_validate_json(self.status.model_dump_json()) == self.status

    @invariant()
    def what_is_shown_is_what_goes_on(self) -> None:
        state, candidate = self.status.rollout, self.status.candidate
        if state is None or state.promoted_at is not None:
            return
        assert candidate is not None
        assert candidate.ref == state.candidate
        assert candidate.phase is steps.phase(steps.current(self.world.spec, state))
        assert self.status.stable == state.stable


def _is_further(then: RolloutState, now: RolloutState) -> bool:
    promoted = now.promoted_at is not None and then.promoted_at is None
    return promoted or (now.promoted_at is None and now.step > then.step)


def _place(spec: RolloutSpec, before: EndpointStatus, then: RolloutState) -> int:
    """Where the step of before stands among the steps of now."""
    weight = next((r.weight for r in before.routes if r.arm is Arm.CANARY), None)
    was = before.candidate.phase if before.candidate else Phase.SHADOW
    return steps.index_after_edit(spec, then.step, weight, was)


TestRolloutStateMachine = pytest.mark.slow(RolloutStateMachine.TestCase)
TestRolloutStateMachine.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

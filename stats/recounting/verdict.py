"""A rollout's verdict derived again from raw events, and held against what was recorded.

The evidence is counted by ``stats.recounting.evidence``, which shares no counting with the fold
role. What is shared is the statistics: ``rollout.judge`` and ``rollout.checks``, which get the
windows one after the other as they did in the controller. Steps are not decided again: when each
began is taken from the recorded history. Pure but for ``recount_verdict_kafka``, which reads Kafka
without a group and changes nothing.

Not derived: drift and statistics of users' own, whose counts and profiles are not in evidence.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from contracts.endpoint import Arm, ModelEndpoint, Phase, Transition
from contracts.events import TOPIC as PREDICTIONS
from contracts.profile import ReferenceProfile
from contracts.rollout import CheckResult, RolloutSpec, RolloutState, Verdict
from contracts.windows import ON_THE_WAY_SECONDS, WINDOW_SECONDS, EndpointWindow
from measures.ranges import range_start, read_from
from measures.recounting import Duplicates, RawMessage
from rollout import steps
from rollout.checks.drift import DRIFT
from rollout.judge import WindowsJudge
from service.kafka import KafkaAddress
from stats.reading.raw_log import KafkaRawLog, RawLog
from stats.recounting.evidence import RawEvidence

HISTORY_SECONDS = 3600.0  # of stable's past, that the controller's reader keeps
_LATE_SECONDS = 600.0  # behind the end, messages are read for this time
_REQUESTS = "candidate_requests"
_ENTERED = {Phase.SHADOW, Phase.CANARY, Phase.PROMOTED}


@dataclass(frozen=True, slots=True)
class CheckPair:
    """One check, as it was recorded and as it was derived."""

    name: str
    recorded: Verdict | None
    derived: Verdict
    recorded_requests: float | None
    derived_requests: float | None


@dataclass(frozen=True, slots=True)
class StepRecount:
    """One step of a rollout.

    Attributes:
        name: "shadow", "5 %", "bake".
        began: unix seconds, as recorded.
        windows: that were judged in it.
        passed: whether all checks that had to pass did at its end, derived again. Steps may end
            without: by a person, or if no caller fell into the arm.
        reason: why the next step began, or the rollout ended, as recorded.
    """

    name: str
    began: float
    windows: int
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class VerdictRecount:
    """What was derived.

    Attributes:
        version: of the candidate.
        outcome: as recorded; empty while the rollout goes on.
        events: attempts that were counted again.
        steps: in their order.
        checks: at the end of what was judged.
        failed_at: end of the first window after which a gating check failed, unix seconds; None
            if none did.
        looked_through: up to where the controller had looked, unix seconds.
        missing: why something could not be derived; empty if all could.
    """

    version: str
    outcome: str
    events: int
    steps: tuple[StepRecount, ...]
    checks: tuple[CheckPair, ...]
    failed_at: float | None
    looked_through: float
    missing: tuple[str, ...] = field(default=())

    @property
    def agrees(self) -> bool:
        """Whether the same checks failed, and nothing was missing."""
        return not self.missing and all(
            (pair.recorded is Verdict.FAIL) == (pair.derived is Verdict.FAIL)
            for pair in self.checks
        )


def recount_verdict(
    endpoint: ModelEndpoint,
    state: RolloutState,
    raw: RawLog,
    *,
    window_seconds: int = WINDOW_SECONDS,
    profiles: Callable[..., ReferenceProfile | None] = lambda _: None,
) -> VerdictRecount:
    """Derives the verdict of a rollout from the raw events.

    Args:
        endpoint: its spec and history.
        state: the rollout, that goes on or has ended.
        raw: the raw events.
        window_seconds: of the windows of the time.
        profiles: reference profiles, which tell the labels that are told apart.

    Raises:
        StreamError: Kafka is away, or did not go on.
    """
    counted = RawEvidence(endpoint.name, window_seconds)
    missing = []
    beginnings = raw.beginnings()
    spans = raw.spans(state.began - HISTORY_SECONDS, state.looked_through + _LATE_SECONDS)
    for partition, (first, last) in sorted(spans.items()):
        if first <= beginnings.get(partition, 0) > 0:
            missing.append(f"of partition {partition} Kafka has deleted messages of the time")
        messages, copies = _read(raw, partition, first, last, beginnings.get(partition, 0))
        counted.add(messages, copies)
    lateness = endpoint.spec.limits.timeout_seconds + ON_THE_WAY_SECONDS
    lines = _lines(endpoint.status.history, state)
    if not lines or lines[0].at > state.began + 1.0:
        missing.append("the history does not hold the beginning of the rollout any more")
        lines = lines or [Transition(at=state.began, version="", phase=Phase.SHADOW, step=0)]
    replay = _Replay(
        endpoint.rollout_spec, state, WindowsJudge(profiles), counted.windows(), lateness
    )
    return replay.walk(lines, counted.events, tuple(missing))


def _read(
    raw: RawLog, partition: int, first: int, last: int, beginning: int
) -> tuple[Iterator[RawMessage], Duplicates]:
    """The messages of a time from the start of a range on, and what tells copies among them."""
    start = max(range_start(first), beginning)
    from_offset = max(read_from(start), beginning)
    before = list(raw.messages(partition, from_offset, start))

    def earlier(since: float) -> Iterator[RawMessage]:
        return raw.messages(partition, raw.spans(since, since)[partition][0], from_offset)

    copies = Duplicates(earlier, since=before[0].time if before else float("inf"))
    for message in before:
        copies.is_copy(message)
        copies.first_told(message, range_start(message.offset))
    return raw.messages(partition, start, last), copies


def _lines(history: Iterable[Transition], state: RolloutState) -> list[Transition]:
    """The lines of a rollout that begin a step, or its bake."""
    found: list[Transition] = []
    until = float("inf") if state.ended_at is None else state.ended_at
    for line in history:
        ours = line.version == state.candidate.version and line.phase in _ENTERED
        if not ours or line.step is None or not state.began - 1.0 <= line.at <= until:
            continue
        if not found or (found[-1].phase, found[-1].step) != (line.phase, line.step):
            found.append(line)
    return found


class _Replay:
    """Judges the windows of a rollout again, step by step."""

    def __init__(
        self,
        spec: RolloutSpec,
        recorded: RolloutState,
        judge: WindowsJudge,
        windows: Sequence[EndpointWindow],
        lateness: float,
    ) -> None:
        self._spec = spec
        self._recorded = recorded
        self._judge = judge
        self._waiting = list(windows)
        self._lateness = lateness
        self._history: list[EndpointWindow] = []
        self._failed_at: float | None = None

    def walk(
        self, lines: Sequence[Transition], events: int, missing: tuple[str, ...]
    ) -> VerdictRecount:
        """With the steps of these lines."""
        recorded, first = self._recorded, lines[0]
        state = recorded.model_copy(
            update={
                "step": first.step or 0,
                "step_began": recorded.began,
                "promoted_at": None,
                "looked_through": recorded.began - self._lateness,
                "checks": (),
                "evidence": {},
                "series": (),
                "ended_at": None,
                "outcome": None,
            }
        )
        self._history = self._past(state.looked_through)
        state = self._judge.begin(self._spec, state, self._history)
        found = []
        for place, line in enumerate(lines):
            following = lines[place + 1] if place + 1 < len(lines) else None
            state, windows = self._step(state, following)
            reason = recorded.reason if following is None else following.reason
            found.append(_build_step(self._spec, state, line, windows, reason))
            if following is not None:
                is_bake = following.phase is Phase.PROMOTED
                update = {
                    "step": following.step,
                    "step_began": following.at,
                    "promoted_at": following.at if is_bake else None,
                }
                state = self._judge.next_stage(self._spec, state.model_copy(update=update))
        return VerdictRecount(
            version=recorded.candidate.version,
            outcome="" if recorded.outcome is None else recorded.outcome.value,
            events=events,
            steps=tuple(found),
            checks=_compare(recorded.checks, state.checks, self._spec),
            failed_at=self._failed_at,
            looked_through=recorded.looked_through,
            missing=missing,
        )

    def _past(self, until: float) -> list[EndpointWindow]:
        past = [window for window in self._waiting if window.start + window.seconds <= until]
        self._waiting = self._waiting[len(past) :]
        return past

    def _step(self, state: RolloutState, following: Transition | None) -> tuple[RolloutState, int]:
        """With the windows that the controller had judged when the next step began."""
        asked = {} if following is None else _requests(following.figures)
        until = self._recorded.looked_through
        if following is not None:
            until = following.at if any(asked.values()) else following.at - self._lateness
        judged = 0
        while self._waiting and self._waiting[0].start + self._waiting[0].seconds <= until:
            if any(asked.values()) and judged and _has_judged(state.checks, asked):
                break
            window = self._waiting.pop(0)
            state = self._look(state, window)
            judged += 1
            failing = any(each.gate and each.verdict is Verdict.FAIL for each in state.checks)
            if failing and self._failed_at is None:
                self._failed_at = float(window.start + window.seconds)
        return state, judged

    def _look(self, state: RolloutState, window: EndpointWindow) -> RolloutState:
        meets_callers = steps.arm(steps.current(self._spec, state)) is Arm.CANARY
        known = self._judge.history_windows(state)
        if meets_callers and state.promoted_at is None and known < steps.HISTORY_WINDOWS:
            # As the machine: no caller has met the candidate yet, so all there is is history.
            self._history.append(window)
            through = float(window.start + window.seconds)
            again = state.model_copy(
                update={"evidence": {}, "checks": (), "looked_through": through}
            )
            return self._judge.begin(self._spec, again, self._history)
        return self._judge.look(self._spec, state, [window])


def _build_step(
    spec: RolloutSpec, state: RolloutState, line: Transition, windows: int, reason: str
) -> StepRecount:
    wanted = [each for each in state.checks if each.gate and each.required]
    is_bake = line.phase is Phase.PROMOTED
    return StepRecount(
        name="bake" if is_bake else steps.describe(spec.step_at(line.step or 0)),
        began=line.at,
        windows=windows,
        passed=bool(windows) and all(each.verdict is Verdict.PASS for each in wanted),
        reason=reason,
    )


def _compare(
    recorded: Iterable[CheckResult], derived: Iterable[CheckResult], spec: RolloutSpec
) -> tuple[CheckPair, ...]:
    own = {each.name for each in spec.checks.statistics}
    was = {each.name: each for each in recorded}
    return tuple(
        CheckPair(
            name=each.name,
            recorded=was[each.name].verdict if each.name in was else None,
            derived=each.verdict,
            recorded_requests=was[each.name].figures.get(_REQUESTS) if each.name in was else None,
            derived_requests=each.figures.get(_REQUESTS),
        )
        for each in derived
        if each.name != DRIFT and each.name not in own
    )


def _requests(figures: Mapping[str, float]) -> dict[str, float]:
    """Check -> how many of the candidate's requests it had judged when a line was written."""
    end = f".{_REQUESTS}"
    return {name.removesuffix(end): of for name, of in figures.items() if name.endswith(end)}


def _has_judged(checks: Iterable[CheckResult], asked: Mapping[str, float]) -> bool:
    """Whether every check has had this number of requests."""
    had = {each.name: each.figures.get(_REQUESTS, 0.0) for each in checks}
    return all(had.get(name, 0.0) >= requests for name, requests in asked.items())


def recount_verdict_kafka(
    bootstrap: str,
    endpoint: ModelEndpoint,
    state: RolloutState,
    *,
    predictions: str = PREDICTIONS,
    window_seconds: int = WINDOW_SECONDS,
    progress: Callable[[str], None] = lambda _: None,
) -> VerdictRecount:
    """The same over a Kafka; raises ``StreamError``.

    Args:
        bootstrap: ``host:port``, comma-separated.
        endpoint: its spec and history.
        state: the rollout.
        predictions: topic of the raw events.
        window_seconds: of the windows of the time.
        progress: is told what is done now, for people who wait.
    """
    raw = KafkaRawLog(KafkaAddress.of(bootstrap), predictions)
    try:
        progress("counting raw events")
        return recount_verdict(endpoint, state, raw, window_seconds=window_seconds)
    finally:
        raw.close()

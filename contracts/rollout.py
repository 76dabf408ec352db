"""A rollout: what a user asks of it (spec), and everything that is known of one (state).

The state is part of the endpoint's status, so that a controller killed at any instant goes on from
what it reads there. Only ``rollout/`` makes and changes it; gateways read the routes that follow
from it, people read its checks.
"""

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from contracts.durations import Duration
from contracts.instants import Instant
from contracts.model import ModelRef

SERIES_LIMIT = 240


class _RolloutModel(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, alias_generator=to_camel
    )


# What a user asks for


class Strategy(StrEnum):
    """How a version gets to callers.

    ``canary`` walks the steps, ``shadow`` never promotes by itself, ``direct`` never judges.
    ``cutover`` is judged in shadow, then waits as long as it takes until a person gives it all
    callers at once: none is ever split between two versions.
    """

    CANARY = "canary"
    SHADOW = "shadow"
    CUTOVER = "cutover"
    DIRECT = "direct"


class ShadowStep(_RolloutModel):
    """The candidate answers copies of requests; its answers are compared and thrown away."""

    shadow: float = Field(gt=0, le=100, description="percent of requests")


class WeightStep(_RolloutModel):
    """The candidate answers callers."""

    weight: float = Field(gt=0, lt=100, description="percent of callers")


class ToleranceLine(_RolloutModel):
    """The tolerance ``absolute + relative x stable's rate``."""

    absolute: float = Field(ge=0, le=1, description="share that is added")
    relative: float = Field(ge=1, le=100, description="factor of stable's rate")


_REPORT_ONLY = "false: report only, neither fail nor hold the rollout"
_MAY_STAY_OPEN = "false: may fail the rollout, but need not pass"


class _RolloutCheck(_RolloutModel):
    gate: bool = Field(True, description=_REPORT_ONLY)
    required: bool = Field(True, description=_MAY_STAY_OPEN)


class ErrorRateCheck(_RolloutCheck):
    """Share of attempts answered 5xx, canary against stable."""

    fail: ToleranceLine = ToleranceLine(absolute=0, relative=1.25)
    pass_: ToleranceLine = Field(ToleranceLine(absolute=0.01, relative=1.25), alias="pass")


class LatencyCheck(_RolloutCheck):
    """Share of attempts slower than stable's 95th percentile, within a length bucket."""

    fail: ToleranceLine = ToleranceLine(absolute=0, relative=1.25)
    pass_: ToleranceLine = Field(ToleranceLine(absolute=0.02, relative=1.25), alias="pass")


class ClassShareCheck(_RolloutCheck):
    """Share of each predicted class, in both directions."""

    fail: ToleranceLine = ToleranceLine(absolute=0.02, relative=1)
    pass_: ToleranceLine = Field(ToleranceLine(absolute=0.05, relative=1), alias="pass")


class OutputShiftCheck(_RolloutCheck):
    """Jensen-Shannon distance between the arms' output histograms."""

    distance: float = Field(0.1, gt=0, lt=1, description="from which on they differ")


class AgreementCheck(_RolloutCheck):
    """Share of equal labels on the same inputs, in shadow."""

    at_least: float = Field(0.9, gt=0, le=1, alias="atLeast", description="share of equal labels")


class ScoreAgreementCheck(_RolloutCheck):
    """Share of scores that stay near stable's on the same inputs, in shadow.

    Differences are counted by tenths: ``within`` between two tenths is taken for the larger one.
    """

    gate: bool = Field(False, description=_REPORT_ONLY)
    required: bool = Field(False, description=_MAY_STAY_OPEN)
    at_least: float = Field(
        0.95, gt=0, le=1, alias="atLeast", description="share of scores that are near"
    )
    within: float = Field(0.1, ge=0.1, lt=1, description="difference of scores that are near")


class SameSpaceCheck(_RolloutCheck):
    """Share of texts whose vectors are alike, of a version that claims stable's space, in shadow.

    Cosines are counted between 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995 and 0.999: another limit is
    taken for the next one above it.
    """

    at_least: float = Field(
        0.9, gt=0, le=1, alias="atLeast", description="share of texts whose vectors are alike"
    )
    cosine: float = Field(0.95, ge=0.5, le=0.999, description="of a text's two vectors")
    neighbours: float = Field(
        0.7, ge=0, le=1, description="share of the ten nearest texts that both vectors find"
    )


class DriftCheck(_RolloutCheck):
    """Distance of the candidate's inputs and outputs to its own profile beyond stable's to its."""

    gate: bool = Field(False, description=_REPORT_ONLY)
    required: bool = Field(False, description=_MAY_STAY_OPEN)
    excess: float = Field(0.1, gt=0, description="PSI beyond stable's that matters")


class QualityCheck(_RolloutCheck):
    """Share of wrong answers among those with feedback, canary against stable."""

    required: bool = Field(False, description=_MAY_STAY_OPEN)
    fail: ToleranceLine = ToleranceLine(absolute=0.02, relative=1)
    pass_: ToleranceLine = Field(ToleranceLine(absolute=0.05, relative=1), alias="pass")


class HungUpCheck(_RolloutCheck):
    """Share of requests whose callers gave up before the answer (499), canary against stable."""

    gate: bool = Field(False, description=_REPORT_ONLY)
    required: bool = Field(False, description=_MAY_STAY_OPEN)
    fail: ToleranceLine = ToleranceLine(absolute=0.01, relative=1.25)
    pass_: ToleranceLine = Field(ToleranceLine(absolute=0.02, relative=1.25), alias="pass")


class ArmShareCheck(_RolloutCheck):
    """Requests without a caller's name that reach the candidate, against the split's share."""

    gate: bool = Field(False, description=_REPORT_ONLY)
    required: bool = Field(False, description=_MAY_STAY_OPEN)
    tolerance: float = Field(
        0.1, gt=0, lt=1, description="of the smaller arm's share, that may be missing or too much"
    )


class StatisticCheck(_RolloutCheck):
    """A declared statistic of the users' own: its distribution, canary against stable."""

    name: str = Field(max_length=63, description="as spec.statistics declares it")
    distance: float = Field(0.1, gt=0, lt=1, description="Jensen-Shannon distance")


class Checks(_RolloutModel):
    """The checks of a rollout; ``null`` turns one off."""

    error_rate: ErrorRateCheck | None = Field(ErrorRateCheck(), alias="errorRate")
    latency: LatencyCheck | None = LatencyCheck()
    output_shift: OutputShiftCheck | None = Field(OutputShiftCheck(), alias="outputShift")
    class_share: ClassShareCheck | None = Field(ClassShareCheck(), alias="classShare")
    drift: DriftCheck | None = DriftCheck()
    agreement: AgreementCheck | None = None
    score_agreement: ScoreAgreementCheck | None = Field(None, alias="scoreAgreement")
    same_space: SameSpaceCheck | None = Field(None, alias="sameSpace")
    quality: QualityCheck | None = None
    hung_up: HungUpCheck | None = Field(None, alias="hungUp")
    arm_share: ArmShareCheck | None = Field(None, alias="armShare")
    statistics: Annotated[tuple[StatisticCheck, ...], Field(max_length=50)] = Field(
        (), description="of statistics that spec.statistics declares"
    )


_STEPS: tuple["Step", ...] = (
    ShadowStep(shadow=100),
    WeightStep(weight=5),
    WeightStep(weight=25),
    WeightStep(weight=50),
)
Step = ShadowStep | WeightStep


class VectorSpace(StrEnum):
    """Whether vectors of two versions of a model may be compared with each other."""

    CUTOVER = "cutover"  # they may not: a search must not see both
    SAME = "same"


class CutoverAt(StrEnum):
    """What makes the next vector space that of all callers, once it has passed its checks."""

    COMMAND = "command"
    BACKFILL = "backfill"


class EmbeddingSpec(_RolloutModel):
    """How versions of a model that makes vectors are rolled out.

    With ``cutover`` the strategies ``canary`` and ``shadow`` become ``cutover``. ``same`` claims
    that vectors may be compared whatever their digests say, which ``sameSpace`` tests in shadow. By
    default it depends on whether both versions have one vector space.
    """

    space: VectorSpace | None = None
    cutover: CutoverAt = Field(
        CutoverAt.COMMAND,
        description="what makes the next space that of all callers: a command, or the end of "
        "headrace backfill into it",
    )
    keep: Duration = Field(
        604800.0,
        gt=0,
        description="a space that was left is answered by name until it was not "
        "asked for in this time",
    )


class RolloutSpec(_RolloutModel):
    """How a new version gets to all callers, or does not."""

    strategy: Strategy = Strategy.CANARY
    embedding: EmbeddingSpec = EmbeddingSpec()
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=20)] = Field(
        _STEPS, description="in order: shadow steps, then growing weights"
    )
    checks: Checks = Checks()
    deadline: Duration = Field(86400.0, description="without a verdict by then it expires", gt=0)
    bake: Duration = Field(3600.0, description="hold-back of the old version after promotion")
    hold_back: float = Field(5, gt=0, lt=50, alias="holdBack", description="percent, in the bake")
    controller_timeout: Duration = Field(
        300.0,
        alias="controllerTimeout",
        description="if the controller is silent for this long, a candidate gets no callers",
        gt=0,
    )
    minimum_step: Duration = Field(
        0.0, alias="minimumStep", description="a step lasts at least this long"
    )
    false_rollback: float = Field(
        0.05, gt=0, lt=0.5, alias="falseRollback", description="chance for an equal version"
    )
    alias: str | None = Field("champion", description="MLflow alias moved on promotion; null: none")

    @property
    def planned(self) -> tuple[Step, ...]:
        """The steps that are walked; without a canary only those with copies."""
        if self.strategy not in (Strategy.SHADOW, Strategy.CUTOVER):
            return self.steps
        copies = tuple(step for step in self.steps if isinstance(step, ShadowStep))
        return copies or (ShadowStep(shadow=100),)

    def step_at(self, number: int) -> Step:
        """The planned step of that number; the last one if there are fewer by now."""
        return self.planned[min(number, len(self.planned) - 1)]

    @model_validator(mode="after")
    def _steps_in_order(self) -> "RolloutSpec":
        weights = [step.weight for step in self.steps if isinstance(step, WeightStep)]
        if any(a >= b for a, b in pairwise(weights)):
            raise ValueError("weights must grow from step to step")
        kinds = [isinstance(step, WeightStep) for step in self.steps]
        if kinds != sorted(kinds):
            raise ValueError("shadow steps come before weights")
        return self


class StatisticKind(StrEnum):
    """What a statistic of the users' own is."""

    HISTOGRAM = "histogram"
    CATEGORY = "category"
    COUNTER = "counter"


class CustomStatistic(_RolloutModel):
    """A statistic of the users' own, observed by their preprocessing."""

    name: str = Field(
        max_length=63, pattern=r"^[a-z][a-z0-9_]{0,62}$", description="by which code observes it"
    )
    kind: StatisticKind
    edges: tuple[float, ...] = Field((), max_length=200, description="upper, of a histogram")
    values: tuple[str, ...] = Field((), max_length=100, description="of a category")

    @model_validator(mode="after")
    def _shape(self) -> "CustomStatistic":
        if (self.kind is StatisticKind.HISTOGRAM) != bool(self.edges):
            raise ValueError("edges belong to a histogram, and a histogram needs them")
        if (self.kind is StatisticKind.CATEGORY) != bool(self.values):
            raise ValueError("values belong to a category, and a category needs them")
        if any(a >= b for a, b in pairwise(self.edges)):
            raise ValueError("edges must grow")
        return self


# What is known of a rollout


class Verdict(StrEnum):
    """What a check says. No data is ``unknown``, never ``pass``."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


class CheckResult(_RolloutModel):
    """One check's word at one look, with the figures that it rests on."""

    name: str = Field(description="of the check")
    verdict: Verdict
    reason: str = Field(description="one sentence, with the figures")
    figures: dict[str, float] = Field({}, description="that the verdict rests on")
    gate: bool = Field(True, description=_REPORT_ONLY)
    required: bool = Field(True, description=_MAY_STAY_OPEN)
    needs: int | None = Field(None, description="canary requests still needed, as far as one knows")


class Outcome(StrEnum):
    """How a rollout ended."""

    SETTLED = "Settled"
    ROLLED_BACK = "RolledBack"
    SUPERSEDED = "Superseded"
    REVERTED = "Reverted"  # in the bake, or by undo
    EXPIRED = "Expired"  # the deadline came before a verdict, which says nothing of the version


LOST: Final = frozenset({Outcome.ROLLED_BACK, Outcome.REVERTED})  # the candidate was rolled back


class SeriesPoint(_RolloutModel):
    """Both arms over one or more consecutive windows, for reports and plots."""

    start: Instant = Field(description="of the first window")
    seconds: float = Field(description="of the windows together")
    candidate_requests: int = Field(description="that were counted")
    candidate_errors: int = Field(description="of these, answered 5xx")
    candidate_slow: int = Field(description="of these, slower than stable's 95th percentile")
    stable_requests: int = Field(description="that were counted")
    stable_errors: int = Field(description="of these, answered 5xx")
    stable_slow: int = Field(description="of these, slower than stable's 95th percentile")
    candidate_feedback: int = Field(0, description="answers whose truth was told")
    candidate_wrong: int = Field(0, description="of these")
    stable_feedback: int = Field(0, description="answers whose truth was told")
    stable_wrong: int = Field(0, description="of these")


class StepTraffic(_RolloutModel):
    """What requests a step has had since it began: only counts, so that no rule sees an answer."""

    candidate: int = Field(0, description="requests that came to the candidate's arm")
    since: Instant = Field(description="stable's are counted from then on")
    stable: int = Field(0, description="requests that the stable version judged in that time")
    named: int = Field(0, description="of these, with the name of a caller")
    groups: int = Field(0, description="groups of callers that these are of, one a bit")


class RolloutState(_RolloutModel):
    """One rollout, from its first shadow request to its end."""

    id: str = Field(description="salt of the split: other callers first in each rollout")
    candidate: ModelRef
    options: str = Field("", description="digest of the serving options of the candidate")
    claims_space: bool = Field(False, description="the candidate does, as its tag says")
    stable: ModelRef = Field(description="the version it is compared with, also in the bake")
    step: int = Field(0, description="of spec.rollout.steps, from 0")
    began: Instant = Field(description="its first step")
    step_began: Instant = Field(description="or the bake")
    paused_at: Instant | None = Field(None, description="null: it is not paused")
    paused_seconds: float = Field(0.0, description="of earlier pauses")
    passed_at: Instant | None = Field(
        None, description="served by the name of its space, and lacks only its cutover; null: not"
    )
    promoted_at: Instant | None = Field(None, description="the bake began")
    traffic: StepTraffic | None = Field(
        None, description="of this step; null if it was not counted from the step's beginning"
    )
    looked_through: Instant = Field(0.0, description="event time up to which windows are judged")
    checks: tuple[CheckResult, ...] = Field((), description="at the last look")
    evidence: dict[str, Any] = Field({}, description="of rollout/judge.py, and of nobody else")
    series: Annotated[tuple[SeriesPoint, ...], Field(max_length=SERIES_LIMIT)] = Field(
        (), description="both arms over time, for plots"
    )
    ended_at: Instant | None = Field(None, description="null: it goes on")
    outcome: Outcome | None = None
    reason: str = Field("", description="of its last step, or of its end")

    @property
    def figures(self) -> dict[str, float]:
        """The figures of the checks under ``<check>.<figure>``, for a line of history."""
        return {
            f"{check.name}.{name}": value
            for check in self.checks
            for name, value in check.figures.items()
        }


# What a person asks of a rollout


class Verb(StrEnum):
    """What a person can decide."""

    PROMOTE = "promote"
    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"
    UNDO = "undo"
    PIN = "pin"
    UNPIN = "unpin"
    RETRY = "retry"


class Command(_RolloutModel):
    """What a person decided, kept in ``metadata.annotations`` until the controller answered it."""

    id: str
    verb: Verb
    by: str = Field(description="who, as the API server or this machine knows them")
    at: float = Field(description="unix time, seconds")
    version: str | None = None
    reason: str = ""
    full: bool = Field(True, description="of promote: all callers at once, not the next step")
    stated: str = Field("", description="who they say they are, which nobody checks")
    space: str = Field("", description="of promote: only the version of it that has passed")

    def to_text(self) -> str:
        """As JSON, without what is at its default."""
        return self.model_dump_json(exclude_defaults=True)


class CommandOutcome(_RolloutModel):
    """What became of a command."""

    id: str = Field(description="of the command")
    verb: Verb
    by: str = Field(description="who gave it")
    at: Instant = Field(description="when it was given")
    accepted: bool = Field(description="false: it was refused, and changed nothing")
    said: str = Field(description="what was done, or why not")


COMMAND_PREFIX: Literal["command.headrace.dev/"] = "command.headrace.dev/"
# The user who wrote the command of the same id, which an admission policy can hold to be true.
COMMAND_BY_PREFIX: Literal["command-by.headrace.dev/"] = "command-by.headrace.dev/"
COMMANDS_LIMIT = 20

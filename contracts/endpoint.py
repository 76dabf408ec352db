"""The endpoint: what a user asks for (spec) and the one object that holds the truth (status).

Only the controller writes a status, and only against the revision that it read. Gateways and
loaders follow a summary of it (``contracts/endpoint_record.py``), which they swap in whole; a
program that cannot reach its source goes on with the last one. The same models describe the local
YAML and the custom resource in Kubernetes.
"""

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema

from contracts.durations import Duration, format_duration
from contracts.gateway_metrics import STAGE_SECONDS
from contracts.instants import Instant
from contracts.loading import DeviceKind
from contracts.model import DEFAULT_POOL, ENDPOINT_NAME, POOL_NAME, ModelRef
from contracts.rollout import (
    CommandOutcome,
    CustomStatistic,
    RolloutSpec,
    RolloutState,
    SameSpaceCheck,
    ShadowStep,
    Strategy,
    VectorSpace,
)
from contracts.tasks import GIVE_VECTORS, Task

API_VERSION: Literal["headrace.dev/v1alpha1"] = "headrace.dev/v1alpha1"
KIND: Literal["ModelEndpoint"] = "ModelEndpoint"
TENANT: Literal["headrace.dev/tenant"] = "headrace.dev/tenant"  # an annotation
HISTORY_LIMIT = 50
KEPT_LIMIT = 4  # vector spaces that are answered by name only
NAMED_LIMIT = 6  # Tritons that a list in a status names: all that watch are sent it
REASONS_LIMIT = 20  # rejections that keep their reason, the newest
_SHOWN_LABELS = 20  # in a sentence
REJECTIONS_LIMIT = 500  # records of rejections: some 70 kB


class _EndpointModel(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, alias_generator=to_camel
    )


class Precision(StrEnum):
    """Numeric precision of the engine's weights.

    ``auto`` depends on the device: int8 on CPUs and fp16 on GPUs if parity allows it, else fp32.
    """

    AUTO = "auto"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


class EngineChoice(StrEnum):
    """What runs a version in Triton.

    ``packed``: the model's own weights by torch, whose rows follow one another without padding.
    ``padded``: a graph by ONNX Runtime. ``auto`` takes ``packed`` in pools with GPUs if the
    model's architecture suits, else ``padded``.
    """

    AUTO = "auto"
    PADDED = "padded"
    PACKED = "packed"


class FollowVersion(_EndpointModel):
    """Follow the newest version of the registered model."""

    follow: Literal["latest"] = Field("latest", description="the newest version")


class AliasVersion(_EndpointModel):
    """Follow the version that an MLflow alias names."""

    alias: str = Field(description="of MLflow")


class PinnedVersion(_EndpointModel):
    """Stay on one version."""

    pin: str = Field(description="version number of MLflow")


class AnswerCacheOptions(_EndpointModel):
    """Keeps answers in each gateway's memory, for texts that come again. Off unless it is given."""

    megabytes: int = Field(ge=1, le=65536, description="of each gateway's memory")
    shared: bool = Field(
        False, description="between API keys; how fast an answer comes tells what others asked"
    )


class ServingOptions(_EndpointModel):
    """How a version is converted and served.

    A change makes a new package, but of ``instances`` and ``cache``, which change no answer.
    """

    precision: Precision = Precision.AUTO
    engine: EngineChoice = EngineChoice.AUTO
    instances: int | None = Field(
        None,
        ge=1,
        le=64,
        description="copies of a model that a Triton runs at once; left out: by its cores",
    )
    max_batch_size: int = Field(
        64, ge=1, le=1024, alias="maxBatchSize", description="texts that Triton runs at once"
    )
    max_tokens: int = Field(512, ge=8, le=32768, alias="maxTokens", description="tokens a text")
    length_buckets: Literal["auto"] | tuple[int, ...] = Field(
        "auto", alias="lengthBuckets", description="tokens that texts are padded to, growing; auto"
    )
    cache: AnswerCacheOptions | None = Field(None, description="of answers; left out: none")
    min_neighbours: float | None = Field(
        None,
        ge=0,
        le=1,
        alias="minNeighbours",
        description="share of each text's ten nearest that vectors below fp32 must keep",
    )

    @field_validator("length_buckets")
    @classmethod
    def _check_growth(
        cls, edges: Literal["auto"] | tuple[int, ...]
    ) -> Literal["auto"] | tuple[int, ...]:
        if edges != "auto" and any(a >= b for a, b in pairwise((0, *edges))):
            raise ValueError("must grow, from 1 token on")
        return edges

    def of_package(self) -> "ServingOptions":
        """What decides what a package is, the rest at its default."""
        return self.model_copy(update={"instances": None, "cache": None})


class EndpointLimits(_EndpointModel):
    """What one endpoint accepts before it refuses."""

    max_tokens_in_flight: int = Field(
        65536, ge=1, alias="maxTokensInFlight", description="at once in a gateway; beyond it 503"
    )
    max_texts_per_request: int = Field(
        256, ge=1, alias="maxTextsPerRequest", description="beyond it 413"
    )
    requests_per_second_per_key: float | None = Field(
        None, gt=0, alias="requestsPerSecondPerKey", description="null: no rate of its own"
    )
    timeout_seconds: float = Field(
        2.0, gt=0, le=600, alias="timeoutSeconds", description="that an answer may take"
    )


class UnkWords(_EndpointModel):
    """The list of the words that became UNK. Off by default: it holds pieces of callers' texts.

    Such words are kept in Kafka for as long as events and windows are.
    """

    enabled: bool = Field(False, description="keep words of callers' texts")
    top: int = Field(20, ge=1, le=100, description="words that are shown")


class Guardrail(_EndpointModel):
    """What guardrail clients are told of a text: which of these labels it has.

    A change takes effect at once, and makes no new package.
    """

    labels: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(
        min_length=1, max_length=200, description="scores by label from which on a text has it"
    )
    long_texts: Literal["block", "cut"] = Field(
        "block",
        alias="longTexts",
        description="block: a text that is longer than the model reads is blocked; "
        "cut: what is beyond is not checked",
    )

    def name_unknown(self, known: Sequence[str]) -> str:
        """Which labels no version gives, and which there are; empty if all are known."""
        missing = [label for label in self.labels if label not in known]
        if not missing:
            return ""
        there = f"it has {', '.join(known[:_SHOWN_LABELS])}" if known else "it has none"
        more = " and others" if len(known) > _SHOWN_LABELS else ""
        return f"the model has no label {', '.join(missing[:_SHOWN_LABELS])}; {there}{more}"


def _check_edge(threshold: float) -> float:
    """As it is, if the gateways' histogram has an edge there, so that nothing is interpolated."""
    if threshold not in STAGE_SECONDS.buckets:
        raise ValueError(f"must be one of {', '.join(_THRESHOLDS)}, at which gateways count")
    return threshold


_THRESHOLDS = [format_duration(edge) for edge in STAGE_SECONDS.buckets if edge * 1000 % 1 == 0]
Threshold = Annotated[
    Duration, AfterValidator(_check_edge), WithJsonSchema({"type": "string", "enum": _THRESHOLDS})
]


class LatencySlo(_EndpointModel):
    """``percentile`` percent of the answers come within ``threshold``."""

    percentile: float = Field(95, ge=75, le=99.99, description="percent of answers")
    threshold: Threshold = Field(description="that come within this time")


class Slo(_EndpointModel):
    """What callers were promised, over 30 days. Alerts are about how fast that is used up."""

    availability: float | None = Field(
        0.999, ge=0.9, le=0.99999, description="share of requests without a 5xx; null: no promise"
    )
    latency: LatencySlo | None = Field(None, description="null: no promise")


class EndpointSpec(_EndpointModel):
    """What a user asks for; all but the model has a default."""

    model: str = Field(
        min_length=1,
        description="MLflow registered model; WORKSPACE/MODEL where several workspaces are read",
    )
    version: FollowVersion | AliasVersion | PinnedVersion = Field(
        FollowVersion(), description="which one of the model's; the newest if it is left out"
    )
    task: Task | None = Field(None, description="from the model's own config if it says so")
    pool: str = Field(
        DEFAULT_POOL,
        pattern=f"^{POOL_NAME.pattern}$",
        description="of Tritons; only these hold its versions and answer",
    )
    sleeps: bool = Field(
        True,
        description="leaves its Tritons when idle, if the operator unloads idle models",
    )
    serving: ServingOptions = ServingOptions()
    rollout: RolloutSpec = RolloutSpec()
    limits: EndpointLimits = EndpointLimits()
    slo: Slo = Field(Slo(), description="what alerts hold the endpoint to")
    statistics: Annotated[tuple[CustomStatistic, ...], Field(max_length=50)] = Field(
        (), description="of the users' own"
    )
    unk_words: UnkWords = Field(
        UnkWords(), alias="unkWords", description="which words became UNK; off: it is text"
    )
    guardrail: Guardrail | None = Field(
        None, description="what clients of guardrails are told; null: they are refused"
    )


class Arm(StrEnum):
    """The role in which a version got a request."""

    STABLE = "stable"
    CANARY = "canary"
    SHADOW = "shadow"
    FORCED = "forced"
    CONTROL = "control"  # the version before, which keeps a few callers through the bake


CANDIDATES = (Arm.CANARY, Arm.SHADOW)  # arms of a version that is not promoted yet


class Route(_EndpointModel):
    """One arm of the routing table; the weights of stable, canary and control sum to 100.

    A shadow's weight stands apart: percent of requests that are copied to it.
    """

    arm: Arm
    ref: ModelRef
    weight: float = Field(ge=0, le=100, description="percent of callers")

    @classmethod
    def all_callers(cls, ref: ModelRef) -> "Route":
        """The one route of a version that has all callers."""
        return cls(arm=Arm.STABLE, ref=ref, weight=100)


class Phase(StrEnum):
    """Where the endpoint's newest version is on its way."""

    WAITING = "Waiting"
    CONVERTING = "Converting"
    VERIFYING = "Verifying"
    PUBLISHING = "Publishing"
    LOADING = "Loading"
    LOADED = "Loaded"  # every Triton holds it; what comes next is the rollout's
    SHADOW = "Shadow"
    CANARY = "Canary"
    PROMOTED = "Promoted"
    SETTLED = "Settled"
    SERVING = "Serving"  # stable at once: the first version, or the strategy ``direct``
    BLOCKED = "Blocked"
    REJECTED = "Rejected"
    ROLLED_BACK = "RolledBack"
    SUPERSEDED = "Superseded"
    EXPIRED = "Expired"  # its rollout came to no verdict by the deadline


class WaitsFor(StrEnum):
    """What an endpoint, or a version of it, waits for. Sentences are in ``contracts.waiting``."""

    CONTROLLER = "controller"  # which has not looked at the endpoint yet
    MLFLOW = "mlflow"  # to be read
    MODEL = "model"  # which MLflow lacks, and so on
    FIRST_VERSION = "first version"
    PINNED_VERSION = "pinned version"
    ALIAS = "alias"
    VERSION_OF_ALIAS = "version of the alias"
    LOST_VERSION = "lost version"  # serves, and was removed in MLflow
    LOST_PACKAGE = "lost package"  # also from the store
    NEWER_VERSION = "newer version"  # than those that are passed over
    TURN = "turn"  # of its conversion
    DEVICE = "device"
    CONVERSION = "conversion"
    RETRY = "retry"  # after a fault of what it needs
    STORE = "store"
    TRITONS = "tritons"
    LOADING = "loading"
    ROOM = "room"  # or whatever Tritons lack to load it
    SICK_TRITON = "sick triton"
    CEILING = "ceiling"
    ROLLOUT = "rollout"
    CHECKS = "checks"
    RESUME = "resume"
    PERSON = "person"  # who decides a rollout that stays in shadow
    BAKE = "bake"
    VERDICT = "verdict"  # of a person, on a version that was rolled back
    ANOTHER_TRY = "another try"  # of a version that came to no verdict
    FAULT = "fault"  # of Headrace itself, to be corrected
    POOL = "pool"  # that it moves to
    CALLER = "caller"  # of a version that sleeps


class Wait(_EndpointModel):
    """Something that an endpoint or a version waits for."""

    cause: WaitsFor
    since: Instant = Field(description="when it began to wait")
    version: str = Field("", description="that waits; empty: the endpoint itself")
    what: str = Field("", description="in words; empty: the candidate's reason, or as usual")


class Candidate(_EndpointModel):
    """The version that is on its way to stable, and why it is where it is."""

    version: str = Field(description="version number of MLflow")
    phase: Phase
    reason: str = Field("", description="why it is there")
    ref: ModelRef | None = None
    options: str = Field("", description="digest of the serving options")
    attempts: int = Field(0, description="that failed for something that may pass")
    crashes: int = Field(0, description="conversions in a row that ended without a result")
    retry_at: Instant | None = Field(None, description="when it is tried again")
    claims_space: bool = Field(
        False, description="MLflow's tag headrace.space of it is same: sameSpace tests that"
    )
    superseded: int = Field(
        0, description="versions before it, one after the other, that a newer one stopped"
    )


class Rejection(_EndpointModel):
    """A version that will not be tried again, unless a person asks for it."""

    version: str = Field(description="version number of MLflow")
    options: str = Field(description="digest of the serving options that it was judged under")
    reason: str = Field(description="empty for those long ago: MLflow's tags have it")
    at: Instant = Field(description="when it was rejected")
    expired: bool = Field(False, description="its rollout came to no verdict: nothing is known bad")

    @property
    def phase(self) -> Phase:
        """What the version is shown as."""
        return Phase.EXPIRED if self.expired else Phase.REJECTED


class Transition(_EndpointModel):
    """One line of the endpoint's history."""

    at: Instant = Field(description="when it happened")
    version: str = Field(description="version number of MLflow")
    phase: Phase
    reason: str = Field("", description="why, in a sentence")
    by: str = Field("", description="who decided; empty: Headrace itself")
    step: int | None = Field(None, description="of a rollout, from 0")
    figures: dict[str, float] = Field({}, description="of the checks at that moment")


class RecordRef(_EndpointModel):
    """Which of an endpoint's two records holds its whole status (``contracts.endpoint_record``)."""

    slot: Literal["a", "b"] = Field(description="of the two, the one that is current")
    digest: str = Field(description="of the record's text, which is no part of a record itself")


class KeptSpace(_EndpointModel):
    """A version whose vector space callers have left; it answers who names the space."""

    ref: ModelRef
    asked_at: Instant = Field(description="its last request, to within 1 % of embedding.keep")


class EndpointStatus(_EndpointModel):
    """The truth about an endpoint, written whole."""

    generation: int = Field(0, description="grows by one with every change of routes or packages")
    task: Task | None = None
    routes: tuple[Route, ...] = Field((), description="which version answers how many callers")
    packages: tuple[ModelRef, ...] = Field((), description="what every Triton must hold")
    pool: str = Field(DEFAULT_POOL, description="of Tritons, where callers are answered")
    device: DeviceKind = Field(
        DeviceKind.CPU, description="what the pool's Tritons compute on, as far as it was known"
    )
    kept: tuple[KeptSpace, ...] = Field(
        (),
        description=f"up to {KEPT_LIMIT} vector spaces, answered by name only, among packages",
    )
    next_pool: str = Field("", description="loads the packages, before callers go there")
    next_packages: tuple[ModelRef, ...] = Field(
        (), description="what nextPool loads in place of packages: the same for its own devices"
    )
    next_loading: tuple[str, ...] = Field(
        (), description="loaders of nextPool that may load it now; none named: all"
    )
    unserved: str = Field("", description="why no Triton of the pool can answer")
    unguarded: str = Field("", description="why the spec's guardrail refuses all callers")
    asleep: Instant | None = Field(
        None,
        description="since when the stable version is idle, so that Tritons need not hold "
        "it until somebody does",
    )
    cordoned: tuple[str, ...] = Field(
        (), description="loaders whose Tritons are sick, and out of service until they load again"
    )
    loading: tuple[str, ...] = Field(
        (), description="loaders that may bring the candidate in now; none named: all"
    )
    candidate: Candidate | None = None
    model_created: int = Field(
        0,
        description="when MLflow's model of the stable version was registered, as MLflow says: one "
        "that is registered again under its name counts its versions from 1; 0: unknown",
    )
    moves: str = Field(
        "", description="MODEL@ALIAS of MLflow that it moves on promotion, and no other endpoint"
    )
    rollout: RolloutState | None = Field(None, description="the one that goes on, bake included")
    last_rollout: RolloutState | None = Field(None, description="the last one that ended")
    commands: tuple[CommandOutcome, ...] = Field((), description="of people, and their answers")
    notes: tuple[str, ...] = Field((), description="wishes of the spec that can't be granted")
    waits: tuple[Wait, ...] = Field((), description="what it waits for, and what its versions do")
    refused: tuple[str, ...] = Field(
        (), description="wishes above the operator's ceilings: no version is taken in meanwhile"
    )
    rejected: tuple[Rejection, ...] = Field((), description="versions that are not tried again")
    rejected_through: int = Field(
        0, description="latest tries no version up to this number: too many newer were rejected"
    )
    history: Annotated[tuple[Transition, ...], Field(max_length=HISTORY_LIMIT)] = Field(
        (), description="what happened, the newest last"
    )
    record: RecordRef | None = Field(
        None, description="holds the whole status, of which this is a summary; null: this is whole"
    )
    writer: str = Field("", description="of the record: drawn by the controller that writes it")
    outdated: SkipJsonSchema[bool] = Field(
        False, exclude=True, description="about an earlier spec; told by a cluster, stored nowhere"
    )

    @property
    def stable(self) -> ModelRef | None:
        """The version that answers by default, if any has been promoted yet."""
        return next((route.ref for route in self.routes if route.arm is Arm.STABLE), None)

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools whose Tritons must hold packages; where callers are answered first."""
        return (self.pool, self.next_pool) if self.next_pool else (self.pool,)

    def held_in(self, pool: str) -> tuple[ModelRef, ...]:
        """What the Tritons of one of its pools must hold; one may be named several times."""
        if pool == self.next_pool and self.next_packages:
            return self.next_packages
        return (*(route.ref for route in self.routes), *self.packages)


class Metadata(_EndpointModel):
    """Name, revision and notes of people.

    ``revision`` is Kubernetes' resourceVersion or the file's counter; ``uid`` is Kubernetes' too,
    and empty for a file. ``annotations`` hold the commands that wait
    (``contracts.rollout.COMMAND_PREFIX``), and how far backfills are.
    """

    name: str = Field(pattern=f"^{ENDPOINT_NAME.pattern}$")
    uid: str = ""
    revision: str = ""
    annotations: dict[str, str] = {}


class ModelEndpoint(_EndpointModel):
    """The whole object, as stored."""

    api_version: Literal["headrace.dev/v1alpha1"] = Field(API_VERSION, alias="apiVersion")
    kind: Literal["ModelEndpoint"] = KIND
    metadata: Metadata
    spec: EndpointSpec
    status: EndpointStatus = EndpointStatus()

    @property
    def name(self) -> str:
        """The endpoint's name, as in its URLs."""
        return self.metadata.name

    @property
    def tenant(self) -> str:
        """Who shares the controller's time with the others: the annotation, or this endpoint."""
        return self.metadata.annotations.get(TENANT) or self.name

    @property
    def rollout_spec(self) -> RolloutSpec:
        """How its version is rolled out; see ``rollout_spec`` of this module."""
        return rollout_spec(self.spec, self.status)


def rollout_spec(spec: EndpointSpec, status: EndpointStatus) -> RolloutSpec:
    """``spec.rollout``, which is a cutover if the version brings another vector space.

    The vectors of two spaces can't be compared, so that callers who get one or the other would mix
    them in an index: in a canary, or in the bake that follows a shadow. A rollout that only copies
    names its shares, so that ceilings reach them.
    """
    asked = spec.rollout
    relation = None if asked.strategy is Strategy.DIRECT else _relate_spaces(spec, status)
    if relation is VectorSpace.CUTOVER:
        asked = asked.model_copy(update={"strategy": Strategy.CUTOVER})
    same = None
    if relation is VectorSpace.SAME:
        same = asked.checks.same_space or SameSpaceCheck()
        if not isinstance(asked.steps[0], ShadowStep):  # no caller before it is tested
            steps = (ShadowStep(shadow=100), *asked.steps)
            asked = asked.model_copy(update={"steps": steps})
    checks = asked.checks.model_copy(update={"same_space": same})
    return asked.model_copy(update={"steps": asked.planned, "checks": checks})


def may_bring_space(spec: RolloutSpec, *, claims_space: bool) -> bool:
    """Whether a version with another vector space would be cut over: of any dimension, then."""
    wish = spec.embedding.space or (VectorSpace.SAME if claims_space else VectorSpace.CUTOVER)
    return spec.strategy is not Strategy.DIRECT and wish is VectorSpace.CUTOVER


def _relate_spaces(spec: EndpointSpec, status: EndpointStatus) -> VectorSpace | None:
    """Of the two versions of the rollout, or the last one: whether no caller may be split.

    ``SAME`` is only claimed; None of vectors that may be compared, and of what gives none.
    """
    found = _find_versions(status)
    if (spec.task or status.task) not in GIVE_VECTORS or found is None:
        return None
    version, space, claims, old = found
    wish = spec.rollout.embedding.space or (VectorSpace.SAME if claims else None)
    another = version != old.version  # decides until the candidate has its package
    if space and old.space:
        another = space != old.space or (another and wish is VectorSpace.CUTOVER)
    return (wish or VectorSpace.CUTOVER) if another else None


def _find_versions(status: EndpointStatus) -> tuple[str, str, bool, ModelRef] | None:
    """Number, space and claim of the candidate, and what it is compared with; None if it is not."""
    state, candidate, stable = status.rollout, status.candidate, status.stable
    if state is None and candidate is not None and stable is not None:
        space = "" if candidate.ref is None else candidate.ref.space
        return candidate.version, space, candidate.claims_space, stable
    state = state or status.last_rollout
    if state is None:
        return None
    return state.candidate.version, state.candidate.space, state.claims_space, state.stable

"""What a Triton really holds, as its loader reports it to the controller.

Readers ignore fields that they don't know: in an upgrade old gateways read new loaders' reports.
"""

from enum import Enum, StrEnum
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field

from contracts.model import DEFAULT_POOL, ModelRef

# The name of the key that Triton asks loaders for, in its flags and in the metadata of calls.
CONTROL_KEY = "headrace-key"
# Where a loader is asked by POST for a model that left its Triton; Triton's name of it follows.
WAKE_PATH = "/wake/"
# The shortest time after which a model may leave: gateways rely on a loader's word for less.
LEAST_IDLE_SECONDS = 60.0


class WakeAnswer(Enum):
    """What a loader says of a model that somebody asks for: the status of its answer."""

    HELD = HTTPStatus.OK  # and it stays for another while
    COMING = HTTPStatus.ACCEPTED
    LEAVING = HTTPStatus.CONFLICT  # Triton is unloading it: ask again
    NO_ROOM = HTTPStatus.INSUFFICIENT_STORAGE  # beside what this Triton holds now
    UNKNOWN = HTTPStatus.NOT_FOUND  # no stable version has this name; or no answer at all


class DeviceKind(StrEnum):
    """What computes a Triton's batches."""

    CPU = "cpu"
    GPU = "gpu"


class Device(BaseModel):
    """What computes a Triton's batches, as the Triton's machine says it.

    ``fault`` is a sentence for people: why a GPU that was promised can't be used.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: DeviceKind = DeviceKind.CPU
    name: str = Field("", description="the GPU's, such as NVIDIA H200")
    count: int = Field(0, ge=0, description="GPUs")
    memory_bytes: int = Field(0, ge=0, description="of one GPU")
    free_bytes: int = Field(0, ge=0, description="of the GPU that has least free")
    busy: float = Field(0.0, ge=0, le=1, description="share of the time in which it computed")
    useful: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the tokens that packed engines computed which are of texts; null "
        "while none computes",
    )
    driver: str = ""
    fault: str = ""


class CostPoint(BaseModel):
    """Warm-up's measurement of one batch shape on the engine at hand.

    Of a packed engine ``bucket`` are the tokens of all rows of the batch, and ``batch`` is 1.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    bucket: int = Field(description="tokens a row, padding included")
    batch: int = Field(description="rows")
    milliseconds: float = Field(gt=0, description="median of the warm-up's runs")


class LoadedModel(BaseModel):
    """A package that Triton holds ready, with its measured cost table.

    The costs are those of a batch while ``instances`` copies run, each by this number of threads.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    ref: ModelRef
    costs: tuple[CostPoint, ...] = ()
    instances: int = Field(0, ge=0, description="batches that it runs at once; 0: not told")
    threads: int = Field(0, ge=0, description="CPU threads of one batch; 0: not told")


class FailureCause(StrEnum):
    """Who or what kept a package from being loaded."""

    UNKNOWN = ""
    REFUSED = "refused"  # Triton, in words of its own
    CRASHED = "crashed"  # Triton ended under it, more often than without it
    ROOM = "room"  # there is no memory or no disk for it
    DAMAGED = "damaged"  # the store holds other bytes than were published
    AWAY = "away"  # Triton, the store, a disk


class WitnessAnswer(StrEnum):
    """Whether a Triton that refused a package loads one that is known to be good, since then."""

    UNTRIED = ""
    LOADS = "loads"
    REFUSED = "refused"


class LoadFailure(BaseModel):
    """A package that a Triton does not hold, and why: facts, no verdict.

    Who is at fault is found from the reports of all Tritons (``registry/reconcile/blame.py``).
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    ref: ModelRef
    reason: str = Field(description="in Triton's own words, if it was Triton")
    by_version: bool = Field(
        description="the words blame the model, and this Triton loads one that is known to be good"
    )
    cause: FailureCause = FailureCause.UNKNOWN
    witness: WitnessAnswer = WitnessAnswer.UNTRIED
    again: bool = Field(False, description="it was refused again after a witness was loaded")
    persists: bool = Field(False, description="it failed several times in a row")

    @property
    def lasts(self) -> bool:
        """Whether it is more than a hiccup."""
        return self.persists or self.cause is FailureCause.CRASHED


class Trouble(BaseModel):
    """What is wrong with a package that Triton holds, and that goes on serving."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ref: ModelRef
    reason: str
    fails: bool = Field(
        False,
        description="Triton failed its probe twice in a row; not so of one that only took too "
        "long, nor of Python of its users' own",
    )


class LoaderReport(BaseModel):
    """Everything one loader knows of its Triton at one moment."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    loader: str
    triton_grpc: str = Field(description="host:port at which gateways reach this Triton")
    pool: str = Field(DEFAULT_POOL, description="the one that this Triton belongs to")
    device: Device | None = Field(None, description="None while it is not known")
    at: float = Field(description="unix time, seconds")
    ended_at: float = Field(
        0.0, description="unix time at which Triton was last found to have ended by itself, or 0"
    )
    ready: bool = Field(
        description="Triton answers and holds every stable package but those that long fail to load"
    )
    silent: bool = Field(False, description="Triton has not answered its loader for minutes")
    loaded: tuple[LoadedModel, ...] = ()
    failed: tuple[LoadFailure, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    idle: tuple[str, ...] = Field(
        (), description="packages that are loaded, and that nobody has asked for in a long time"
    )
    asleep: dict[str, float] = Field(
        {}, description="packages that left for that, and the seconds that their last load took"
    )
    wake_address: str = Field(
        "", description="host:port at which gateways have such a model come back; empty: nowhere"
    )
    cordoned: bool = Field(
        False, description="the controller took this Triton out of service: no caller is sent here"
    )
    wake_key: str = Field("", repr=False, description="what they show there, new at each start")

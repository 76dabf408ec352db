"""What the controller and a conversion process say to each other.

The controller starts ``python -m registry.convert`` (a subprocess locally, a Job in Kubernetes)
with a ``ConversionRequest`` as JSON in a file and the path of the file that takes the result. The
process downloads the version, detects its flavour, converts, verifies and publishes where the
request says. It prints ``ConversionProgress`` as one JSON object a line on standard output, and
writes one ``PublishedPackage`` or ``ConversionFailure`` into the result's file. What it prints is
shown and never acted upon: a version's code may print too. An end without a result (a crash, a
signal) blames nobody: it is tried again a few times. A limit that the launcher itself enforces is
the version's own fault.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from contracts.endpoint import Phase, ServingOptions
from contracts.features import Feature
from contracts.loading import DeviceKind
from contracts.model import ModelRef
from contracts.tasks import GIVE_VECTORS, Task
from registry.pyfunc.process import PyfuncLimits

# Of a result's file: the kubelet reads so much of a container's termination message.
MOST_RESULT_BYTES = 4096
_MOST_REASON_BYTES = 3000  # of UTF-8; JSON's escapes are bounded apart
_MOST_MESSAGE = 500


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Signature(_Message):
    """What a caller relies on: a new version must keep it, unless a person allows otherwise."""

    task: Task
    labels: tuple[str, ...] = ()
    dimension: int | None = Field(None, description="of a vector; null: any")
    prompts: tuple[str, ...] = Field((), description="names, sorted")
    features: tuple[Feature, ...] = Field((), description="of rows of a table")
    answers: tuple[Feature, ...] = Field((), description="what is counted of answers")

    def of_any_dimension(self) -> "Signature":
        """The same for a version that is cut over, whose vectors get an index of their own."""
        return self.model_copy(update={"dimension": None}) if self.task in GIVE_VECTORS else self

    def broken_by(self, new: "Signature") -> str:
        """Why callers of this version could not go on with a new one; empty if they can."""
        if self.task != new.task:
            return f"its task is {new.task}, the stable version's is {self.task}"
        if set(self.labels) != set(new.labels):
            gone = ", ".join(sorted(set(self.labels) - set(new.labels))) or "none"
            added = ", ".join(sorted(set(new.labels) - set(self.labels))) or "none"
            return f"its labels are not those of the stable version: gone {gone}; new {added}"
        if self.labels != new.labels:
            return (
                f"its labels are {list(new.labels)}, in another order than the stable version's "
                f"{list(self.labels)}"
            )
        if None not in (self.dimension, new.dimension) and self.dimension != new.dimension:
            return f"its dimension is {new.dimension}, the stable version's is {self.dimension}"
        if gone_prompts := set(self.prompts) - set(new.prompts):
            names = ", ".join(sorted(gone_prompts))
            return f"it has no prompt {names}, which callers of the stable version may name"
        return _broken_features(self.features, new.features)


def _broken_features(ours: tuple[Feature, ...], new: tuple[Feature, ...]) -> str:
    """Why rows for a version could not go to a new one; empty if they can."""
    names, others = [each.name for each in ours], [each.name for each in new]
    if names != others:
        gone = ", ".join(name for name in names if name not in others) or "none"
        added = ", ".join(name for name in others if name not in names) or "none"
        return (
            f"its features are not those of the stable version in their order: gone {gone}; "
            f"new {added}"
        )
    for one, other in zip(ours, new, strict=True):
        if one.kind is not other.kind:
            return f"its feature {one.name} is {other.kind}, the stable version's is {one.kind}"
        if one.nullable and not other.nullable:
            return f"its feature {one.name} may not be missing, which the stable version's may"
        if one.unseen and not other.unseen:
            return (
                f"its feature {one.name} takes known categories alone, the stable version's takes "
                "any"
            )
        if not other.unseen and (lost := set(one.categories) - set(other.categories)):
            return (
                f"its feature {one.name} lacks categories that the stable version knows: "
                f"{', '.join(sorted(lost)[:5])}"
            )
    return ""


class ConversionRequest(_Message):
    """One version to turn into a package."""

    tracking_uri: str
    model: str
    version: str
    store_url: str = Field(description="any fsspec URL; the launcher makes it the conversion's own")
    serving: ServingOptions
    task: Task | None = None
    stable: Signature | None = Field(None, description="signature to keep")
    allow_pickle: bool = False
    allow_remote_code: bool = False
    sources: tuple[str, ...] = Field((), description="URLs below which artifacts may lie")
    model_code: bool = Field(False, description="gateways run the code that versions bring")
    pyfunc: PyfuncLimits | None = Field(
        None, description="of Python of users' own; none: it is refused"
    )
    device: DeviceKind = Field(DeviceKind.CPU, description="of the Tritons that will run it")
    threads: int = 1
    work_dir: str = Field(description="scratch folder, removed by the launcher")


class ConversionProgress(_Message):
    """A step that has begun, for those who watch."""

    kind: Literal["progress"] = "progress"
    phase: Literal[Phase.WAITING, Phase.CONVERTING, Phase.VERIFYING, Phase.PUBLISHING]
    message: Annotated[str, Field(max_length=_MOST_MESSAGE)]


class PublishedPackage(_Message):
    """The package is where the request said."""

    kind: Literal["published"] = "published"
    ref: ModelRef


class ConversionFailure(_Message):
    """No package. ``by_version``: the version itself is at fault, trying again would not help.

    ``crashed``: the conversion ended without a result, as its launcher saw; it is in no file.
    """

    kind: Literal["failed"] = "failed"
    reason: str
    by_version: bool
    crashed: bool = Field(False, exclude=True)
    needs_export: bool = Field(False, description="torch and transformers are not installed here")


_RESULT: TypeAdapter[PublishedPackage | ConversionFailure] = TypeAdapter(
    Annotated[PublishedPackage | ConversionFailure, Field(discriminator="kind")]
)


def progress_of(line: str | bytes) -> ConversionProgress | None:
    """A printed line that is progress; None for any other."""
    try:
        return ConversionProgress.model_validate_json(line)
    except ValidationError:
        return None


def result_of(data: str | bytes) -> PublishedPackage | ConversionFailure | None:
    """What the result's file says; None if it says nothing of this schema."""
    if len(data) > MOST_RESULT_BYTES:
        return None
    try:
        return _RESULT.validate_json(data)
    except ValidationError:
        return None


def result_file(result: PublishedPackage | ConversionFailure) -> bytes:
    """The content of a result's file: a reason that is too long for it is cut."""
    data = result.model_dump_json().encode()
    most = _MOST_REASON_BYTES
    while len(data) > MOST_RESULT_BYTES and isinstance(result, ConversionFailure):
        cut = result.reason.encode()[:most].decode(errors="ignore")
        data = result.model_copy(update={"reason": f"{cut}..."}).model_dump_json().encode()
        most //= 2
    return data


@dataclass(frozen=True, slots=True)
class Conditions:
    """What of the controller's own settings decides how a version is converted."""

    threads: int = 1
    allow_pickle: bool = False
    allow_remote_code: bool = False
    sources: tuple[str, ...] = ()
    # Not in the key of a conversion: without them, a version with code waits, and is no other.
    model_code: bool = False
    pyfunc: PyfuncLimits | None = None


@dataclass(frozen=True, slots=True)
class Package:
    """What a conversion made, and what its callers rely on."""

    ref: ModelRef
    signature: Signature

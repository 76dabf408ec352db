"""What the controller sees of an endpoint's surroundings, and what a plan makes of it.

Values alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.endpoint import EndpointStatus
from contracts.loading import LoaderReport
from contracts.model import ModelRef
from registry.conversions.messages import Failed, Progress, Signature


@dataclass(frozen=True, slots=True)
class Version:
    """A registered version, with the digest of all that decides how it is converted.

    ``earlier`` is the digest that earlier releases gave it; empty where it is the same.
    """

    number: str
    options: str
    earlier: str = ""


@dataclass(frozen=True, slots=True)
class Package:
    """What a conversion made, and what its callers rely on."""

    ref: ModelRef
    signature: Signature


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known at the moment of a pass.

    ``versions`` is newest first and None where MLflow never answered. ``packages`` and ``jobs`` go
    by a version's options. ``fault`` says why ``packages`` may be incomplete. ``stable_gone`` says
    that the store lacks the stable version's package: ``stable`` is then that of the package made
    anew of the same version, if there is one. ``loaders`` gave a sign of life lately.
    """

    versions: tuple[Version, ...] | None
    aliases: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, Package] = field(default_factory=dict)
    jobs: Mapping[str, Progress | Failed] = field(default_factory=dict)
    loaders: tuple[LoaderReport, ...] = ()
    stable: Signature | None = None
    stable_gone: bool = False
    fault: str = ""
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The status to write, and the version whose conversion must be running, if one must."""

    status: EndpointStatus
    convert: Version | None = None

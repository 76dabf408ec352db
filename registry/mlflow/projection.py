"""What MLflow should say about versions: a copy of what the endpoints' statuses record. Pure.

Whatever MLflow says otherwise is made so by ``write_back.py``, at once or when MLflow is back; a
verdict never depends on it. Of a version that neither status nor history names any more nothing is
told, and what was told stays.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from contracts.endpoint import (
    AliasVersion,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Transition,
    WaitsFor,
)
from contracts.model import workspace_of
from contracts.rollout import RolloutSpec, RolloutState
from contracts.waiting import describe_with_time

PREFIX = "headrace"
TAG_CHARACTERS = 500
WAITS = "waits"  # the end of the name of a tag that only versions that wait may have
_USUAL_ALIAS = RolloutSpec().alias

PROMOTED = "Promoted"
# A version that is on its way has no verdict yet.
_VERDICTS = {
    Phase.SERVING: PROMOTED,
    Phase.PROMOTED: PROMOTED,
    Phase.SETTLED: PROMOTED,
    Phase.BLOCKED: Phase.BLOCKED.value,
    Phase.REJECTED: Phase.REJECTED.value,
    Phase.ROLLED_BACK: Phase.ROLLED_BACK.value,
    Phase.SUPERSEDED: Phase.SUPERSEDED.value,
    Phase.EXPIRED: Phase.EXPIRED.value,
}
_WITH_REASON = frozenset(
    {Phase.BLOCKED, Phase.REJECTED, Phase.ROLLED_BACK, Phase.SUPERSEDED, Phase.EXPIRED}
)


@dataclass(frozen=True, slots=True)
class VersionTags:
    """The tags of one version that one endpoint is responsible for."""

    model: str
    version: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RequiredAlias:
    """An alias of a model that must name this version."""

    model: str
    alias: str
    version: str


@dataclass(frozen=True, slots=True)
class ShownRollout:
    """A rollout whose verdict must be shown in the run that made the version."""

    endpoint: ModelEndpoint
    state: RolloutState

    @property
    def model(self) -> str:
        """The registered model."""
        return self.endpoint.spec.model

    @property
    def version(self) -> str:
        """The version that the verdict is about."""
        return self.state.candidate.version

    @property
    def folder(self) -> str:
        """Where the files lie within the run's artifacts."""
        return f"{PREFIX}/{self.endpoint.name}/v{self.version}"

    @property
    def digest(self) -> str:
        """Another one with each verdict, and none between two of them."""
        state = self.state
        parts = [
            state.id,
            state.candidate.package,
            state.promoted_at,
            state.ended_at,
            state.outcome,
            state.reason,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def tag(self, name: str) -> str:
        """The name of a tag about these files."""
        return _tag(self.endpoint, name)


@dataclass(frozen=True, slots=True)
class Projection:
    """All that MLflow should say."""

    tags: tuple[VersionTags, ...] = ()
    aliases: tuple[RequiredAlias, ...] = ()
    evidence: tuple[ShownRollout, ...] = ()

    def of_workspace(self, workspace: str) -> "Projection":
        """What one workspace of MLflow should say."""
        return Projection(
            tuple(item for item in self.tags if workspace_of(item.model) == workspace),
            tuple(item for item in self.aliases if workspace_of(item.model) == workspace),
            tuple(item for item in self.evidence if workspace_of(item.model) == workspace),
        )


def projection(endpoints: Iterable[ModelEndpoint], alias_models: Sequence[str] = ()) -> Projection:
    """What MLflow should say about the versions that these endpoints know of.

    ``alias_models``: as in ``alias_refusals``.
    """
    every = tuple(endpoints)
    refusals = alias_refusals(every, alias_models)
    return Projection(
        tags=tuple(tags for endpoint in every for tags in _tags(endpoint)),
        aliases=tuple(
            RequiredAlias(
                endpoint.spec.model, endpoint.spec.rollout.alias, endpoint.status.stable.version
            )
            for endpoint in every
            if endpoint.spec.rollout.alias
            and endpoint.status.stable is not None
            and endpoint.status.stable.model == endpoint.spec.model
            and endpoint.name not in refusals
        ),
        evidence=tuple(item for endpoint in every for item in _evidence(endpoint)),
    )


def alias_refusals(
    endpoints: Iterable[ModelEndpoint], alias_models: Sequence[str] = ()
) -> dict[str, str]:
    """Why an endpoint's alias is not moved, by the endpoint's name; empty if nobody asked.

    An alias that the endpoint follows itself would be moved by what it decides. Of two endpoints
    that would move one alias of one model, the one that moves it already goes on; of new ones, the
    first by name does.

    Args:
        endpoints: all that there are.
        alias_models: the models whose aliases the operator lets endpoints move, as patterns
            (``team-a-*``). Any endpoint may name any model, and an alias is moved with the
            controller's rights.
    """
    refusals: dict[str, str] = {}
    owners: dict[tuple[str, str], str] = {}
    for endpoint in sorted(endpoints, key=lambda item: (not _moves_already(item), item.name)):
        spec = endpoint.spec
        alias = spec.rollout.alias
        if not alias:
            continue
        if isinstance(spec.version, AliasVersion) and spec.version.alias == alias:
            refusals[endpoint.name] = (
                f"the alias {alias} is not moved on promotion, because the endpoint follows it: "
                "set spec.rollout.alias to another one, or to null"
            )
            continue
        if not any(fnmatchcase(spec.model, pattern) for pattern in alias_models):
            # The usual alias stands in every specification: nobody may have asked for it.
            refusals[endpoint.name] = (
                "" if alias == _USUAL_ALIAS else _not_allowed(spec.model, alias)
            )
            continue
        owner = owners.setdefault((spec.model, alias), endpoint.name)
        if owner != endpoint.name:
            refusals[endpoint.name] = (
                f"the alias {alias} of {spec.model} is not moved on promotion, because the "
                f"endpoint {owner} moves it: set spec.rollout.alias to another one, or to null"
            )
    return refusals


def moved_alias(endpoint: ModelEndpoint) -> str:
    """The alias that it is to move, as ``status.moves`` has it; empty if there is none."""
    spec = endpoint.spec
    return f"{spec.model}@{spec.rollout.alias}" if spec.rollout.alias else ""


def _moves_already(endpoint: ModelEndpoint) -> bool:
    return endpoint.status.moves == moved_alias(endpoint) != ""


def _not_allowed(model: str, alias: str) -> str:
    return (
        f"the alias {alias} of {model} is not moved on promotion, because the operator does not "
        "let endpoints move aliases of that model (mlflow.aliasModels)"
    )


def _tags(endpoint: ModelEndpoint) -> Iterable[VersionTags]:
    status, waits, spaces = endpoint.status, _waits(endpoint), _spaces(endpoint.status)
    if status.stable is not None and status.stable.model != endpoint.spec.model:
        return  # numbers of its status are another model's
    last = {line.version: line for line in status.history}
    for version, line in last.items():
        phase = _phase(status, line)
        tags = {
            _tag(endpoint, "verdict"): _VERDICTS.get(phase, ""),
            _tag(endpoint, "reason"): line.reason[:TAG_CHARACTERS] if phase in _WITH_REASON else "",
            _tag(endpoint, "phase"): phase.value,
            _tag(endpoint, WAITS): waits.get(version, ""),
        }
        if version in spaces:
            tags[_tag(endpoint, "space")] = spaces[version]
        yield VersionTags(endpoint.spec.model, version, tags)
    for version in waits.keys() - last.keys():
        yield VersionTags(endpoint.spec.model, version, {_tag(endpoint, WAITS): waits[version]})


def _spaces(status: EndpointStatus) -> Mapping[str, str]:
    """The vector space of each version whose package is known, if it has one."""
    refs = [*status.packages, *(route.ref for route in status.routes)]
    if status.candidate is not None and status.candidate.ref is not None:
        refs.append(status.candidate.ref)
    return {ref.version: ref.space for ref in refs if ref.space}


def _waits(endpoint: ModelEndpoint) -> Mapping[str, str]:
    """For what each version waits, and the one that serves, or comes first, for its endpoint."""
    status = endpoint.status
    own, told = status.stable or status.candidate, dict[str, str]()
    ours = WaitsFor.FAULT
    for wait in sorted(status.waits, key=lambda it: (it.cause is not ours, not it.version)):
        version = wait.version or (own.version if own is not None else "")
        if version and version not in told:
            told[version] = describe_with_time(endpoint.name, status, wait, TAG_CHARACTERS)
    return told


def _phase(status: EndpointStatus, line: Transition) -> Phase:
    """Where the version is; history leaves out what comes and goes, such as waiting to retry."""
    candidate = status.candidate
    if candidate is not None and candidate.version == line.version:
        return line.phase if candidate.phase is Phase.WAITING else candidate.phase
    return line.phase


def _evidence(endpoint: ModelEndpoint) -> Iterable[ShownRollout]:
    """Verdicts in force, one a version: a retried version's last one counts."""
    found: dict[str, ShownRollout] = {}
    status = endpoint.status
    for state in (status.last_rollout, status.rollout):
        if state is None or state.candidate.model != endpoint.spec.model:
            continue
        if state.promoted_at is not None or state.ended_at is not None:
            found[state.candidate.version] = ShownRollout(endpoint, state)
    return found.values()


def _tag(endpoint: ModelEndpoint, name: str) -> str:
    return f"{PREFIX}.{endpoint.name}.{name}"

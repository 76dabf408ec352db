"""What an endpoint and its versions wait for, by their causes. Pure.

Every state in which something waits has one, else an endpoint with a mistyped model would wait for
ever and not say for what. The words are those of ``contracts.waiting``, and for what only this pass
knows (a name, a number) those here.
"""

from collections.abc import Iterable, Iterator, Sequence

from contracts.endpoint import (
    AliasVersion,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    FollowVersion,
    Phase,
    PinnedVersion,
    Wait,
    WaitsFor,
    rollout_spec,
)
from contracts.loading import FailureCause, LoadFailure
from contracts.model import ModelRef
from contracts.rollout import Strategy
from contracts.status_events import is_passed_over
from contracts.waiting import OF_PHASE
from registry.mlflow.model_registry import MlflowSnapshot
from registry.reconcile.blame import judge
from registry.reconcile.plan import ObservedState, find_version

_OF_CONVERSION = frozenset({Phase.WAITING, Phase.CONVERTING, Phase.VERIFYING, Phase.PUBLISHING})
_MOST_NAMED = 3

_UNDATED = 0.0


def list_waits(
    spec: EndpointSpec,
    status: EndpointStatus,
    seen: ObservedState,
    snapshot: MlflowSnapshot | None,
    *,
    sick: Sequence[str] = (),
    fault: str = "",
    before: Iterable[Wait] = (),
    now: float,
) -> tuple[Wait, ...]:
    """All that is waited for, each with since when."""
    found = [_wait(WaitsFor.FAULT, fault)] if fault else []
    found += _endpoints_own(spec, status, seen, snapshot, sick)
    if status.candidate is not None:
        found += _candidates(spec, status, status.candidate, seen)
    if not found and status.stable is None:
        found = [_wait(WaitsFor.MLFLOW)]
    since = {(wait.cause, wait.version): wait.since for wait in before}
    return tuple(
        wait.model_copy(update={"since": since.get((wait.cause, wait.version), now)})
        if wait.since == _UNDATED
        else wait
        for wait in found
    )


def with_fault(waits: Iterable[Wait], said: str, now: float) -> tuple[Wait, ...]:
    """The waits of the last pass, and before them that Headrace can't go on, in these words."""
    waits = tuple(waits)
    since = next((wait.since for wait in waits if wait.cause is WaitsFor.FAULT), now)
    others = (wait for wait in waits if wait.cause is not WaitsFor.FAULT)
    return (_wait(WaitsFor.FAULT, said, since=since), *others)


def _wait(cause: WaitsFor, what: str = "", *, version: str = "", since: float = _UNDATED) -> Wait:
    return Wait(cause=cause, since=since, version=version, what=what)


# Of the endpoint itself


def _endpoints_own(
    spec: EndpointSpec,
    status: EndpointStatus,
    seen: ObservedState,
    snapshot: MlflowSnapshot | None,
    sick: Sequence[str],
) -> Iterator[Wait]:
    stable = status.stable
    if snapshot is not None and snapshot.unfollowed:
        yield _wait(WaitsFor.MODEL, snapshot.unfollowed)
    else:
        yield from _list_lacking(spec, status, seen, snapshot)
    remade = status.candidate is not None and status.rollout is None
    if seen.stable_gone and not seen.fault and stable is not None and not remade:
        yield _wait(
            WaitsFor.LOST_PACKAGE,
            f"the package store lacks the package of version {stable.version}, which serves",
        )
    loads = status.candidate is not None and status.candidate.phase is Phase.LOADING
    if status.unserved and stable is not None and seen.loaders:
        yield _find_unheld(stable, status.unserved, seen)
    elif status.unserved and not loads:
        yield _wait(WaitsFor.TRITONS, status.unserved)
    if sick:
        more = len(sick) - _MOST_NAMED
        others = (f"{more} more are sick",) if more > 0 else ()
        yield _wait(WaitsFor.SICK_TRITON, "; ".join((*sick[:_MOST_NAMED], *others)))
    if stable is not None and spec.pool != status.pool and not seen.refused:
        answers = f"{status.pool} goes on answering"
        if seen.move_fault and status.rollout is None:
            is_there = find_version(seen, stable.version) is not None
            yield _wait(
                WaitsFor.VERDICT if is_there else WaitsFor.LOST_VERSION,
                f"version {stable.version} can't be served in the pool {spec.pool}, and {answers}: "
                f"{seen.move_fault}",
                version=stable.version,
            )
        else:
            said = f"callers move to the pool {spec.pool} once all its Tritons hold what they need"
            yield _wait(WaitsFor.POOL, f"{said}, and {answers}")
    if stable is not None and status.asleep is not None:
        yield _wait(WaitsFor.CALLER, since=status.asleep)


def _find_unheld(stable: ModelRef, said: str, seen: ObservedState) -> Wait:
    """Why no Triton of the pool holds the version that serves."""
    told = [each for one in seen.loaders for each in one.failed if each.ref == stable]
    why = told[0].reason if told else seen.fault
    cause = _judge_failures(told) if told else WaitsFor.LOADING
    return _wait(WaitsFor.STORE if seen.fault else cause, f"{said}: {why}" if why else said)


def _judge_failures(told: Iterable[LoadFailure]) -> WaitsFor:
    """What Tritons that failed to load a package wait for."""
    return WaitsFor.ROOM if FailureCause.ROOM in {each.cause for each in told} else WaitsFor.RETRY


def _list_lacking(
    spec: EndpointSpec, status: EndpointStatus, seen: ObservedState, snapshot: MlflowSnapshot | None
) -> Iterator[Wait]:
    """What the endpoint names and MLflow, as it was last read, lacks."""
    stable, model = status.stable, spec.model
    # One look that missed a model is believed at once if nothing is lost by it.
    is_new = stable is None and status.candidate is None
    if snapshot is None or (seen.versions is None and (model in snapshot.models or not is_new)):
        return
    serving = "" if stable is None else f"; version {stable.version} goes on serving"
    tried = status.rollout.candidate.version if status.rollout else ""
    if tried and find_version(seen, tried) is None:
        said = f"version {tried} is not in MLflow any more, and its rollout goes on"
        yield _wait(WaitsFor.LOST_VERSION, said, version=tried)
    if model not in snapshot.models:
        yield _wait(WaitsFor.MODEL, f"MLflow has no registered model {model}{serving}")
    elif (missing := _find_missing(spec, seen)) is not None:
        cause, said = missing
        yield _wait(cause, said + serving)
    elif not seen.versions and stable is None:
        yield _wait(WaitsFor.FIRST_VERSION, f"MLflow's model {model} has no version")
    elif (
        stable is not None and stable.model == model and find_version(seen, stable.version) is None
    ):
        yield _wait(
            WaitsFor.LOST_VERSION,
            f"version {stable.version} serves and is not in MLflow any more",
        )
    elif isinstance(spec.version, FollowVersion) and seen.versions:
        newest = seen.versions[0].number
        if status.candidate is None and is_passed_over(status, newest):
            yield _wait(
                WaitsFor.NEWER_VERSION,
                f"version {newest} is not tried: too many were rejected, so that those up to "
                f"version {status.rejected_through} are passed over",
            )


def _find_missing(spec: EndpointSpec, seen: ObservedState) -> tuple[WaitsFor, str] | None:
    """The version that the spec asks for, if MLflow has none such."""
    match spec.version:
        case PinnedVersion(pin=number) if find_version(seen, number) is None:
            return WaitsFor.PINNED_VERSION, f"MLflow has no version {number} of {spec.model}"
        case AliasVersion(alias=alias) if alias not in seen.aliases:
            return WaitsFor.ALIAS, f"MLflow's model {spec.model} has no alias {alias}"
        case AliasVersion(alias=alias) if find_version(seen, seen.aliases[alias]) is None:
            number = seen.aliases[alias]
            said = f"the alias {alias} of {spec.model} names version {number}, which MLflow lacks"
            return WaitsFor.VERSION_OF_ALIAS, said
        case _:
            return None


# Of the newest version


def _candidates(
    spec: EndpointSpec, status: EndpointStatus, candidate: Candidate, seen: ObservedState
) -> Iterator[Wait]:
    """Why the newest version is where it is; nothing if it waits for nothing."""
    phase = candidate.phase
    if phase is Phase.BLOCKED:
        cause: WaitsFor | None = _find_block(status, candidate, seen)
    elif phase in {Phase.SHADOW, Phase.CANARY, Phase.PROMOTED}:
        cause = _rollouts(spec, status, phase)
    else:
        cause = _find_preparation(status, candidate, seen) or OF_PHASE[phase]
    said = ""
    if cause is WaitsFor.STORE:
        said = seen.fault
    elif cause is WaitsFor.LOADING and not candidate.reason:
        said = _describe_unloaded(candidate, seen)
    elif phase is Phase.BLOCKED and cause in {WaitsFor.ROOM, WaitsFor.RETRY}:
        said = _describe_failures(candidate, seen)
    if cause is not None:
        yield _wait(cause, said, version=candidate.version)


def _find_preparation(
    status: EndpointStatus, candidate: Candidate, seen: ObservedState
) -> WaitsFor | None:
    """What a version waits for before its rollout, if it is not what its phase says."""
    phase = candidate.phase
    if phase is Phase.LOADED:
        return WaitsFor.BAKE if status.rollout is not None else None
    if phase is Phase.LOADING:
        loads = WaitsFor.TRITONS if status.unserved and not seen.loaders else None
        return WaitsFor.STORE if seen.fault else loads
    if phase is Phase.WAITING and (seen.unsaid or seen.busy):
        return WaitsFor.DEVICE if seen.unsaid else WaitsFor.TURN
    return WaitsFor.RETRY if phase in _OF_CONVERSION and candidate.attempts else None


def _describe_unloaded(candidate: Candidate, seen: ObservedState) -> str:
    lacking = sorted(
        report.loader
        for report in judge(seen.loaders).deciding(seen.loaders)
        if all(model.ref != candidate.ref for model in report.loaded)
    )
    if not lacking:
        return ""
    more = f" and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
    return f"not loaded yet by {', '.join(lacking[:_MOST_NAMED])}{more}"


def _find_block(status: EndpointStatus, candidate: Candidate, seen: ObservedState) -> WaitsFor:
    if seen.refused:
        return WaitsFor.CEILING
    if candidate.retry_at is not None:
        return WaitsFor.RETRY
    unknown = status.stable is not None and seen.stable is None and not seen.stable_gone
    if seen.fault or unknown:
        return WaitsFor.STORE
    told = _list_failures(candidate, seen)
    return _judge_failures(told) if told else WaitsFor.ROOM


def _list_failures(candidate: Candidate, seen: ObservedState) -> list[LoadFailure]:
    loaders = (*seen.loaders, *(seen.next_pool.loaders if seen.next_pool else ()))
    return [each for one in loaders for each in one.failed if each.ref == candidate.ref]


def _describe_failures(candidate: Candidate, seen: ObservedState) -> str:
    """What Tritons say of it, if not all say the same: one refuses it, and others have no room."""
    reasons = dict.fromkeys(each.reason for each in _list_failures(candidate, seen))
    others = [each for each in reasons if each not in candidate.reason]
    return "; ".join((candidate.reason, *others[: _MOST_NAMED - 1])) if others else ""


def _rollouts(spec: EndpointSpec, status: EndpointStatus, phase: Phase) -> WaitsFor | None:
    state = status.rollout
    if state is not None and state.paused_at is not None:
        return WaitsFor.RESUME
    asked = rollout_spec(spec, status)
    last = state is not None and state.step >= len(asked.planned) - 1
    is_held = phase is Phase.SHADOW and asked.strategy is Strategy.SHADOW and last
    if is_held or (state is not None and state.passed_at is not None):
        return WaitsFor.PERSON
    return OF_PHASE[phase]

"""The endpoint's next status, as a pure function of what is: no clock, no network, no file.

It brings the newest good version as far as ``Loaded`` on every Triton. The first one gets all
traffic then, and so does each under the strategy ``direct``. From there on a version is a rollout's
(``rollout/machine.py``), and nothing here changes while one goes on before its promotion. A version
at fault is rejected and never tried again under the same options; a fault of the environment blocks
and is tried again. Being killed between two calls changes nothing: everything it needs to go on is
in the status and in what is observed. What happened is written by ``contracts.status_events``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from contracts.backoff import Backoff
from contracts.endpoint import (
    AliasVersion,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    FollowVersion,
    Phase,
    PinnedVersion,
    Rejection,
    may_bring_space,
)
from contracts.loading import DeviceKind, LoaderReport, LoadFailure
from contracts.model import ModelRef
from contracts.rollout import Outcome, Strategy
from contracts.status_events import (
    CandidateUpdate,
    DirectRelease,
    HistoryNote,
    VersionRejection,
    apply,
    is_passed_over,
    rejection_of,
)
from registry.conversions.messages import ConversionFailure, ConversionProgress, Package, Signature
from registry.reconcile import pools
from registry.reconcile.blame import judge

# The phases that are decided here; all others are a rollout's, or an end.
_PREPARING = frozenset(
    {
        Phase.WAITING,
        Phase.CONVERTING,
        Phase.VERIFYING,
        Phase.PUBLISHING,
        Phase.LOADING,
        Phase.LOADED,
        Phase.BLOCKED,
    }
)
ENDED = frozenset({Phase.REJECTED, Phase.ROLLED_BACK, Phase.EXPIRED})
_BEGUN = frozenset({Phase.CONVERTING, Phase.VERIFYING, Phase.PUBLISHING, Phase.LOADING})
_MOST_SUPERSEDED = 2  # versions in a row that newer ones may stop before they are loaded

RETRIES = Backoff(5.0, 300.0)  # after faults of the environment in a row
MOST_CRASHES = 8  # conversions in a row that end without a result: with their pauses, ten minutes


@dataclass(frozen=True, slots=True)
class PlannedVersion:
    """A registered version, with the digest of all that decides how it is converted.

    ``device`` is the kind that it is converted for. ``claims_space``: that of stable's vectors.
    """

    number: str
    options: str
    device: DeviceKind = DeviceKind.CPU
    claims_space: bool = False


@dataclass(frozen=True, slots=True)
class NextPool:
    """The pool that an endpoint moves to: its loaders, and what all its ready Tritons hold."""

    name: str
    loaders: tuple[LoaderReport, ...] = ()
    everywhere: frozenset[ModelRef] = frozenset()
    absent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ObservedState:
    """What is known at the moment of a pass.

    ``versions`` is newest first and None if MLflow never answered; ``created`` is when the model
    was registered, by MLflow's clock, or 0. ``packages`` and ``jobs`` go
    by a version's options. ``fault`` says why ``packages`` may be incomplete. ``stable_gone`` says
    that the store lacks the stable version's package: ``stable`` is then that of the package made
    again of the same version, if there is one. ``loaders`` are those of the endpoint's pool that
    gave a sign of life lately, ``absent`` those that are expected back; ``unserved``
    says why there are none. ``refused`` says what the spec
    asks for above the operator's ceilings. ``busy``: which conversions have to end before the next
    one may begin. ``unsaid``: why it is not known for which kind of device
    to convert. ``move`` is the stable version for the devices of the pool that the endpoint moves
    to, if they are of another kind, ``next_pool`` what is seen of that pool; ``move_fault`` says
    why the version can't be served there.
    """

    versions: tuple[PlannedVersion, ...] | None
    aliases: Mapping[str, str] = field(default_factory=dict)
    created: int = 0
    packages: Mapping[str, Package] = field(default_factory=dict)
    jobs: Mapping[str, ConversionProgress | ConversionFailure] = field(default_factory=dict)
    loaders: tuple[LoaderReport, ...] = ()
    absent: frozenset[str] = frozenset()
    unserved: str = ""
    stable: Signature | None = None
    stable_gone: bool = False
    fault: str = ""
    busy: str = ""
    refused: tuple[str, ...] = ()
    unsaid: str = ""
    move: PlannedVersion | None = None
    move_fault: str = ""
    next_pool: NextPool | None = None


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """The status to write, and the version whose conversion must be running, if one must."""

    status: EndpointStatus
    convert: PlannedVersion | None = None


def plan(
    spec: EndpointSpec,
    status: EndpointStatus,
    seen: ObservedState,
    now: float,
    *,
    keep_seconds: float = 600.0,
) -> PlanDecision:
    """The next step of one endpoint.

    Above a ceiling nothing new is brought in, and what serves goes on. The previous stable version
    stays loaded for ``keep_seconds``.
    """
    status = _of_this_model(_drop_expired(status, now, keep_seconds), seen)
    if seen.versions is None or _is_rolling_out(status):
        return PlanDecision(status)
    target = choose_version(spec, status, seen)
    if target is None or _is_settled(status, target, seen):
        return PlanDecision(_idle(spec, _leave(spec, status, target, seen, now), seen))
    candidate = _follow(status.candidate, target, seen)
    status = _leave(spec, status, target, seen, now)
    if seen.refused:
        reason = "; ".join(seen.refused)
        return PlanDecision(_prepare(status, _in_phase(candidate, Phase.BLOCKED, reason), now))
    package = seen.packages.get(target.options)
    if package is None and candidate.ref is not None:
        return PlanDecision(status)  # the store is away: go on when its packages are seen again
    if package is None:
        return _plan_conversion(status, candidate, target, seen, now)
    step = _plan_crossing if target is seen.move else partial(_plan_load, spec)
    return PlanDecision(step(status, candidate, target, package, seen=seen, now=now))


def choose_version(
    spec: EndpointSpec, status: EndpointStatus, seen: ObservedState
) -> PlannedVersion | None:
    """The version that should be stable, if there is one that may be tried.

    ``latest`` never goes back: a removed version goes on serving until a newer one is good. A
    version that serves, and whose package is gone, comes before all others. A newer version stops
    one on its way, unless nothing serves yet or this has happened too often in a row: a person who
    registers faster than versions are converted would never be served. Of a model that was deleted
    and registered again, every version is newer than those before.
    """
    rebuild = _stable_to_rebuild(status, seen)
    if rebuild is not None:
        return rebuild
    if is_crossing(status, seen):
        return seen.move
    if isinstance(spec.version, FollowVersion):
        again = _is_registered_again(status, seen)
        least = int(status.stable.version) if status.stable and not again else 0
        newer = [item for item in seen.versions or () if int(item.number) >= least]
        may_follow = [
            item
            for item in newer
            if _is_not_rejected(status, item) and (again or not is_passed_over(status, item.number))
        ]
        begun = next((item for item in may_follow if _must_end(status, item)), None)
        return begun or next(iter(may_follow), None)
    named = _find_wanted(spec, seen)
    return named if named is not None and _is_not_rejected(status, named) else None


def is_crossing(status: EndpointStatus, seen: ObservedState) -> bool:
    """Whether callers are to move to Tritons for which their version needs another package.

    Not while a rollout is on: both its versions would have to.
    """
    if seen.move is None or status.rollout is not None or not _is_not_rejected(status, seen.move):
        return False
    package = seen.packages.get(seen.move.options)
    return package is None or package.ref != status.stable


def find_version(seen: ObservedState, number: str) -> PlannedVersion | None:
    """The registered version of this number, if there is one."""
    return next((item for item in seen.versions or () if item.number == number), None)


def _is_rolling_out(status: EndpointStatus) -> bool:
    """Whether candidate and routes are a rollout's; in its bake a next version may be prepared."""
    return status.rollout is not None and status.rollout.promoted_at is None


# Which version


def _find_wanted(spec: EndpointSpec, seen: ObservedState) -> PlannedVersion | None:
    """The version that the spec names, good or not."""
    match spec.version:
        case PinnedVersion(pin=number):
            return find_version(seen, number)
        case AliasVersion(alias=alias):
            return find_version(seen, seen.aliases.get(alias, ""))
        case _:
            return next(iter(seen.versions or ()), None)


def _stable_to_rebuild(status: EndpointStatus, seen: ObservedState) -> PlannedVersion | None:
    """The stable version, if its package is gone and it must be converted again.

    Until then no Triton could load it again, and nobody knows what its callers rely on. A rollout
    that is on goes on: it has its packages.
    """
    if not seen.stable_gone or seen.fault or status.stable is None or status.rollout is not None:
        return None
    version = find_version(seen, status.stable.version)
    if version is None or version.options in seen.packages:
        return None
    return version if _is_not_rejected(status, version) else None


def _is_not_rejected(status: EndpointStatus, version: PlannedVersion) -> bool:
    return rejection_of(status, version.number, version.options) is None


def _is_registered_again(status: EndpointStatus, seen: ObservedState) -> bool:
    """Whether MLflow's model is another one under the name of the stable version's."""
    return 0 < status.model_created < seen.created


def _of_this_model(status: EndpointStatus, seen: ObservedState) -> EndpointStatus:
    """Returns the status with what is known of the model that the stable version is of."""
    if seen.created in (0, status.model_created):
        return status
    stable = status.stable
    if stable is not None:
        version = find_version(seen, stable.version)
        package = None if version is None else seen.packages.get(version.options)
        is_of_it = package is not None and package.ref == stable
        if not is_of_it and (status.model_created or version is None):
            return status  # it is of the model before, as far as is known
    update = {"model_created": seen.created}
    if status.model_created:
        update["rejected_through"] = 0  # of the numbers of the model before
    return status.model_copy(update=update)


def _must_end(status: EndpointStatus, version: PlannedVersion) -> bool:
    """Whether this version is on its way, and no newer one may stop it."""
    candidate = status.candidate
    if candidate is None or candidate.phase not in _BEGUN:
        return False
    if (candidate.version, candidate.options) != (version.number, version.options):
        return False
    return status.stable is None or candidate.superseded >= _MOST_SUPERSEDED


def _is_settled(status: EndpointStatus, target: PlannedVersion, seen: ObservedState) -> bool:
    """Whether the target is what serves already, as far as can be known."""
    if status.stable is None or status.stable.version != target.number:
        return False
    package = seen.packages.get(target.options)
    if package is None:
        return bool(seen.fault)  # its package can't be looked up now: it serves, leave it
    return package.ref == status.stable


def _follow(candidate: Candidate | None, target: PlannedVersion, seen: ObservedState) -> Candidate:
    """The candidate as it was, or a new one if another version or package is wanted now."""
    told = {"options": target.options, "claims_space": target.claims_space}
    new = Candidate(version=target.number, phase=Phase.WAITING).model_copy(update=told)
    if candidate is None:
        return new
    if candidate.version != target.number:
        superseded = candidate.superseded + (candidate.phase in _BEGUN)
        return new.model_copy(update={"superseded": superseded})
    if candidate.phase not in _PREPARING or candidate.options not in ("", target.options):
        return new
    package = seen.packages.get(target.options)
    known = candidate.ref is None or (package is not None and candidate.ref == package.ref)
    if not known and not seen.fault:
        return new
    return candidate.model_copy(update=told)


# Which one is left for it

_WHILE = {
    Phase.WAITING: "it waited for its turn",
    Phase.CONVERTING: "it was converted",
    Phase.VERIFYING: "it was verified",
    Phase.PUBLISHING: "it was published",
    Phase.LOADING: "Tritons loaded it",
    Phase.LOADED: "it waited for its rollout",
    Phase.BLOCKED: "it was blocked",
}


def _leave(
    spec: EndpointSpec,
    status: EndpointStatus,
    target: PlannedVersion | None,
    seen: ObservedState,
    now: float,
) -> EndpointStatus:
    """With why the version on its way is not on its way any more, if it is not.

    One that goes on under other options begins again, and is not dropped. Nor is the one that
    serves, of which another package was to be made.
    """
    left = status.candidate
    if left is None or left.phase not in _PREPARING:
        return status
    serves = status.stable is not None and status.stable.version == left.version
    if serves and (
        target is None or target.number != left.version or _is_settled(status, target, seen)
    ):
        reason = "it serves as before: another package of it is not needed any more"
        return apply(status, HistoryNote(now, left.version, reason, phase=Phase.SERVING))
    if target is None or target.number != left.version:
        reason = (
            f"{_why_left(spec, left.version, target, seen)}: dropped while {_WHILE[left.phase]}"
        )
        return apply(status, HistoryNote(now, left.version, reason, phase=Phase.SUPERSEDED))
    if target is not seen.move and left.options not in ("", target.options):
        reason = (
            f"it is to be converted otherwise, so it begins again; before, {_WHILE[left.phase]}"
        )
        return apply(status, HistoryNote(now, left.version, reason, phase=Phase.WAITING))
    return status


def _why_left(
    spec: EndpointSpec, number: str, target: PlannedVersion | None, seen: ObservedState
) -> str:
    """Why a version is not the one that is brought in any more."""
    if find_version(seen, number) is None:
        why = f"MLflow's model {spec.model} has no version {number} any more"
    elif target is not None and target is seen.move:
        why = f"the endpoint moves to another pool, which needs version {target.number} first"
    elif target is not None and seen.stable_gone:
        why = f"the store lacks the package of version {target.number}, which serves"
    elif isinstance(spec.version, PinnedVersion):
        why = f"the endpoint asks for version {spec.version.pin}"
    elif isinstance(spec.version, AliasVersion):
        why = f"the endpoint's alias {spec.version.alias} names another version or none"
    elif target is None:
        why = "it is rejected or passed over"
    else:
        relation = "is newer" if int(target.number) > int(number) else "is wanted again"
        why = f"version {target.number} {relation}"
    return why


# What to do with it


def _idle(spec: EndpointSpec, status: EndpointStatus, seen: ObservedState) -> EndpointStatus:
    """Nothing to bring into service; says why if the newest version is not the one serving."""
    newest = _find_wanted(spec, seen)
    shown = status.candidate
    if shown is not None and status.rollout is not None and shown.phase not in _PREPARING:
        return status  # the version that is in its bake
    if newest is None:
        return _with_candidate(status, None)
    rejection = rejection_of(status, newest.number, newest.options)
    if rejection is None:
        return _with_candidate(status, None)
    if shown is not None and shown.version == newest.number and shown.phase in ENDED:
        return status
    return _with_candidate(
        status,
        Candidate(
            version=newest.number,
            phase=rejection.phase,
            reason=rejection.reason or _long_ago(rejection),
            options=newest.options,
        ),
    )


def _long_ago(rejection: Rejection) -> str:
    """What is said of one that gave its reason away to make room."""
    what = "it expired" if rejection.expired else "it was rejected"
    return f"{what}: MLflow's tags of the version say why"


def _plan_conversion(
    status: EndpointStatus,
    candidate: Candidate,
    target: PlannedVersion,
    seen: ObservedState,
    now: float,
) -> PlanDecision:
    job = seen.jobs.get(target.options)
    waits = candidate.retry_at is not None and now < candidate.retry_at
    if isinstance(job, ConversionFailure) and (
        job.by_version or not waits
    ):  # else it is on record already
        return PlanDecision(_without_package(status, candidate, target, job, now))
    if isinstance(job, ConversionProgress):
        running = _in_phase(candidate, job.phase, job.message, retry_at=None)
        return PlanDecision(_prepare(status, running, now), convert=target)
    if waits:
        return PlanDecision(_prepare(status, candidate, now))
    if seen.fault:
        return PlanDecision(_block(status, candidate, seen.fault, now))
    if seen.unsaid or seen.busy:
        reason = seen.unsaid or seen.busy
        return PlanDecision(_prepare(status, _in_phase(candidate, Phase.WAITING, reason), now))
    begun = _in_phase(candidate, Phase.CONVERTING, retry_at=None)
    return PlanDecision(_prepare(status, begun, now), convert=target)


def _without_package(
    status: EndpointStatus,
    candidate: Candidate,
    target: PlannedVersion,
    job: ConversionFailure,
    now: float,
) -> EndpointStatus:
    """After a conversion that failed: rejected by its own word only.

    One that ended without a word is tried again, with growing pauses, and expires in the end.
    """
    if job.by_version:
        return _reject(status, target, job.reason, now)
    crashes = candidate.crashes + 1 if job.crashed else 0
    if crashes < MOST_CRASHES:
        told = candidate.model_copy(update={"crashes": crashes})
        return _block(status, told, job.reason, now)
    reason = (
        f"{crashes} conversions in a row ended without a result, which may be the version or what "
        f"it runs on; the last one: {job.reason}"
    )
    ended = VersionRejection(now, target.number, target.options, reason, expired=True)
    return apply(status, ended)


def _plan_load(
    spec: EndpointSpec,
    status: EndpointStatus,
    candidate: Candidate,
    target: PlannedVersion,
    package: Package,
    *,
    seen: ObservedState,
    now: float,
) -> EndpointStatus:
    if unknown := _unknown_signature(status, seen):
        return _prepare(status, _in_phase(candidate, Phase.BLOCKED, unknown), now)
    relied_on = _stable_signature(status, seen, package)
    if relied_on is not None and may_bring_space(spec.rollout, claims_space=target.claims_space):
        relied_on = relied_on.of_any_dimension()
    if relied_on is not None and (broken := relied_on.broken_by(package.signature)):
        return _reject(status, target, broken, now)
    verdicts = judge(seen.loaders, seen.absent)
    if reason := verdicts.at_fault.get(package.ref):
        return _reject(status, target, reason, now, refused=package.ref)
    deciding = verdicts.deciding(seen.loaders)
    named = _with_package(status, package)
    may_load = pools.next_loaders(seen.loaders, {package.ref}, status.loading)
    named = named.model_copy(update={"loading": may_load})
    update = {"ref": package.ref, "attempts": 0, "retry_at": None}
    candidate = candidate.model_copy(update=update)
    if held_by_all(deciding, package.ref):
        return _accept_loaded(spec, named, candidate, package, now)
    if failures := _failures(deciding, package.ref):
        return _prepare(named, _in_phase(candidate, Phase.BLOCKED, failures[0].reason), now)
    return _prepare(named, _in_phase(candidate, Phase.LOADING, seen.unserved), now)


def _plan_crossing(
    status: EndpointStatus,
    candidate: Candidate,
    target: PlannedVersion,
    package: Package,
    *,
    seen: ObservedState,
    now: float,
) -> EndpointStatus:
    """The stable version in the pool that the endpoint moves to, by its package for that pool.

    The pool loads it (``pools.place_endpoint`` says so in the status) while callers are answered as
    before; once all its ready Tritons hold it, callers go there.
    """
    there = seen.next_pool or NextPool(status.pool)
    if unknown := _unknown_signature(status, seen):
        return _prepare(status, _in_phase(candidate, Phase.BLOCKED, unknown), now)
    relied_on = _stable_signature(status, seen, package)
    if relied_on is not None and (broken := relied_on.broken_by(package.signature)):
        return _reject(_cancel_crossing(status), target, broken, now)
    verdicts = judge(there.loaders, there.absent)
    if reason := verdicts.at_fault.get(package.ref):
        return _reject(_cancel_crossing(status), target, reason, now, refused=package.ref)
    if package.ref in there.everywhere:
        update = {"pool": there.name, "device": target.device, "asleep": None}
        left = {"packages": (), "kept": ()}
        moved = _cancel_crossing(status).model_copy(update={**update, **left})
        return apply(moved, DirectRelease(now, package.ref, package.signature.task))
    candidate = candidate.model_copy(update={"ref": package.ref, "attempts": 0, "retry_at": None})
    stays = f"{status.pool} goes on answering"
    if failures := _failures(verdicts.deciding(there.loaders), package.ref):
        reason = f"the pool {there.name} can't load it, and {stays}: {failures[0].reason}"
        return _prepare(status, _in_phase(candidate, Phase.BLOCKED, reason), now)
    reason = f"the pool {there.name} loads it, and {stays}"
    return _prepare(status, _in_phase(candidate, Phase.LOADING, reason), now)


def _cancel_crossing(status: EndpointStatus) -> EndpointStatus:
    left = {"next_pool": "", "next_packages": (), "next_loading": (), "loading": ()}
    return status.model_copy(update=left)


def _failures(loaders: tuple[LoaderReport, ...], ref: ModelRef) -> list[LoadFailure]:
    return [failure for loader in loaders for failure in loader.failed if failure.ref == ref]


def _unknown_signature(status: EndpointStatus, seen: ObservedState) -> str:
    """Why it is not known what callers of stable rely on; empty if it is."""
    known = status.stable is None or seen.stable is not None
    if known or (seen.stable_gone and not seen.fault):
        return ""
    return seen.fault or "the stable version's package can't be read"


def _stable_signature(
    status: EndpointStatus, seen: ObservedState, package: Package
) -> Signature | None:
    """What callers of the stable version rely on.

    If its package is gone, that is what the one made again of the same version tells, and if
    there is none, only the task: it is in the status.
    """
    if not seen.stable_gone or status.task is None:
        return seen.stable
    return (seen.stable or package.signature).model_copy(update={"task": status.task})


def _accept_loaded(
    spec: EndpointSpec, status: EndpointStatus, candidate: Candidate, package: Package, now: float
) -> EndpointStatus:
    """Every Triton of the pool holds it: stable at once if it is compared with nothing.

    Otherwise it waits here for its rollout, which starts when no other is on.
    """
    at_once = status.stable is None or spec.rollout.strategy is Strategy.DIRECT
    if at_once and status.rollout is None:
        return apply(status, DirectRelease(now, package.ref, package.signature.task))
    baking = status.rollout
    reason = f"waits for the end of version {baking.candidate.version}'s bake" if baking else ""
    return _prepare(status, _in_phase(candidate, Phase.LOADED, reason), now)


def held_by_all(loaders: tuple[LoaderReport, ...], ref: ModelRef) -> bool:
    """Whether there is a Triton, and every one holds the package."""
    return bool(loaders) and all(
        any(model.ref == ref for model in loader.loaded) for loader in loaders
    )


# The status of a version on its way


def _with_package(status: EndpointStatus, package: Package) -> EndpointStatus:
    """Returns the status with the package among those that every Triton must hold."""
    if package.ref in status.packages:
        return status
    return status.model_copy(update={"packages": (*status.packages, package.ref)})


def _prepare(status: EndpointStatus, candidate: Candidate, now: float) -> EndpointStatus:
    return apply(status, CandidateUpdate(now, candidate))


def _reject(
    status: EndpointStatus,
    target: PlannedVersion,
    reason: str,
    now: float,
    *,
    refused: ModelRef | None = None,
) -> EndpointStatus:
    return apply(
        status, VersionRejection(now, target.number, target.options, reason, refused=refused)
    )


def _block(status: EndpointStatus, candidate: Candidate, reason: str, now: float) -> EndpointStatus:
    """Lets the candidate wait longer after each fault of the environment in a row."""
    attempts = candidate.attempts + 1
    retry_at = now + RETRIES.after(attempts)
    blocked = _in_phase(candidate, Phase.BLOCKED, reason, attempts=attempts, retry_at=retry_at)
    return _prepare(status, blocked, now)


def _in_phase(
    candidate: Candidate, phase: Phase, reason: str = "", **update: float | None
) -> Candidate:
    return candidate.model_copy(update={"phase": phase, "reason": reason, **update})


def _with_candidate(status: EndpointStatus, shown: Candidate | None) -> EndpointStatus:
    """Sets what to show if nothing is on its way: a rejected version, or nothing."""
    return status if status.candidate == shown else status.model_copy(update={"candidate": shown})


def _drop_expired(status: EndpointStatus, now: float, keep_seconds: float) -> EndpointStatus:
    """Drops the packages that nothing needs and whose time to stay has passed."""
    serving = [line.at for line in status.history if line.phase is Phase.SERVING]
    if serving and now - serving[-1] < keep_seconds:
        return status
    needed = _list_needed(status, now, keep_seconds)
    packages = tuple(ref for ref in status.packages if ref in needed)
    return status.model_copy(update={"packages": packages})


def _list_needed(status: EndpointStatus, now: float, keep_seconds: float) -> set[ModelRef]:
    """What is routed, on its way, judged, or may be gone back to."""
    needed = {route.ref for route in status.routes} | {each.ref for each in status.kept}
    if status.candidate is not None and status.candidate.ref is not None:
        needed.add(status.candidate.ref)
    if status.rollout is not None:
        needed |= {status.rollout.candidate, status.rollout.stable}
    last = status.last_rollout
    if last is not None and last.outcome is Outcome.SETTLED:
        settled_at = last.ended_at or 0.0
        if now - settled_at < keep_seconds:  # for an undo
            needed.add(last.stable)
    return needed

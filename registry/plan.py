"""The endpoint's next status, as a pure function of what is: no clock, no network, no file.

Called by the controller in each pass, for each endpoint. The newest good version gets all traffic
once every loader reports it loaded. A version at fault is rejected and never tried again under the
same options; a fault of the environment blocks and is tried again. Being killed between two calls
changes nothing: everything it needs to go on is in the status and in what is observed.
"""

from dataclasses import replace

from contracts.endpoint import (
    AliasVersion,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    FollowVersion,
    Phase,
    PinnedVersion,
)
from registry import transitions
from registry.job import Failed, Progress, Signature
from registry.observed import Decision, Observed, Package, Version


def plan(
    spec: EndpointSpec,
    status: EndpointStatus,
    seen: Observed,
    now: float,
    *,
    keep_seconds: float = 600.0,
) -> Decision:
    """The next step of one endpoint.

    Args:
        spec: what the user asks for.
        status: as it was read.
        seen: what is.
        now: unix time, seconds.
        keep_seconds: how long the previous stable version stays loaded.
    """
    decision = _next(spec, transitions.retired(status, now, keep_seconds), seen, now)
    after = decision.status
    if (after.routes, after.packages) == (status.routes, status.packages):
        return decision
    generation = status.generation + 1  # what gateways and loaders must follow has changed
    return replace(decision, status=after.model_copy(update={"generation": generation}))


def chosen(spec: EndpointSpec, status: EndpointStatus, seen: Observed) -> Version | None:
    """The version that should be stable, if there is one that may be tried.

    ``latest`` never goes back: a removed version goes on serving until a newer one is good.
    """
    if isinstance(spec.version, FollowVersion):
        least = int(status.stable.version) if status.stable else 0
        newer = [item for item in seen.versions or () if int(item.number) >= least]
        return next((item for item in newer if _good(status, item)), None)
    named = _wanted(spec, seen)
    return named if named is not None and _good(status, named) else None


def verdicts(status: EndpointStatus) -> dict[str, tuple[str, str]]:
    """What to tell MLflow, version -> (verdict, reason): a copy of what the status records."""
    told = {item.version: (Phase.REJECTED.value, item.reason) for item in status.rejected}
    candidate = status.candidate
    if candidate is not None and candidate.phase is Phase.BLOCKED:
        told[candidate.version] = (Phase.BLOCKED.value, candidate.reason)
    if status.stable is not None:
        told[status.stable.version] = ("Promoted", "")
    return told


def _next(spec: EndpointSpec, status: EndpointStatus, seen: Observed, now: float) -> Decision:
    if seen.versions is None:
        return Decision(status)
    target = chosen(spec, status, seen)
    if target is None or _settled(status, target, seen):
        return Decision(_idle(spec, status, seen))
    candidate = _followed(status.candidate, target, seen)
    package = seen.packages.get(target.options)
    if package is None and candidate.ref is not None:
        return Decision(status)  # the store is away: go on when its packages are seen again
    if package is None:
        return _converting(status, candidate, target, seen, now)
    return Decision(_loading(status, candidate, target, package, seen=seen, now=now))


# Which version


def _wanted(spec: EndpointSpec, seen: Observed) -> Version | None:
    """The version that the spec names, good or not."""
    versions = seen.versions or ()
    match spec.version:
        case PinnedVersion(pin=number):
            return next((item for item in versions if item.number == number), None)
        case AliasVersion(alias=alias):
            return next((v for v in versions if v.number == seen.aliases.get(alias)), None)
        case _:
            return next(iter(versions), None)


def _good(status: EndpointStatus, version: Version) -> bool:
    return not any(
        item.version == version.number and item.options == version.options
        for item in status.rejected
    )


def _settled(status: EndpointStatus, target: Version, seen: Observed) -> bool:
    """Whether the target is what serves already, as far as can be known."""
    if status.stable is None or status.stable.version != target.number:
        return False
    package = seen.packages.get(target.options)
    if package is None:
        return bool(seen.fault)  # its package can't be looked up now: it serves, leave it
    return package.ref == status.stable


def _followed(candidate: Candidate | None, target: Version, seen: Observed) -> Candidate:
    """The candidate as it was, or a new one where another version or package is wanted now."""
    new = Candidate(version=target.number, phase=Phase.WAITING)
    if candidate is None or candidate.version != target.number:
        return new
    if candidate.phase is Phase.REJECTED:  # under other options
        return new
    package = seen.packages.get(target.options)
    known = candidate.ref is None or (package is not None and candidate.ref == package.ref)
    if not known and not seen.fault:
        return new
    return candidate


# What to do with it


def _idle(spec: EndpointSpec, status: EndpointStatus, seen: Observed) -> EndpointStatus:
    """Nothing to bring into service; says why where the newest version is not the one serving."""
    newest = _wanted(spec, seen)
    if newest is None:
        return transitions.showing(status, None)
    rejection = next(
        (r for r in status.rejected if (r.version, r.options) == (newest.number, newest.options)),
        None,
    )
    if rejection is None:
        return transitions.showing(status, None)
    shown = Candidate(version=newest.number, phase=Phase.REJECTED, reason=rejection.reason)
    return transitions.showing(status, shown)


def _converting(
    status: EndpointStatus, candidate: Candidate, target: Version, seen: Observed, now: float
) -> Decision:
    job = seen.jobs.get(target.options)
    if isinstance(job, Failed):
        return Decision(
            transitions.rejected(status, target, job.reason, now)
            if job.by_version
            else transitions.blocked(status, candidate, job.reason, now)
        )
    if isinstance(job, Progress):
        moved = candidate.model_copy(update={"phase": job.phase, "reason": job.message})
        moved = moved.model_copy(update={"retry_at": None})
        return Decision(transitions.with_candidate(status, moved, now), convert=target)
    if candidate.retry_at is not None and now < candidate.retry_at:
        return Decision(transitions.with_candidate(status, candidate, now))
    if seen.fault:
        return Decision(transitions.blocked(status, candidate, seen.fault, now))
    if seen.busy:
        reason = "waits for the conversion of another version"
        return Decision(
            transitions.with_candidate(
                status, transitions.in_phase(candidate, Phase.WAITING, reason), now
            )
        )
    begun = transitions.in_phase(candidate, Phase.CONVERTING).model_copy(update={"retry_at": None})
    return Decision(transitions.with_candidate(status, begun, now), convert=target)


def _loading(
    status: EndpointStatus,
    candidate: Candidate,
    target: Version,
    package: Package,
    *,
    seen: Observed,
    now: float,
) -> EndpointStatus:
    if status.stable is not None and seen.stable is None:
        reason = seen.fault or "the stable version's package can't be read"
        return transitions.with_candidate(
            status, transitions.in_phase(candidate, Phase.BLOCKED, reason), now
        )
    if clash := incompatible(seen.stable, package.signature):
        return transitions.rejected(status, target, clash, now)
    failures = [
        failure
        for loader in seen.loaders
        for failure in loader.failed
        if failure.ref == package.ref
    ]
    at_fault = next((failure for failure in failures if failure.by_version), None)
    if at_fault is not None:
        reason = f"Triton refused it: {at_fault.reason}"
        return transitions.rejected(status, target, reason, now, refused=package.ref)
    named = transitions.named(status, package)
    held = [
        loader
        for loader in seen.loaders
        if any(model.ref == package.ref for model in loader.loaded)
    ]
    if seen.loaders and len(held) == len(seen.loaders):
        return transitions.promoted(named, package, now)
    update = {"ref": package.ref, "attempts": 0, "retry_at": None}
    candidate = candidate.model_copy(update=update)
    if failures:
        return transitions.with_candidate(
            named, transitions.in_phase(candidate, Phase.BLOCKED, failures[0].reason), now
        )
    reason = (
        "" if seen.loaders else "no loader has given a sign of life: is Triton's loader running?"
    )
    return transitions.with_candidate(
        named, transitions.in_phase(candidate, Phase.LOADING, reason), now
    )


def incompatible(stable: Signature | None, new: Signature) -> str:
    """Why callers of the stable version could not go on with the new one; empty where they can."""
    if stable is None:
        return ""
    if stable.task != new.task:
        return f"its task is {new.task}, the stable version's is {stable.task}"
    if stable.labels != new.labels:
        return f"its labels are {list(new.labels)}, the stable version's are {list(stable.labels)}"
    if stable.dimension != new.dimension:
        return f"its dimension is {new.dimension}, the stable version's is {stable.dimension}"
    return ""

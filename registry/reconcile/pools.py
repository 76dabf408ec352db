"""Which pool of Tritons answers an endpoint's callers, and when an endpoint moves to another.

An endpoint whose spec names another pool moves in two steps. First that pool's Tritons load what
its callers are answered by, while the old pool goes on; once all of them hold it, callers go there.
The loaders of the old pool unload it later, as they do with whatever nobody names. Pure.
"""

from collections.abc import Iterator, Sequence

from contracts.endpoint import EndpointSpec, EndpointStatus
from contracts.loading import LoaderReport
from contracts.model import ModelRef
from registry.reconcile.rollouts import HeldPackages


def placed(
    spec: EndpointSpec, status: EndpointStatus, held: HeldPackages, *, refused: bool
) -> EndpointStatus:
    """The status with the pool that answers, and the one that the endpoint moves to.

    Args:
        spec: names the pool.
        status: as it was.
        held: what the Tritons of each pool hold.
        refused: the spec is above a ceiling, so that nothing moves.
    """
    moves = spec.pool != status.pool and not refused
    pool, coming = status.pool, ""
    if moves and (status.stable is None or answered_by(status) <= held.of(spec.pool).everywhere):
        pool = spec.pool
    elif moves:
        coming = spec.pool
    update = {"pool": pool, "next_pool": coming, "unserved": ""}
    status = status.model_copy(update=update)
    if held.of(pool).loaders:
        return status
    return status.model_copy(update={"unserved": without_tritons(pool, held)})


def answered_by(status: EndpointStatus) -> frozenset[ModelRef]:
    """The packages that callers and a rollout need on every Triton."""
    rollout = status.rollout
    judged = (rollout.candidate, rollout.stable) if rollout is not None else ()
    return frozenset((*(route.ref for route in status.routes), *judged))


def next_loaders(
    loaders: Sequence[LoaderReport], ref: ModelRef, before: tuple[str, ...]
) -> tuple[str, ...]:
    """The loaders that may bring a package in now; none named: all.

    At a time no more load it than hold it already: first one alone, then one, two, four. So a
    package that ends its Triton, or fills it, ends one of them, and callers of other versions never
    wait for all Tritons at once.

    Args:
        loaders: of the pool, that gave a sign of life lately.
        ref: the package.
        before: those that were named before, which go on.
    """
    missing = [each for each in loaders if all(model.ref != ref for model in each.loaded)]
    told = sorted(missing, key=lambda one: (one.loader not in before, not one.ready, one.loader))
    at_once = max(1, len(loaders) - len(missing))
    return () if len(told) <= at_once else tuple(sorted(each.loader for each in told[:at_once]))


def notes(status: EndpointStatus, held: HeldPackages) -> Iterator[str]:
    """What people should know of the endpoint's pools, in sentences."""
    if status.unserved:
        yield status.unserved
    yield from _troubles(status, held)
    if not status.next_pool:
        return
    stays = f"{status.pool} goes on answering"
    found = held.of(status.next_pool)
    if not found.loaders:
        yield f"{without_tritons(status.next_pool, held)}: {stays}"
        return
    needed = answered_by(status)
    failed = {
        failure.ref.triton_model: failure.reason
        for report in found.loaders
        for failure in report.failed
        if failure.ref in needed
    }
    for name, reason in sorted(failed.items()):
        yield f"the pool {status.next_pool} can't load {name}, and {stays}: {reason}"


def _troubles(status: EndpointStatus, held: HeldPackages) -> Iterator[str]:
    """What is wrong with versions that Tritons hold and that answer callers."""
    where: dict[tuple[str, str], list[str]] = {}
    needed = answered_by(status)
    for report in held.of(status.pool).loaders:
        for trouble in report.troubles:
            if trouble.ref in needed:
                said = trouble.ref.version, trouble.reason.rstrip(".")
                where.setdefault(said, []).append(report.loader)
    for (version, reason), loaders in sorted(where.items()):
        yield f"version {version} at {', '.join(loaders)}: {reason}"


def without_tritons(pool: str, held: HeldPackages) -> str:
    """Why nothing answers in a pool of which no loader is heard."""
    if not held.pools:
        return "no loader has given a sign of life: is Triton's loader running?"
    others = ", ".join(held.pools)
    return f"no Triton of the pool {pool} has given a sign of life; the pools {others} have Tritons"

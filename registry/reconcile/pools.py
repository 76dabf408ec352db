"""Which pool of Tritons answers an endpoint's callers, and when an endpoint moves to another.

An endpoint whose spec names another pool moves in two steps. First that pool's Tritons load what
its callers are answered by, while the old pool goes on; once all of them hold it, callers go there.
The loaders of the old pool unload it later, as they do with whatever nobody names.

A package is made for one kind of device. If the other pool computes on another kind, the stable
version is converted for that first, and it is that package that the other pool loads. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from contracts.endpoint import NAMED_LIMIT, EndpointSpec, EndpointStatus
from contracts.loading import DeviceKind, FailureCause, LoaderReport
from contracts.model import ModelRef
from registry.reconcile.rollouts import HeldPackages


def place_endpoint(
    spec: EndpointSpec,
    status: EndpointStatus,
    held: HeldPackages,
    *,
    refused: bool,
    crossing: DeviceKind | None = None,
    moved: ModelRef | None = None,
) -> EndpointStatus:
    """The status with the pool that answers, and the one that the endpoint moves to.

    Args:
        spec: names the pool.
        status: as it was.
        held: what the Tritons of each pool hold.
        refused: the spec is above a ceiling, so that nothing moves.
        crossing: the other kind of device that it moves to (``crossing_of``).
        moved: its stable version's package for that kind; None while there is none to be loaded.
            Callers go there by ``plan``, since they get another package.
    """
    moves = spec.pool != status.pool and not refused
    pool, coming = status.pool, ""
    instead: tuple[ModelRef, ...] = ()
    if moves and status.stable is None:
        pool = spec.pool
    elif moves and crossing is not None and moved != status.stable:
        if moved is not None:
            coming, instead = spec.pool, (moved,)
    elif moves and list_answering(status) <= held.of(spec.pool).everywhere:
        pool = spec.pool
    elif moves and not has_yet_to_say(spec.pool, held):
        coming = spec.pool
    update = {
        "pool": pool,
        "device": device_of(spec, status, held, refused=refused),
        "next_pool": coming,
        "next_packages": instead,
        "unserved": _find_unserved(status, pool, held),
        "cordoned": _find_cordoned((pool, coming), held),
    }
    placed = status.model_copy(update=update)
    there, needed = held.of(coming).loaders, set(placed.held_in(coming))
    may_load = next_loaders(there, needed, status.next_loading)
    return placed.model_copy(update={"next_loading": may_load})


def _find_unserved(status: EndpointStatus, pool: str, held: HeldPackages) -> str:
    """Why no Triton of the pool can answer; a version that sleeps comes back when it is asked."""
    found, stable = held.of(pool), status.stable
    if not found.loaders:
        return without_tritons(pool, held)
    if stable is None or status.asleep is not None or stable in found.everywhere:
        return ""
    holds = any(model.ref == stable for report in found.loaders for model in report.loaded)
    # After a sleep, or for a moment after a change, it is on its way.
    comes = any(report.ready for report in found.loaders) and not any(
        failure.ref == stable for report in found.loaders for failure in report.failed
    )
    return "" if holds or comes else f"no Triton of the pool {pool} holds version {stable.version}"


def _find_cordoned(names: Iterable[str], held: HeldPackages) -> tuple[str, ...]:
    cordoned = (each for name in names for each in sorted(held.of(name).verdicts.cordoned))
    return tuple(cordoned)[:NAMED_LIMIT]


def device_of(
    spec: EndpointSpec, status: EndpointStatus, held: HeldPackages, *, refused: bool
) -> DeviceKind:
    """What the endpoint's Tritons compute on, for which its versions are converted."""
    if status.stable is None and spec.pool != status.pool and not refused:
        return _device_in(spec.pool, held, DeviceKind.CPU)
    return _device_in(status.pool, held, status.device)


def crossing_of(
    spec: EndpointSpec, status: EndpointStatus, held: HeldPackages, *, refused: bool
) -> DeviceKind | None:
    """The kind of device that the endpoint's callers move to, if it is another one than now.

    The arguments are those of ``device_of``.
    """
    stays = refused or spec.pool == status.pool or status.stable is None
    if stays or not held.of(spec.pool).loaders:
        return None
    there = _device_in(spec.pool, held, DeviceKind.CPU)
    return there if there is not device_of(spec, status, held, refused=refused) else None


def _device_in(pool: str, held: HeldPackages, before: DeviceKind) -> DeviceKind:
    """What a pool computes on; what it was before, while nobody says or its Tritons differ."""
    devices = held.of(pool).devices
    return next(iter(devices)) if len(devices) == 1 else before


def has_yet_to_say(pool: str, held: HeldPackages) -> bool:
    """Whether a pool's Tritons start and none has said what it computes on.

    One that is ready and does not say it computes on CPUs, for all that is known.
    """
    found = held.of(pool)
    return bool(found.loaders) and not found.devices and not found.ready


def unsaid(status: EndpointStatus, held: HeldPackages) -> str:
    """Why a first version is not converted yet, in words; empty if it can be."""
    if status.stable is not None or not has_yet_to_say(status.pool, held):
        return ""
    return f"no Triton of the pool {status.pool} has said yet what it computes on"


def list_answering(status: EndpointStatus) -> frozenset[ModelRef]:
    """The packages that callers and a rollout need on every Triton."""
    rollout = status.rollout
    judged = (rollout.candidate, rollout.stable) if rollout is not None else ()
    return frozenset((*(route.ref for route in status.routes), *judged))


def next_loaders(
    loaders: Sequence[LoaderReport], refs: AbstractSet[ModelRef], before: tuple[str, ...]
) -> tuple[str, ...]:
    """The loaders that may bring these packages in now; none named: all.

    At a time no more load them than hold them already: first one alone, then one, two, four. So a
    package that ends its Triton, or fills it, ends one of them, and callers of other versions never
    wait for all Tritons at once. Those that failed to load one, or whose Triton is silent, hold
    nobody up: they go on trying at their own pace, and the next one is asked. One that is down
    since it tried has not failed yet.

    Of a large pool ``NAMED_LIMIT`` are named, failed ones last: left out, they pause until half of
    the others hold it, and nobody waits for them sooner.
    """
    missing = [each for each in loaders if refs - {model.ref for model in each.loaded}]
    failing = [
        each
        for each in missing
        if each.silent
        or any(
            each.ready or failure.persists or failure.cause is not FailureCause.AWAY
            for failure in each.failed
            if failure.ref in refs
        )
    ]
    told = sorted(
        (each for each in missing if each not in failing),
        key=lambda one: (one.loader not in before, not one.ready, one.loader),
    )
    at_once = max(1, len(loaders) - len(missing))
    if len(told) <= at_once:
        return ()
    return tuple(sorted(each.loader for each in (*told[:at_once], *failing)[:NAMED_LIMIT]))


def notes(status: EndpointStatus, held: HeldPackages) -> Iterator[str]:
    """What people should know of the endpoint's pools, in sentences."""
    yield from _troubles(status, held)
    if not status.next_pool:
        return
    stays = f"{status.pool} goes on answering"
    found = held.of(status.next_pool)
    if not found.loaders:
        yield f"{without_tritons(status.next_pool, held)}: {stays}"
        return
    needed = list_answering(status)
    failed = {
        failure.ref.triton_model: failure.reason
        for report in found.loaders
        for failure in report.failed
        if failure.ref in needed
    }
    for name, reason in sorted(failed.items()):
        yield f"the pool {status.next_pool} can't load {name}, and {stays}: {reason}"


def crossing_notes(
    spec: EndpointSpec,
    status: EndpointStatus,
    held: HeldPackages,
    crossing: DeviceKind | None,
    fault: str,
) -> Iterator[str]:
    """What people should know of kinds of devices, in sentences."""
    if len(held.of(status.pool).devices) > 1:
        yield (
            f"the Tritons of the pool {status.pool} compute on CPUs and on GPUs, and versions are "
            f"converted for {_plural(status.device)}: give each kind of device a pool of its own"
        )
    stays = f"{status.pool} goes on answering"
    if status.stable is None or spec.pool == status.pool:
        return
    if has_yet_to_say(spec.pool, held):
        yield f"no Triton of the pool {spec.pool} has said yet what it computes on: {stays}"
    if crossing is None:
        return
    version = f"version {status.stable.version}"
    if status.rollout is not None:
        yield f"it moves to the pool {spec.pool} when its rollout has ended, and {stays} until then"
    elif fault:
        yield f"{version} can't be served in the pool {spec.pool}, and {stays}: {fault}"
    elif not status.next_packages:
        yield (
            f"the pool {spec.pool} computes on {_plural(crossing)}: {version} is converted for "
            f"them first, and {stays} until then"
        )


def _plural(device: DeviceKind) -> str:
    return f"{device.value.upper()}s"


def _troubles(status: EndpointStatus, held: HeldPackages) -> Iterator[str]:
    """What is wrong with versions that Tritons hold and that answer callers."""
    where: dict[tuple[str, str], list[str]] = {}
    needed = list_answering(status)
    for report in held.of(status.pool).loaders:
        for trouble in report.troubles:
            if trouble.ref in needed:
                said = trouble.ref.version, trouble.reason.rstrip(".")
                where.setdefault(said, []).append(report.loader)
    for (version, reason), loaders in sorted(where.items()):
        yield f"version {version} at {', '.join(loaders)}: {reason}"


def sick_tritons(status: EndpointStatus, held: HeldPackages) -> Iterator[str]:
    """Which Tritons refuse what is good."""
    for pool in status.pools:
        verdicts = held.of(pool).verdicts
        for loader, why in sorted(verdicts.sick.items()):
            if loader in verdicts.cordoned:
                yield f"Triton {loader} is out of service until it is well again: it {why}"
            elif loader in verdicts.excused:
                yield f"Triton {loader} does not decide about versions: it {why}"
            else:
                yield f"Triton {loader} is sick, and too few others are well: it {why}"


def without_tritons(pool: str, held: HeldPackages) -> str:
    """Why nothing answers in a pool of which no loader is heard."""
    if not held.pools:
        return "no loader has given a sign of life: is Triton's loader running?"
    others = ", ".join(held.pools)
    return f"no Triton of the pool {pool} has given a sign of life; the pools {others} have Tritons"

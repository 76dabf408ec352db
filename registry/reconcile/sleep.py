"""Whether an endpoint's stable version may leave its Tritons because it is idle. Pure.

A loader sees its own Triton alone, and gateways send light traffic to one of several. So it is
decided here, for all Tritons of the pool at once: what sleeps is written into the status, and
loaders and gateways follow that.
"""

from contracts.endpoint import EndpointSpec, EndpointStatus
from registry.reconcile.plan import ENDED
from registry.reconcile.rollouts import HeldPackages


def note_sleep(
    spec: EndpointSpec, status: EndpointStatus, held: HeldPackages, now: float
) -> EndpointStatus:
    """The status with since when its stable version sleeps.

    It falls asleep when every loader of the pool holds it and calls it idle. It wakes when any of
    them holds it and does not, or when it is needed for more than callers.
    """
    stable = status.stable
    if stable is None or not spec.sleeps or not is_at_rest(status):
        return _with(status, None)
    pool = held.of(status.pool)
    if stable in pool.busy:
        return _with(status, None)
    if status.asleep is None and stable in pool.idle:
        return _with(status, now)
    return status


def is_at_rest(status: EndpointStatus) -> bool:
    """Whether the stable version is all that there is, and stays where it is."""
    on_its_way = status.candidate is not None and status.candidate.phase not in ENDED
    others = {*(route.ref for route in status.routes), *status.packages} - {status.stable}
    return not (on_its_way or others or status.rollout is not None or status.next_pool)


def _with(status: EndpointStatus, asleep: float | None) -> EndpointStatus:
    if status.asleep == asleep:
        return status
    return status.model_copy(update={"asleep": asleep})

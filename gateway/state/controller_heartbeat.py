"""Whether the controller is alive, so that it could end a rollout that goes wrong. Pure.

The controller is alive while its heartbeat (its sign of life) *changes*, by this gateway's own
monotonic clock. So clocks of two machines need not agree. Only the first heartbeat that a gateway
sees is compared with the machine's clock, because it may be that of a controller which stopped long
ago. If that clock is wrong, the next heartbeat corrects the result within seconds.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from contracts.controller import LEAST_TIMEOUT_SECONDS, ControllerBeat
from contracts.endpoint import CANDIDATES, ModelEndpoint

_CLOCK_ERROR_SECONDS = 60.0  # by which two machines' clocks may differ


class ControllerHeartbeat:
    """The time of the controller's last heartbeat.

    Args:
        began: when this gateway started, monotonic seconds; until the first heartbeat, the silence
            counts from here.
    """

    def __init__(self, began: float) -> None:
        self._heard = began
        self._last: ControllerBeat | None = None
        self._unattended: Mapping[str, float] = MappingProxyType(
            {}
        )  # the last time that the controller handled them

    def take(self, beat: ControllerBeat, now: float, wall: float) -> None:
        """Takes the heartbeat that the source has now, which may be the same as before."""
        last, before = self._last, self._heard
        if last is not None and (last.instance, last.count) == (beat.instance, beat.count):
            return
        age = max(0.0, wall - beat.at - _CLOCK_ERROR_SECONDS) if last is None else 0.0
        self._last = beat
        self._heard = now - age
        known = self._unattended
        self._unattended = {name: known.get(name, before) for name in beat.unattended}

    def silent_seconds(self, now: float, endpoint: str = "") -> float:
        """Seconds since the last heartbeat, or since the controller last handled an endpoint."""
        return max(0.0, now - self._unattended.get(endpoint, self._heard))


def withheld(
    endpoints: Iterable[ModelEndpoint], heartbeat: ControllerHeartbeat, now: float
) -> Mapping[str, float]:
    """The endpoints whose candidates get no callers now, with the controller's silence in seconds.

    During the bake there is no candidate, because the new version has passed every check.
    """
    found = {}
    for endpoint in endpoints:
        silent = heartbeat.silent_seconds(now, endpoint.name)
        if has_candidate(endpoint) and silent > controller_timeout_seconds(endpoint):
            found[endpoint.name] = silent
    return found


def has_candidate(endpoint: ModelEndpoint) -> bool:
    """Whether the status gives a candidate callers, or mirrored requests."""
    return any(r.arm in CANDIDATES and r.weight > 0 for r in endpoint.status.routes)


def controller_timeout_seconds(endpoint: ModelEndpoint) -> float:
    """How long the controller may be silent before the candidate gets no callers."""
    return max(endpoint.spec.rollout.controller_timeout, LEAST_TIMEOUT_SECONDS)

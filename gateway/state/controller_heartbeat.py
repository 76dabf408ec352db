"""Whether somebody would take a candidate back, as far as this gateway can see. Pure.

What counts is a *change* of the controller's sign of life, by this gateway's own monotonic clock;
no two machines' clocks are compared while it runs. Only the age of the first sign that it ever sees
is told by the clock of the machine: it may be what a controller left that is long gone, and a clock
that is wrong is set right by the next sign, seconds later.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from contracts.controller import LEAST_TIMEOUT_SECONDS, ControllerBeat
from contracts.endpoint import CANDIDATES, ModelEndpoint

_WRONG_SECONDS = 60.0  # that two machines' clocks may be apart


class ControllerHeartbeat:
    """When the controller was last heard of.

    Args:
        began: when this gateway began to listen, monotonic seconds; before the first sign, silence
            counts from here.
    """

    def __init__(self, began: float) -> None:
        self._heard = began
        self._last: ControllerBeat | None = None
        self._unattended: Mapping[str, float] = MappingProxyType({})  # when last looked after

    def take(self, beat: ControllerBeat, now: float, wall: float) -> None:
        """Takes in what the source says.

        Args:
            beat: the sign that is there.
            now: monotonic seconds.
            wall: unix time, seconds.
        """
        last, before = self._last, self._heard
        if last is not None and (last.instance, last.count) == (beat.instance, beat.count):
            return
        age = max(0.0, wall - beat.at - _WRONG_SECONDS) if last is None else 0.0
        self._last = beat
        self._heard = now - age
        known = self._unattended
        self._unattended = {name: known.get(name, before) for name in beat.unattended}

    def silent_seconds(self, now: float, endpoint: str = "") -> float:
        """For how long the controller gave no sign, or none of looking after an endpoint."""
        return max(0.0, now - self._unattended.get(endpoint, self._heard))


def withheld(
    endpoints: Iterable[ModelEndpoint], heartbeat: ControllerHeartbeat, now: float
) -> Mapping[str, float]:
    """The endpoints whose candidates get nobody now, and how long the controller was silent.

    In the bake there is no candidate: the new version has passed every check and is the stable one.
    """
    found = {}
    for endpoint in endpoints:
        silent = heartbeat.silent_seconds(now, endpoint.name)
        if has_candidate(endpoint) and silent > patience_seconds(endpoint):
            found[endpoint.name] = silent
    return found


def has_candidate(endpoint: ModelEndpoint) -> bool:
    """Whether the status gives a candidate callers, or copies of requests."""
    return any(r.arm in CANDIDATES and r.weight > 0 for r in endpoint.status.routes)


def patience_seconds(endpoint: ModelEndpoint) -> float:
    """How long the controller may be silent before its candidate gets nobody."""
    return max(endpoint.spec.rollout.controller_timeout, LEAST_TIMEOUT_SECONDS)

"""Whether somebody looks after a rollout, in a sentence for people. Pure.

A machine's clock is compared with the controller's here, which is good enough for a sentence.
Gateways decide by their own clocks (``gateway/state/controller_heartbeat.py``).
"""

from contracts.controller import BEAT_SECONDS, ControllerBeat
from contracts.durations import about
from contracts.endpoint import CANDIDATES, ModelEndpoint
from gateway.state.controller_heartbeat import controller_timeout_seconds, has_candidate

_LATE_SECONDS = 3 * BEAT_SECONDS


def care(endpoint: ModelEndpoint, beat: ControllerBeat | None, now: float) -> str:
    """What is to be said where nobody could take a candidate back; else empty.

    Args:
        endpoint: as stored.
        beat: the controller's last sign of life; None where there is none.
        now: unix time, seconds.
    """
    if beat is None or not has_candidate(endpoint):
        return ""
    silent, patience = max(0.0, now - beat.at), controller_timeout_seconds(endpoint)
    if endpoint.name in beat.unattended:
        what = "The controller can't look after this endpoint: its log says why."
    elif silent <= _LATE_SECONDS:
        return ""
    else:
        what = f"The controller gave its last sign {about(silent)} ago."
    version = next(r.ref.version for r in endpoint.status.routes if r.arm in CANDIDATES)
    if silent > patience:
        return f"{what} Gateways give version {version}'s callers to the stable version."
    return (
        f"{what} After {about(patience)} of it gateways give version {version}'s callers to the "
        "stable version."
    )

"""What an endpoint's status says to people who look at it with kubectl: a few words, conditions.

Pure; readers leave it out again.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from contracts.endpoint import Arm, EndpointStatus, Phase
from contracts.endpoint_record import shorten
from contracts.waiting import describe_wait

Part = dict[str, Any]

_ON_ITS_WAY = frozenset(
    {
        Phase.WAITING,
        Phase.CONVERTING,
        Phase.VERIFYING,
        Phase.PUBLISHING,
        Phase.LOADING,
        Phase.LOADED,
        Phase.SHADOW,
        Phase.CANARY,
        Phase.PROMOTED,
    }
)
_MOST_MESSAGE = 300  # bytes: gateways are sent it too


def make_columns(status: EndpointStatus) -> Part:
    """The columns of ``kubectl get mep``."""
    stable, candidate = status.stable, status.candidate
    words = {
        "stable": stable.version if stable else "",
        "candidate": candidate.version if candidate else "",
        "phase": _phase(status),
        "weights": ", ".join(_weights(status)),
        "pool": " to ".join(status.pools),
    }
    return {name: word for name, word in words.items() if word}


def conditions(
    status: EndpointStatus, before: Iterable[Mapping[str, Any]], generation: int, now: float
) -> list[Part]:
    """The conditions, with the time of each one's last change."""
    last = {condition.get("type"): condition for condition in before}
    made = [_ready(status), _progressing_condition(status), _accepted_condition(status)]
    if status.unguarded:
        made.append(_condition("Guarded", "False", "UnknownLabel", status.unguarded))
    return [
        _set_date(condition, last.get(condition["type"]), generation, now) for condition in made
    ]


def note_refusal(
    reason: str, before: Iterable[Mapping[str, Any]], generation: int, now: float
) -> Part:
    """The condition of an endpoint whose spec can't be read."""
    last = {condition.get("type"): condition for condition in before}
    made = _condition("Accepted", "False", "Invalid", reason)
    return _set_date(made, last.get(made["type"]), generation, now)


def moment(seconds: float) -> str:
    """A time as Kubernetes writes it in objects."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _phase(status: EndpointStatus) -> str:
    if status.candidate is not None:
        return status.candidate.phase.value
    return Phase.SERVING.value if status.stable else ""


def _weights(status: EndpointStatus) -> Iterable[str]:
    for route in status.routes:
        copies = " copied" if route.arm is Arm.SHADOW else ""
        yield f"{route.ref.version}: {route.weight:g} %{copies}"


def _accepted_condition(status: EndpointStatus) -> Part:
    if status.refused:
        return _condition("Accepted", "False", "AboveCeiling", "; ".join(status.refused))
    return _condition("Accepted", "True", "WithinCeilings", "nothing is above a ceiling")


def _ready(status: EndpointStatus) -> Part:
    stable = status.stable
    if stable is not None and status.unserved:
        return _condition("Ready", "False", "NoTritons", status.unserved)
    if stable is not None and status.asleep is not None:
        said = f"version {stable.version} is stable, and comes back with the next caller"
        return _condition("Ready", "True", "Asleep", said)
    if stable is not None:
        return _condition("Ready", "True", "Serving", f"version {stable.version} is stable")
    why = describe_wait(status, status.waits[0]) if status.waits else ""
    if status.candidate is not None:
        why = status.candidate.reason or why
    message = f"no version serves yet: {why}" if why else "no version serves yet"
    return _condition("Ready", "False", _phase(status) or Phase.WAITING.value, message)


def _progressing_condition(status: EndpointStatus) -> Part:
    candidate = status.candidate
    if candidate is None:
        return _condition("Progressing", "False", "Settled", "no version is on its way")
    on_its_way = "True" if candidate.phase in _ON_ITS_WAY else "False"
    phase = candidate.phase.value
    message = f"version {candidate.version} is {phase}"
    if candidate.reason:
        message += f": {candidate.reason}"
    return _condition("Progressing", on_its_way, phase, message)


def _condition(kind: str, status: str, reason: str, message: str) -> Part:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": shorten(message, _MOST_MESSAGE),
    }


def _set_date(condition: Part, last: Mapping[str, Any] | None, generation: int, now: float) -> Part:
    since = moment(now)
    if last is not None and last.get("status") == condition["status"]:
        since = str(last.get("lastTransitionTime") or since)
    return {**condition, "observedGeneration": generation, "lastTransitionTime": since}

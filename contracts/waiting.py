"""What endpoints and versions wait for, in words: the one owner of these sentences. Pure.

A status records what is waited for, by its cause, and since when (``EndpointStatus.waits``). The
words are here: what it is, and what a person can do. The command line, ``/ui``, conditions, Events
and MLflow's tags say the same. It never decides what is waited for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from contracts.durations import humanise
from contracts.endpoint import EndpointStatus, ModelEndpoint, Phase, Wait, WaitsFor
from contracts.instants import date_and_time


@dataclass(frozen=True, slots=True)
class WaitWording:
    """A cause in words; ``{endpoint}`` and ``{version}`` are filled in.

    ``what`` is said if the status has no words of its own. ``is_brief``: the status's own words
    change often, so that what is kept elsewhere says ``what`` instead.
    """

    what: str
    to_do: str
    is_brief: bool = False


_ITSELF = "it goes on by itself"
_RETRY = "headrace rollout retry {endpoint} {version}"

WORDS: Final[Mapping[WaitsFor, WaitWording]] = {
    WaitsFor.CONTROLLER: WaitWording(
        "the controller has not looked at it yet",
        "see with headrace status whether the controller runs",
    ),
    WaitsFor.MLFLOW: WaitWording(
        "the controller has not read its model's versions in MLflow yet",
        f"see in the controller's log whether MLflow answers; {_ITSELF}",
    ),
    WaitsFor.MODEL: WaitWording(
        "MLflow has no registered model of its name", "register it, or change spec.model"
    ),
    WaitsFor.FIRST_VERSION: WaitWording("MLflow's model has no version", "register one"),
    WaitsFor.PINNED_VERSION: WaitWording(
        "MLflow lacks the version that is pinned", "register it, or change the pin"
    ),
    WaitsFor.ALIAS: WaitWording("MLflow's model lacks the alias", "set it to a version"),
    WaitsFor.VERSION_OF_ALIAS: WaitWording(
        "MLflow lacks the version that the alias names", "set the alias to another version"
    ),
    WaitsFor.LOST_VERSION: WaitWording(
        "a version that gets callers is not in MLflow any more",
        "register a newer version, or pin one; what serves goes on until then",
    ),
    WaitsFor.LOST_PACKAGE: WaitWording(
        "the package store lacks the package of the version that serves",
        "register its version again, or another one, before a Triton has to load it again",
    ),
    WaitsFor.NEWER_VERSION: WaitWording(
        "too many versions were rejected: those up to this one are not tried any more",
        "register a newer one, or pin one: headrace rollout pin {endpoint} VERSION",
    ),
    WaitsFor.TURN: WaitWording(
        "other conversions have to end first",
        f"nothing, {_ITSELF}; the controller's option --conversions lets more run at once",
        is_brief=True,
    ),
    WaitsFor.DEVICE: WaitWording(
        "no Triton of its pool has said yet what it computes on",
        f"see in the log of the pool's loaders what keeps Triton from starting; {_ITSELF}",
    ),
    WaitsFor.CONVERSION: WaitWording(
        "its conversion runs",
        "nothing, it ends by itself or at its time limit; the controller's log says how it goes",
        is_brief=True,
    ),
    WaitsFor.RETRY: WaitWording(
        "what it needs failed",
        "put that right; it is tried again by itself, with growing pauses",
    ),
    WaitsFor.STORE: WaitWording(
        "the package store can't be read",
        f"see that the store answers and its credentials hold; {_ITSELF}",
    ),
    WaitsFor.TRITONS: WaitWording(
        "no Triton of its pool has given a sign of life",
        "start one with its loader, or change spec.pool",
    ),
    WaitsFor.LOADING: WaitWording(
        "not every Triton of its pool has loaded it",
        f"nothing, {_ITSELF}; headrace status shows the loaders",
        is_brief=True,
    ),
    WaitsFor.ROOM: WaitWording(
        "Tritons can't load it",
        f"give them what they lack, such as memory, or unload others; {_ITSELF}",
    ),
    WaitsFor.SICK_TRITON: WaitWording(
        "a Triton refuses what is good",
        "see its log and its node, and restart it elsewhere: with its first load it counts again",
    ),
    WaitsFor.CEILING: WaitWording(
        "its spec is above the operator's ceiling",
        "change the spec, or ask the operator for more",
    ),
    WaitsFor.ROLLOUT: WaitWording(
        "its rollout begins once a ready Triton holds it and the version before",
        f"nothing, {_ITSELF}; headrace rollout promote {{endpoint}} begins it at once",
    ),
    WaitsFor.CHECKS: WaitWording(
        "its checks have not passed",
        "see with headrace rollout status {endpoint} what each check lacks; promote or abort "
        "decides at once",
    ),
    WaitsFor.RESUME: WaitWording("its rollout is paused", "headrace rollout resume {endpoint}"),
    WaitsFor.PERSON: WaitWording(
        "it stays in shadow until someone decides",
        "headrace rollout promote {endpoint}, or abort",
    ),
    WaitsFor.BAKE: WaitWording(
        "its bake has not ended",
        "nothing, it ends by itself; headrace rollout undo {endpoint} goes back",
    ),
    WaitsFor.VERDICT: WaitWording(
        "it was rolled back", f"register a better version, or have it tried again: {_RETRY}"
    ),
    WaitsFor.ANOTHER_TRY: WaitWording(
        "it came to no verdict", f"give it what it lacked, and have it tried again: {_RETRY}"
    ),
    WaitsFor.FAULT: WaitWording(
        "Headrace can't go on with it", "see the controller's log, and report it"
    ),
    WaitsFor.POOL: WaitWording(
        "callers move to another pool once all its Tritons hold what they need",
        f"nothing, {_ITSELF}; with spec.pool as it was it stays",
    ),
    WaitsFor.CALLER: WaitWording(
        "it sleeps because it was idle",
        "nothing, it comes back with the next caller; spec.sleeps: false keeps it loaded",
    ),
}

# What a version in a phase waits for if nothing else is known of it; none: it does not wait.
OF_PHASE: Final[Mapping[Phase, WaitsFor | None]] = {
    Phase.WAITING: WaitsFor.TURN,
    Phase.CONVERTING: WaitsFor.CONVERSION,
    Phase.VERIFYING: WaitsFor.CONVERSION,
    Phase.PUBLISHING: WaitsFor.CONVERSION,
    Phase.LOADING: WaitsFor.LOADING,
    Phase.LOADED: WaitsFor.ROLLOUT,
    Phase.SHADOW: WaitsFor.CHECKS,
    Phase.CANARY: WaitsFor.CHECKS,
    Phase.PROMOTED: WaitsFor.BAKE,
    Phase.SETTLED: None,
    Phase.SERVING: None,
    Phase.BLOCKED: WaitsFor.ROOM,
    Phase.REJECTED: WaitsFor.VERDICT,
    Phase.ROLLED_BACK: WaitsFor.VERDICT,
    Phase.SUPERSEDED: None,
    Phase.EXPIRED: WaitsFor.ANOTHER_TRY,
}


def waits_of(endpoint: ModelEndpoint) -> tuple[Wait, ...]:
    """What an endpoint and its versions wait for, also before the controller has seen it."""
    status = endpoint.status
    if status == EndpointStatus():
        return (Wait(cause=WaitsFor.CONTROLLER, since=0.0),)
    return status.waits


def describe_wait(status: EndpointStatus, wait: Wait) -> str:
    """What is waited for, in words."""
    if wait.what:
        return wait.what
    candidate = status.candidate
    if candidate is not None and candidate.version == wait.version and candidate.reason:
        return candidate.reason
    return WORDS[wait.cause].what


def to_do(endpoint: str, wait: Wait) -> str:
    """What a person can do about it."""
    return WORDS[wait.cause].to_do.format(endpoint=endpoint, version=wait.version)


def new_waits(before: EndpointStatus, after: EndpointStatus) -> Iterable[Wait]:
    """Those that are not what they were, by what is kept of them."""
    known = {identify_wait(before, wait) for wait in before.waits}
    return (wait for wait in after.waits if identify_wait(after, wait) not in known)


def sentences(endpoint: ModelEndpoint, now: float, *, told: str = "") -> Iterable[str]:
    """A sentence for each wait: for what, for how long, and what to do.

    What is ``told`` already is not repeated, nor that a version sleeps, which people see apart.
    """
    for wait in waits_of(endpoint):
        if wait.cause is WaitsFor.CALLER:
            continue
        said = describe_wait(endpoint.status, wait)
        who = f"version {wait.version} waits" if wait.version else "waits"
        how_long = f" {humanise(now - wait.since)}" if wait.since else ""
        why = "" if said in told else f": {said}"
        yield f"{who}{how_long}{why}; to do: {to_do(endpoint.name, wait)}"


def describe_with_time(endpoint: str, status: EndpointStatus, wait: Wait, most: int) -> str:
    """The sentence with the time at which it began, for places that keep ``most`` characters."""
    rest = f", since {date_and_time(wait.since)} UTC; to do: {to_do(endpoint, wait)}"
    said = identify_wait(status, wait)[2]
    room = most - len(rest)
    return (said if len(said) <= room else f"{said[: room - 3]}...") + rest


def identify_wait(status: EndpointStatus, wait: Wait) -> tuple[WaitsFor, str, str]:
    """Cause, version and words of a wait; they are others only if something happened."""
    words = WORDS[wait.cause]
    return wait.cause, wait.version, words.what if words.is_brief else describe_wait(status, wait)

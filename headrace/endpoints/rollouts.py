"""What people ask of a rollout, and whether a controller is there to hear it.

A command is an annotation of the endpoint; the controller answers in the status and takes the
annotation away. Whether a command makes sense is the controller's to say: it is refused here only
if there is no room for it. What an endpoint followed before a pin is kept in an annotation too,
for the spec has no room for it.
"""

import time
from collections.abc import Callable, Iterable

from pydantic import TypeAdapter, ValidationError

from contracts.controller import BEAT_SECONDS, ControllerBeat
from contracts.durations import humanise
from contracts.endpoint import (
    CANDIDATES,
    AliasVersion,
    FollowVersion,
    ModelEndpoint,
    PinnedVersion,
)
from contracts.rollout import (
    COMMAND_BY_PREFIX,
    COMMAND_PREFIX,
    COMMANDS_LIMIT,
    Command,
    CommandOutcome,
    Verb,
)
from gateway.state.controller_heartbeat import controller_timeout_seconds, has_candidate
from headrace.endpoints import edits
from headrace.errors import RefusedError
from registry.stores.endpoints import EndpointStore

_POLL_SECONDS = 0.1
_LATE_SECONDS = 3 * BEAT_SECONDS
_BEFORE_PIN = "headrace.dev/before-pin"
_OF_THE_SPEC = frozenset({Verb.PIN, Verb.UNPIN})
_Followed = FollowVersion | AliasVersion
_followed: TypeAdapter[_Followed] = TypeAdapter(_Followed)


def ask(
    store: EndpointStore,
    name: str,
    command: Command,
    change: Callable[[ModelEndpoint], ModelEndpoint] = lambda endpoint: endpoint,
) -> ModelEndpoint:
    """Notes a command on its endpoint, in one write with what ``change`` does to the spec.

    Returns:
        The endpoint as it was before.

    Raises:
        RequestFailedError: there is no such endpoint.
        RefusedError: too many commands wait, or ``change`` refuses.
        BrokenHomeError: the endpoint can't be read or written.
    """
    before: list[ModelEndpoint] = []

    def note(stored: ModelEndpoint) -> ModelEndpoint:
        before[:] = [stored]
        changed = change(stored)
        notes = changed.metadata.annotations
        waiting = sum(key.startswith(COMMAND_PREFIX) for key in notes)
        if waiting >= COMMANDS_LIMIT:
            raise RefusedError(
                f"{waiting} commands wait for the controller already. Is the stack running? "
                "See headrace status."
            )
        command_note, by_note = _notes(command)
        added = {command_note: command.to_text(), by_note: command.by}
        metadata = changed.metadata.model_copy(update={"annotations": {**notes, **added}})
        return changed.model_copy(update={"metadata": metadata})

    edits.edit(store, name, note)
    return before[0]


def withdraw(
    store: EndpointStore, name: str, command: Command, before: ModelEndpoint
) -> CommandOutcome | None:
    """Withdraws a command that was not answered, and what a pin changed in the spec with it.

    Returns:
        The answer, if one has come by now: then nothing is withdrawn.

    Raises:
        RequestFailedError: the endpoint was removed meanwhile.
        BrokenHomeError: it can't be read or written.
    """

    def taken_back(stored: ModelEndpoint) -> ModelEndpoint:
        if _outcome(stored, command) is not None:
            return stored
        notes = dict(stored.metadata.annotations)
        for note in _notes(command):
            notes.pop(note, None)
        version = stored.spec.version
        if command.verb in _OF_THE_SPEC:
            version = before.spec.version
            notes.pop(_BEFORE_PIN, None)
            if _BEFORE_PIN in before.metadata.annotations:
                notes[_BEFORE_PIN] = before.metadata.annotations[_BEFORE_PIN]
        return _set_version(stored, version, notes)

    return _outcome(edits.edit(store, name, taken_back), command)


def _notes(command: Command) -> tuple[str, str]:
    return f"{COMMAND_PREFIX}{command.id}", f"{COMMAND_BY_PREFIX}{command.id}"


def _outcome(endpoint: ModelEndpoint, command: Command) -> CommandOutcome | None:
    found = (each for each in endpoint.status.commands if each.id == command.id)
    return next(found, None)


def answer(
    store: EndpointStore, name: str, command: Command, *, within_seconds: float
) -> CommandOutcome | None:
    """What the controller said, or None if it said nothing in time; the command waits on then.

    Raises:
        RequestFailedError: the endpoint was removed meanwhile.
        BrokenHomeError: the endpoint can't be read.
    """
    deadline = time.monotonic() + within_seconds
    while True:
        if (outcome := _outcome(edits.find_existing(store, name), command)) is not None:
            return outcome
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_SECONDS)


def pin_version(endpoint: ModelEndpoint, version: str) -> ModelEndpoint:
    """The endpoint with its spec on one version; raises ``RefusedError``."""
    if not version.isascii() or not version.isdigit():
        raise RefusedError(f"{version} is no version: MLflow counts them 1, 2, 3.")
    now = endpoint.spec.version
    if isinstance(now, PinnedVersion):
        if now.pin == version:
            raise RefusedError(f"The endpoint {endpoint.name} is pinned to version {version}.")
        notes = endpoint.metadata.annotations
    else:
        followed = _followed.dump_json(now).decode()
        notes = {**endpoint.metadata.annotations, _BEFORE_PIN: followed}
    return _set_version(endpoint, PinnedVersion(pin=version), notes)


def unpin_version(endpoint: ModelEndpoint) -> ModelEndpoint:
    """The endpoint following what it followed before it was pinned, else the latest version.

    Raises:
        RefusedError: it is not pinned.
    """
    if not isinstance(endpoint.spec.version, PinnedVersion):
        raise RefusedError(f"The endpoint {endpoint.name} is not pinned.")
    notes = dict(endpoint.metadata.annotations)
    try:
        version = _followed.validate_json(notes.pop(_BEFORE_PIN, "{}"))
    except ValidationError:
        version = FollowVersion()
    return _set_version(endpoint, version, notes)


def list_known(endpoint: ModelEndpoint) -> tuple[str, ...]:
    """The versions that the endpoint's status tells of, newest first."""
    status = endpoint.status
    found = {route.ref.version for route in status.routes}
    found |= {ref.version for ref in status.packages}
    found |= {line.version for line in status.history}
    found |= {rejection.version for rejection in status.rejected}
    if status.candidate is not None:
        found.add(status.candidate.version)
    return _newest_first(found)


def list_rejected(endpoint: ModelEndpoint) -> tuple[str, ...]:
    """The versions that are not tried again unless a person asks for it, newest first."""
    return _newest_first({rejection.version for rejection in endpoint.status.rejected})


def _newest_first(versions: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(versions, key=lambda each: (len(each), each), reverse=True))


def _set_version(
    endpoint: ModelEndpoint,
    version: FollowVersion | AliasVersion | PinnedVersion,
    notes: dict[str, str],
) -> ModelEndpoint:
    return endpoint.model_copy(
        update={
            "metadata": endpoint.metadata.model_copy(update={"annotations": notes}),
            "spec": endpoint.spec.model_copy(update={"version": version}),
        }
    )


def silence_warning(endpoint: ModelEndpoint, beat: ControllerBeat | None, now: float) -> str:
    """What is to be said if a candidate could not be rolled back; else empty."""
    if not has_candidate(endpoint):
        return ""
    version = next(r.ref.version for r in endpoint.status.routes if r.arm in CANDIDATES)
    timeout = controller_timeout_seconds(endpoint)
    if beat is None:  # the Lease goes with the controller's pod
        return (
            f"No sign of the controller can be read. After {humanise(timeout)} without one "
            f"gateways give version {version}'s callers to the stable version."
        )
    silent = max(0.0, now - beat.at)
    if endpoint.name in beat.unattended:
        what = "The controller can't look after this endpoint: its log says why."
    elif silent <= _LATE_SECONDS:
        return ""
    else:
        what = f"The controller gave its last sign {humanise(silent)} ago."
    if silent > timeout:
        return f"{what} Gateways give version {version}'s callers to the stable version."
    return (
        f"{what} After {humanise(timeout)} of it gateways give version {version}'s callers to the "
        "stable version."
    )

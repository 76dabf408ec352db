"""Tells the controller what a person decides about a rollout, and waits for its answer.

A command is an annotation of the endpoint; the controller answers in the status and takes the
annotation away. Whether a command makes sense is the controller's to say: this module refuses one
only where there is no room for it.
"""

import time
from collections.abc import Callable

from contracts.endpoint import ModelEndpoint
from contracts.rollout import COMMAND_PREFIX, COMMANDS_LIMIT, Command, CommandOutcome
from headrace.endpoints import edits
from headrace.errors import RefusedError
from registry.stores.endpoints import EndpointStore

POLL_SECONDS = 0.1


def ask(
    store: EndpointStore,
    name: str,
    command: Command,
    change: Callable[[ModelEndpoint], ModelEndpoint] = lambda endpoint: endpoint,
) -> None:
    """Notes a command on its endpoint, in one write with what ``change`` does to the spec.

    Raises:
        RequestFailedError: there is no such endpoint.
        RefusedError: too many commands wait, or ``change`` refuses.
        BrokenHomeError: the endpoint can't be read or written.
    """

    def noted(stored: ModelEndpoint) -> ModelEndpoint:
        changed = change(stored)
        notes = changed.metadata.annotations
        waiting = sum(key.startswith(COMMAND_PREFIX) for key in notes)
        if waiting >= COMMANDS_LIMIT:
            raise RefusedError(
                f"{waiting} commands wait for the controller already. Is the stack running? "
                "See headrace status."
            )
        key = f"{COMMAND_PREFIX}{command.id}"
        metadata = changed.metadata.model_copy(
            update={"annotations": {**notes, key: command.model_dump_json()}}
        )
        return changed.model_copy(update={"metadata": metadata})

    edits.edit(store, name, noted)


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
        for outcome in edits.existing(store, name).status.commands:
            if outcome.id == command.id:
                return outcome
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)

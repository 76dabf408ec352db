"""What people asked of a rollout, as it waits in an endpoint's annotations. Pure.

A command stays until ``status.commands`` holds its answer; both change in one write, so that a
controller that is killed forgets none and answers none twice.
"""

import logging
from collections.abc import Mapping

from pydantic import ValidationError

from contracts.endpoint import ModelEndpoint
from contracts.rollout import COMMAND_PREFIX, Command

log = logging.getLogger(__name__)


def waiting(annotations: Mapping[str, str]) -> tuple[Command, ...]:
    """The commands in an endpoint's annotations, oldest first; what is none is left out."""
    found = [command for key in annotations if (command := _read(key, annotations[key]))]
    return tuple(sorted(found, key=lambda command: (command.at, command.id)))


def without_answered(endpoint: ModelEndpoint) -> ModelEndpoint:
    """Without the commands that were answered, and without what can't be read as one."""
    answered = {outcome.id for outcome in endpoint.status.commands}
    annotations = endpoint.metadata.annotations
    kept = {}
    for key, text in annotations.items():
        if not key.startswith(COMMAND_PREFIX):
            kept[key] = text
            continue
        command = _read(key, text)
        if command is None:
            log.warning("%s: the annotation %s is no command: %s", endpoint.name, key, text)
        elif command.id not in answered:
            kept[key] = text
    if kept == annotations:
        return endpoint
    metadata = endpoint.metadata.model_copy(update={"annotations": kept})
    return endpoint.model_copy(update={"metadata": metadata})


def _read(key: str, text: str) -> Command | None:
    """The command; its id is the key's end, whatever the text says."""
    if not key.startswith(COMMAND_PREFIX):
        return None
    try:
        command = Command.model_validate_json(text)
    except ValidationError:
        return None
    return command.model_copy(update={"id": key.removeprefix(COMMAND_PREFIX)})

"""A controller that only answers commands, for tests of the command line."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from contracts.endpoint import ModelEndpoint
from contracts.rollout import COMMAND_BY_PREFIX, COMMAND_PREFIX, Command, CommandOutcome
from registry.errors import EndpointConflictError
from registry.stores.endpoints import EndpointStore, FileEndpointStore

Says = Callable[[Command], tuple[bool, str]]


class FakeController:
    """Answers each command by ``says``; as the real one does, in one write."""

    def __init__(self, endpoints: Path | EndpointStore, says: Says) -> None:
        self.commands: list[Command] = []
        self._store: EndpointStore = (
            FileEndpointStore(endpoints) if isinstance(endpoints, Path) else endpoints
        )
        self._says = says
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Iterator["FakeController"]:
        """Answers from a thread of its own until the block ends."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(0.01):
            for endpoint in self._store.list():
                self.look(endpoint)

    def look(self, endpoint: ModelEndpoint) -> None:
        """Answers what waits on one endpoint."""
        waiting = [
            Command.model_validate_json(text)
            for key, text in endpoint.metadata.annotations.items()
            if key.startswith(COMMAND_PREFIX)
        ]
        if not waiting:
            return
        outcomes = []
        for command in waiting:
            accepted, said = self._says(command)
            outcomes.append(
                CommandOutcome(
                    id=command.id,
                    verb=command.verb,
                    by=command.by,
                    at=command.at,
                    accepted=accepted,
                    said=said,
                )
            )
        notes = {
            key: text
            for key, text in endpoint.metadata.annotations.items()
            if not key.startswith((COMMAND_PREFIX, COMMAND_BY_PREFIX))
        }
        metadata = endpoint.metadata.model_copy(update={"annotations": notes})
        status = endpoint.status.model_copy(
            update={"commands": (*endpoint.status.commands, *outcomes)}
        )
        try:
            self._store.put(endpoint.model_copy(update={"metadata": metadata, "status": status}))
        except EndpointConflictError:
            return
        self.commands += waiting

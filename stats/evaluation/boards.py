"""The board of all endpoints: this process' own as they are now, others by the states in Kafka."""

import logging
from collections.abc import Callable
from dataclasses import replace

from service.kafka import StreamError
from stats.evaluation.board import Board, EndpointBoard
from stats.evaluation.known import EndpointState
from stats.evaluation.packing import unpack
from stats.reading.window_group import StatesOfAll

log = logging.getLogger(__name__)

_SECONDS = 2.0  # of one question; what was not read then is at the next one


class BoardOfAll:
    """For one thread at a time. Nothing is read before somebody asks."""

    def __init__(self, own: Callable[[], Board], states: StatesOfAll) -> None:
        """Takes where this process' own board is found."""
        self._own = own
        self._states = states
        self._made: dict[str, tuple[bytes, EndpointBoard]] = {}

    def __call__(self) -> Board:
        """The newest board; one's own alone, or with others of before, if Kafka is away."""
        own = self._own()
        try:
            found = self._states.newest(_SECONDS)
        except StreamError as error:
            log.info("what others know can't be read", extra={"reason": str(error)})
        else:
            self._made = {
                name: self._make(name, packed)
                for name, packed in found.items()
                if name not in own.by_endpoint
            }
        others = {name: board for name, (_, board) in self._made.items()}
        return replace(own, by_endpoint=others | dict(own.by_endpoint))

    def _make(self, name: str, packed: bytes) -> tuple[bytes, EndpointBoard]:
        made = self._made.get(name)
        if made is not None and made[0] == packed:
            return made
        try:
            return packed, unpack(packed, EndpointState).board()
        except ValueError as error:
            log.warning("a state can't be read", extra={"of": name, "reason": str(error)})
            return packed, EndpointBoard(name)

"""Where messages go, and how that can fail: Kafka's sink and the tests' satisfy one Protocol.

A sink is used from one thread. It holds at most one message at a time and stores none: what is not
acknowledged must be sent again.
"""

from concurrent.futures import Future
from typing import Literal, Protocol

DropReason = Literal["buffer_full", "too_large", "invalid", "send_failed", "shutdown"]


class SinkError(Exception):
    """A message was not acknowledged."""


class SinkUnavailableError(SinkError):
    """The sink can't be reached, or did not answer in time: send the same message again.

    ``maybe_written``: the message may have got there all the same.
    """

    def __init__(self, message: str, *, maybe_written: bool) -> None:
        super().__init__(message)
        self.maybe_written = maybe_written


class MessageRefusedError(SinkError):
    """The sink did not take this message and never will."""

    def __init__(self, message: str, *, reason: Literal["too_large", "send_failed"]) -> None:
        super().__init__(message)
        self.reason: Literal["too_large", "send_failed"] = reason


class EventSink(Protocol):
    """A durable log of messages. Used from one thread; futures may end in any."""

    def submit(self, sequence: int, message: bytes) -> "Future[None]":
        """Hands one message over, within a few seconds.

        Copies of a message have the same ``sequence`` and lie where the same reader finds them.
        The future ends when the message is durable, or with a ``SinkError``. It always ends, or
        the next ``submit`` gives it up. Raises the same errors where they are known at once.
        """
        ...

    def close(self, timeout_seconds: float) -> None:
        """Gives up whatever is under way and frees everything; never raises."""
        ...

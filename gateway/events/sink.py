"""Where messages go: the Protocol that Kafka and the tests' stand-in both satisfy.

Called by the publisher, from its one thread. A sink holds at most one message at a time and keeps
nothing of its own accord: what is not acknowledged is the publisher's to send again.
"""

from concurrent.futures import Future
from typing import Protocol


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

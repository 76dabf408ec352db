"""Where messages go: the Protocol that Kafka and the local stand-in both satisfy.

Called by the publisher, from its one thread. A sink holds at most one message at a time and keeps
nothing of its own accord: what is not acknowledged is the publisher's to send again.
"""

from concurrent.futures import Future
from typing import Protocol

from gateway.events.errors import MessageRefusedError, SinkUnavailableError


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


class MemorySink:
    """A log in this process' memory, bounded, for tests and for a gateway without Kafka.

    ``available`` and ``max_message_bytes`` may be changed at any time, as an operator might.
    """

    def __init__(self, *, max_messages: int = 100_000, max_message_bytes: int = 1_000_000) -> None:
        self.messages: list[bytes] = []
        self.available = True
        self.max_message_bytes = max_message_bytes
        self._max_messages = max_messages

    def submit(self, sequence: int, message: bytes) -> "Future[None]":
        """Appends the message; refuses one too large, and is unavailable when told so or full."""
        del sequence  # there is one log, and every reader finds every copy in it
        if not self.available or len(self.messages) >= self._max_messages:
            raise SinkUnavailableError("the memory sink is switched off", maybe_written=False)
        if len(message) > self.max_message_bytes:
            raise MessageRefusedError(
                f"{len(message)} bytes are more than {self.max_message_bytes}", reason="too_large"
            )
        self.messages.append(message)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def close(self, timeout_seconds: float) -> None:
        """Keeps the messages for whoever wants to read them."""

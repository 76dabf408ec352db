"""An event sink in memory; one set of tests holds it and Kafka's to the same Protocol."""

from concurrent.futures import Future

from gateway.events.publisher import MessageRefusedError, SinkUnavailableError


class MemorySink:
    """Keeps messages in order, up to a bound.

    ``available`` and ``max_message_bytes`` may be changed at any time, as an operator might.
    """

    def __init__(self, *, max_messages: int = 100_000, max_message_bytes: int = 1_000_000) -> None:
        self.messages: list[bytes] = []
        self.available = True
        self.max_message_bytes = max_message_bytes
        self._max_messages = max_messages

    def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
        """Appends the message; refuses one too large, and is unavailable when told so or full."""
        del sequence, key  # there is one log, and every reader finds every copy in it
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

"""What can go wrong between a gateway and its event stream. None of it ever reaches a caller."""

from typing import Literal

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

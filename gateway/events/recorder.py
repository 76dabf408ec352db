"""Where the handler leaves what happened; the event stream and tests implement it."""

from typing import Protocol

from contracts.events import Feedback, PredictionEvent


class Recorder(Protocol):
    """Takes what happened without ever blocking, raising or slowing a prediction down."""

    def attempt(self, event: PredictionEvent) -> None:
        """One attempt, failures included; what finds no room is counted as dropped."""
        ...

    def refusal(self, endpoint: str, status: int, reason: str) -> None:
        """A request that a known endpoint refused before any attempt."""
        ...

    def feedback(self, told: Feedback) -> None:
        """The truth about one answered text; what finds no room is counted as dropped."""
        ...

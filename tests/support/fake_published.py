"""The ends of the event log as a test sets them."""

from dataclasses import dataclass, field

from stats.reading.published import Ends


@dataclass
class FakePublished:
    """Answers with ``told``, or fails with ``error``."""

    told: Ends = field(default_factory=Ends)
    error: Exception | None = None
    closed: bool = False

    def ends(self) -> Ends:
        if self.error is not None:
            raise self.error
        return self.told

    def close(self) -> None:
        self.closed = True

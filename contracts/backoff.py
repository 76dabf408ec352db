"""How long to wait before what failed is tried again. It never waits or counts by itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failure in a row.

    Attributes:
        first: seconds after the first failure.
        most: seconds that no pause exceeds.
        jitter: the share of a pause that is drawn, so that many callers do not come at once.
    """

    first: float
    most: float
    jitter: float = 0.0

    def after(self, failures: int, drawn: float = 1.0) -> float:
        """The pause, in seconds, after this number of failures in a row.

        Args:
            failures: 1 and more; fewer count as 1.
            drawn: from 0 to 1, what the jitter is multiplied with.

        >>> [Backoff(1.0, 5.0).after(failures) for failures in (1, 2, 3, 4, 5000)]
        [1.0, 2.0, 4.0, 5.0, 5.0]
        """
        whole = min(self.most, self.first * 2.0 ** min(max(failures - 1, 0), 64))
        return whole * (1.0 - self.jitter + self.jitter * drawn)

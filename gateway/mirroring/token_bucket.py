"""What mirrored requests may take of the engines' time and of this process's.

Pure: the time is passed in.
"""

from dataclasses import dataclass

_MOST_PACKAGES = 64  # what is beyond are rollouts long gone


@dataclass(frozen=True, slots=True)
class MirrorLimits:
    """What copies may take.

    Attributes:
        engine_share: of each engine's time.
        texts_per_second: of this process's; one costs about 0.2 ms of the event loop.
        burst_seconds: how long an unused share is saved up.
        waiting: copies that wait at most.
        waiting_tokens: and their tokens; a single copy may have more.
        patience_seconds: how long a copy waits for an engine to idle.
        most_lag_seconds: of an event loop that still has time.
        look_seconds: between two looks while copies wait.
    """

    engine_share: float = 0.05
    texts_per_second: float = 250.0
    burst_seconds: float = 0.5
    waiting: int = 32
    waiting_tokens: int = 32_768
    patience_seconds: float = 0.5
    most_lag_seconds: float = 0.01
    look_seconds: float = 0.005


class TokenBucket:
    """A token bucket that may be overdrawn once: nothing more is taken until it is positive again.

    Args:
        rate: units a second.
        burst: units that it holds at most.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = 0.0

    def open(self, now: float) -> bool:
        """Whether anything may be taken."""
        self._level = min(self._burst, self._level + self._rate * max(0.0, now - self._at))
        self._at = now
        return self._level > 0

    def take(self, units: float) -> None:
        """Takes units, below zero if need be."""
        self._level -= units


class EngineBuckets:
    """A share of the time of each engine that holds a package, however many there are by now.

    Args:
        share: of an engine's time.
        burst_seconds: how long an unused share is saved up.
    """

    def __init__(self, share: float, burst_seconds: float) -> None:
        self._share = share
        self._burst = share * burst_seconds
        self._of_one: dict[str, TokenBucket] = {}  # engine, by package

    def open(self, package: str, now: float) -> bool:
        """Whether a package's engines have time for a copy."""
        return self._of(package).open(now)

    def take(self, package: str, seconds: float, engines: int) -> None:
        """Takes engine time from so many engines alike."""
        self._of(package).take(seconds / engines)

    def _of(self, package: str) -> TokenBucket:
        share = self._of_one.get(package)
        if share is None:
            if len(self._of_one) >= _MOST_PACKAGES:
                self._of_one.clear()
            share = self._of_one[package] = TokenBucket(self._share, self._burst)
        return share

"""Counts what came of a replay: statuses, versions, latencies, feedback. Pure.

Its size does not grow with the length of a replay.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# Buckets of latency grow by one percent: a quantile is right to that.
_GROWTH = math.log(1.01)
_LEAST_SECONDS = 1e-5
PERCENTILES = (50, 90, 99)


@dataclass
class Latencies:
    """Latencies in seconds; quantiles are right within 1 %, the maximum exactly."""

    count: int = 0
    most: float = 0.0
    _buckets: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.most = max(self.most, seconds)
        self._buckets[int(math.log(max(seconds, _LEAST_SECONDS) / _LEAST_SECONDS) / _GROWTH)] += 1

    def quantile(self, percent: float) -> float | None:
        """The latency that ``percent`` percent did not exceed; None without any."""
        left = math.ceil(self.count * percent / 100)
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(self.most, _LEAST_SECONDS * math.exp((bucket + 1) * _GROWTH))
        return None


@dataclass
class Tally:
    """What came of the requests so far.

    ``sent`` counts requests that were begun, ``skipped`` those whose turn passed while every
    connection was busy, ``unfinished`` those still on their way at the end. ``failures`` are
    sentences of what was not answered with 200, with how often.
    """

    sent: int = 0
    skipped: int = 0
    unfinished: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    feedback: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    right: int = 0
    labelled: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    _FAILURES_KEPT = 20

    def note_failure(self, sentence: str) -> None:
        """Keeps why a request or a feedback failed; of many kinds the first."""
        if sentence in self.failures or len(self.failures) < self._FAILURES_KEPT:
            self.failures[sentence] += 1

    def summary(self, seconds: float, asked_rate: float) -> dict[str, Any]:
        """The whole as JSON. Latencies count from when a request was due."""
        answered = sum(self.versions.values())
        return {
            "requests": self.sent,
            "seconds": round(seconds, 3),
            "rate": {"asked": asked_rate, "sent": round(self.sent / seconds, 3) if seconds else 0},
            "skipped": self.skipped,
            "unfinished": self.unfinished,
            "statuses": dict(sorted(self.statuses.items())),
            "versions": dict(sorted(self.versions.items())),
            "shares": {
                version: round(count / answered, 6)
                for version, count in sorted(self.versions.items())
            },
            "latencySeconds": {
                **{f"p{percent}": self.latencies.quantile(percent) for percent in PERCENTILES},
                "max": self.latencies.most if self.latencies.count else None,
            },
            "feedback": dict(sorted(self.feedback.items())),
            "labelled": self.labelled,
            "right": self.right,
            "failures": dict(self.failures.most_common()),
        }

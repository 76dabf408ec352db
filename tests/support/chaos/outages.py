"""Which failed answers a fault excuses: pure, over what was struck when and what callers saw.

A caller may fail only while what answers it is away: its gateway, or the Tritons. Everything else
that is struck must cost no caller anything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

REFUSED = frozenset({429, 503, 504})
CONNECTION_FAILED = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer. Times are monotonic seconds; ``status`` 0 where the connection failed."""

    began: float
    ended: float
    gateway: str  # the service that was asked
    dialect: str
    status: int
    deadline_seconds: float
    text: str = ""
    version: str = ""
    label: str = ""
    score: float = 0.0
    values: tuple[float, ...] = ()  # of a vector
    said: str = ""  # what came with a failure


@dataclass(frozen=True, slots=True)
class Outage:
    """A fault from its first moment until the stack was whole again, monotonic seconds.

    ``services``: what it takes away, replicas by their own names; ``stack`` for all of it.
    """

    began: float
    ended: float
    services: frozenset[str]

    def overlaps(self, seen: Seen) -> bool:
        """Whether the request was under way during it."""
        return self.began <= seen.ended and seen.began <= self.ended

    def excuses(self, seen: Seen) -> bool:
        """Whether this outage can be why the request failed as it did."""
        if not self.overlaps(seen):
            return False
        away = self.services
        if seen.gateway in away or "stack" in away:
            return seen.status == CONNECTION_FAILED or seen.status in REFUSED
        if any(name.partition("-")[0] == "triton" for name in away):
            return seen.status in REFUSED
        return False


def unexcused(replies: Iterable[Seen], outages: Sequence[Outage]) -> list[Seen]:
    """Failed requests that no outage explains."""
    return [
        seen
        for seen in replies
        if seen.status != 200 and not any(outage.excuses(seen) for outage in outages)
    ]


def overdue(replies: Iterable[Seen], outages: Sequence[Outage], grace_seconds: float) -> list[Seen]:
    """Requests that ended later than their deadline, by more than the grace.

    A gateway that is stopped or gone cannot keep a deadline: what overlaps its outage is left out.
    """
    return [
        seen
        for seen in replies
        if seen.ended - seen.began > seen.deadline_seconds + grace_seconds
        and not any(
            outage.overlaps(seen) and ({seen.gateway, "stack"} & outage.services)
            for outage in outages
        )
    ]

"""Which failed answers a fault excuses: pure, over what was struck when and what callers saw.

A caller may fail only while what answers it is away: its gateway, or the Tritons. Everything else
that is struck must cost no caller anything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from traffic import CONNECTION_FAILED, Reply

REFUSED = frozenset({429, 503, 504})
FAILED_MODEL = 502


@dataclass(frozen=True, slots=True)
class Outage:
    """A fault from its first moment until the stack was whole again, monotonic seconds.

    ``services``: what it takes away, replicas by their own names; ``stack`` for all of it; an
    endpoint's name if all Tritons of that one endpoint are sick.
    ``dialect``: of whose callers it tells, since each waits for its own connection; empty for all.
    """

    began: float
    ended: float
    services: frozenset[str]
    dialect: str = ""

    def overlaps(self, reply: Reply) -> bool:
        """Whether the request was under way during it."""
        told = self.dialect in {"", reply.dialect}
        return told and self.began <= reply.at and reply.sent <= self.ended

    def takes_gateway_of(self, reply: Reply) -> bool:
        """Whether it takes away the gateway that was asked."""
        return not self.services.isdisjoint({reply.gateway, "stack"})

    def excuses(self, reply: Reply) -> bool:
        """Whether this outage can be why the request failed as it did."""
        if not self.overlaps(reply):
            return False
        if self.takes_gateway_of(reply):
            return reply.status == CONNECTION_FAILED or reply.status in REFUSED
        if reply.endpoint in self.services:
            return reply.status in REFUSED | {FAILED_MODEL}
        if any(name.partition("-")[0] == "triton" for name in self.services):
            return reply.status in REFUSED
        return False


def unexcused(replies: Iterable[Reply], outages: Sequence[Outage]) -> list[Reply]:
    """Failed requests that no outage explains."""
    return [
        reply
        for reply in replies
        if reply.status != 200 and not any(outage.excuses(reply) for outage in outages)
    ]


def overdue(
    replies: Iterable[Reply], outages: Sequence[Outage], deadline_seconds: float
) -> list[Reply]:
    """Requests that took longer than their deadline.

    A gateway that is stopped or gone cannot keep a deadline: what overlaps its outage is left out.
    """
    return [
        reply
        for reply in replies
        if reply.seconds > deadline_seconds
        and not any(outage.overlaps(reply) and outage.takes_gateway_of(reply) for outage in outages)
    ]


def first_answer(replies: Iterable[Reply], gateway: str, dialect: str, since: float) -> float:
    """When a gateway's first good answer in a dialect came to a request sent after ``since``.

    Each dialect has its own: a gRPC channel that was refused waits before it connects anew, and
    fails calls at once until then, while callers over HTTP are answered already.
    """
    good = (
        reply.at
        for reply in replies
        if reply.status == 200
        and (reply.gateway, reply.dialect) == (gateway, dialect)
        and reply.sent >= since
    )
    return min(good, default=float("inf"))

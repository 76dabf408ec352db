"""Whether reading has stalled: unread messages wait, or the worker is in no consumer group.

A client may believe that it is connected and a member of its group, and read nothing for ever. So
this compares what the broker says, asked by a connection of its own, with what was really read,
whatever the cause. Pure functions of values; times are seconds of one clock, and are passed in.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from service.kafka import ConsumerGroup
from stats.errors import StalledError

STALL_SECONDS = 15.0
_STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ReadingSnapshot:
    """One look at how far reading is.

    Attributes:
        ends: partition -> offset behind its last message, as the broker said just now; of all that
            are to be read here.
        positions: partition -> offset of the next message to read.
        fault: what is wrong with our place in the group; empty if nothing is.
    """

    ends: Mapping[int, int]
    positions: Mapping[int, int]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ReadingWait:
    """Something that waits: the group's fault, or messages of a partition behind its position.

    ``moving``: some of the partition's messages were read since the look before.
    """

    since: float
    why: str
    position: int = 0
    moving: bool = False


@dataclass(frozen=True, slots=True)
class Stall:
    """What waits at present. Nothing, at the beginning of a connection."""

    partitions: Mapping[int, ReadingWait] = field(default_factory=dict)
    group: ReadingWait | None = None

    @property
    def longest(self) -> ReadingWait | None:
        """What has waited longest."""
        waits = [*self.partitions.values(), *([self.group] if self.group else [])]
        return min(waits, key=lambda wait: wait.since, default=None)

    @property
    def well(self) -> bool:
        """Whether all is as it should be: the group holds us, and what waits is being read."""
        return self.group is None and all(wait.moving for wait in self.partitions.values())

    def seconds(self, now: float) -> float:
        """For how long something has waited."""
        longest = self.longest
        return max(0.0, now - longest.since) if longest else 0.0

    def check(self, now: float, stall_seconds: float = STALL_SECONDS) -> None:
        """Raises ``StalledError`` once something has waited for longer than is right."""
        longest = self.longest
        if longest is not None and self.seconds(now) >= stall_seconds:
            raise StalledError(f"for {self.seconds(now):.0f} s, {longest.why}")


def membership_fault(
    group: ConsumerGroup, member: str, held: Collection[int], topic: Collection[int]
) -> str:
    """What is wrong with a member's place in its consumer group; empty if nothing is."""
    if member not in group.members:
        return f"the group does not hold this worker as a member (its state: {group.state})"
    if group.state != _STABLE:
        return f"the group is {group.state}"
    given = group.members[member]
    if given != frozenset(held):
        return (
            f"the group gave this worker {_join_numbers(given)}, and it reads {_join_numbers(held)}"
        )
    unowned = frozenset(topic).difference(*group.members.values())
    return f"the group gave {_join_numbers(unowned)} to nobody" if unowned else ""


def look_on(before: Stall, look: ReadingSnapshot, now: float) -> Stall:
    """What waits after another look.

    A partition waits while messages lie behind its position and the position stays the same; any
    message that is read ends that. The group's fault waits for as long as there is any.
    """
    partitions = {}
    for partition, end in look.ends.items():
        position = look.positions.get(partition, 0)
        if end <= position:
            continue
        wait = before.partitions.get(partition)
        moving = wait is not None and wait.position != position
        since = now if wait is None or moving else wait.since
        why = f"{end - position} messages of partition {partition} wait, and none was read"
        partitions[partition] = ReadingWait(since, why, position, moving)
    group = None
    if look.fault:
        group = ReadingWait(before.group.since if before.group else now, look.fault)
    return Stall(partitions, group)


class EmptyPolls:
    """Tells a loop to pause that is given nothing, again and again, without having waited for it.

    Args:
        wait_seconds: for how long a poll is to wait if there is nothing.
        in_a_row: this many empty ones that waited less than half of it are an accident.
    """

    def __init__(self, wait_seconds: float, in_a_row: int = 5) -> None:
        self._least = wait_seconds / 2
        self._in_a_row = in_a_row
        self._count = 0

    def spins(self, took_seconds: float, *, empty: bool) -> bool:
        """Whether to pause, after a poll that took this long."""
        self._count = self._count + 1 if empty and took_seconds < self._least else 0
        return self._count >= self._in_a_row


def _join_numbers(partitions: Collection[int]) -> str:
    numbers = ", ".join(map(str, sorted(partitions)))
    return f"partitions {numbers}" if numbers else "no partition"

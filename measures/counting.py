"""Whether traffic is counted: the end of the event log against the end of what was folded. Pure.

A worker's own state proves nothing: a consumer may believe that it is a member of its group, and
read nothing. So the broker's end offsets of ``headrace.predictions`` are compared with the
offsets that window records cover. Every gateway publishes at least a heartbeat every ten seconds,
so that a log that does not grow at all means that no gateway publishes.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

DELAY_SECONDS = 15.0
"""A message that waits longer than this is not counted in time."""
IDLE_SECONDS = 60.0
"""Without a new message for this time, no gateway publishes: six heartbeats."""
_MOST_MARKS = 512  # of a partition
_MOST_TOPICS = 8  # that were replaced by one of the same name


class CountingState(StrEnum):
    """What is known of the traffic.

    ``counted``: everything that was published is in the windows, but for the last seconds.
    ``behind``: traffic waits to be counted, and gets less old: fold workers catch up.
    ``stalled``: traffic waits, and nobody counts it.
    ``silent``: no gateway publishes anything.
    ``unknown``: Kafka has not told lately what there is.
    """

    COUNTED = "counted"
    BEHIND = "behind"
    STALLED = "stalled"
    SILENT = "silent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CountingStatus:
    """The state at one instant.

    Attributes:
        state: see ``CountingState``.
        since: unix seconds from when on it is so; traffic up to then is counted. 0: not known.
        messages: of the event log that are in no window yet.
    """

    state: CountingState = CountingState.UNKNOWN
    since: float = 0.0
    messages: int = 0

    @property
    def holds(self) -> bool:
        """Whether windows that do not come say nothing about the traffic."""
        return self.state in {CountingState.STALLED, CountingState.SILENT, CountingState.UNKNOWN}

    def sentence(self) -> str:
        """A sentence for people, without figures that change while the state lasts."""
        if not self.since and self.state is not CountingState.COUNTED:
            return "it is not known yet whether traffic is counted"
        since = clock_time(self.since)
        match self.state:
            case CountingState.COUNTED:
                return "all traffic is counted"
            case CountingState.BEHIND:
                return f"traffic since {since} is not counted yet: the fold role is catching up"
            case CountingState.STALLED:
                return f"traffic since {since} is not counted: the fold role reads nothing"
            case CountingState.SILENT:
                return f"no gateway has published an event or a heartbeat since {since}"
            case CountingState.UNKNOWN:
                return f"Kafka has not told since {since} what there is to count"


def clock_time(unix_seconds: float) -> str:
    """A time as people read it.

    >>> clock_time(1_000_000.4)
    '1970-01-12 13:46:40 UTC'
    """
    return datetime.fromtimestamp(int(unix_seconds), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@dataclass(slots=True)
class _Partition:
    """One partition of the event log.

    ``marks`` holds (unix seconds, end) of each time that a larger end was seen, as long as it is
    not folded.
    """

    end: int = 0
    folded: int | None = None  # None: no record of it was read
    through: float = 0.0  # time of the newest folded message, unix seconds
    grew_at: float = 0.0  # when ``folded`` last grew
    first_end: int = 0  # when it was first seen
    marks: deque[tuple[float, int]] = field(default_factory=deque)

    def take_end(self, end: int, now: float) -> bool:
        """Takes the end; whether it is a new one."""
        if end <= self.end:
            return False
        self.end = end
        if len(self.marks) < _MOST_MARKS:
            self.marks.append((now, end))
        else:
            self.marks[-1] = (self.marks[-1][0], end)
        return True

    def fold(self, end: int, through: float, now: float) -> None:
        if self.folded is not None and end <= self.folded:
            return
        self.folded, self.grew_at = end, now
        self.through = max(self.through, through)

    @property
    def counted(self) -> int:
        """The offset up to which all is counted, or was there before anybody looked."""
        return self.first_end if self.folded is None else self.folded

    def waits_since(self) -> float | None:
        """When the oldest message that is not counted was seen; None if there is none."""
        while self.marks and self.marks[0][1] <= self.counted:
            self.marks.popleft()
        return self.marks[0][0] if self.marks else None


class CountingWatch:
    """Compares what was published with what was folded.

    Args:
        began: when looking began, unix seconds.
        delay_seconds: how long a message may wait.
        idle_seconds: how long the log may stay as it is.
    """

    def __init__(
        self,
        began: float,
        *,
        delay_seconds: float = DELAY_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._delay_seconds = delay_seconds
        self._idle_seconds = idle_seconds
        self._topic_id = ""
        self._told_at = began  # when Kafka last told the ends
        self._grew_at = began  # when an end last grew
        self._partitions: dict[int, _Partition] = {}
        self._folded: dict[str, dict[int, tuple[int, float]]] = {}  # topic id -> partition

    def take_ends(self, topic_id: str, ends: Mapping[int, int], now: float) -> None:
        """Takes the ends of the log as the broker says them now.

        Args:
            topic_id: another id is another log, of which nothing is known yet.
            ends: partition -> offset behind its last message; empty if there is no such topic.
            now: unix seconds.
        """
        if topic_id != self._topic_id:
            self._topic_id, self._partitions = topic_id, {}
        self._told_at = now
        for number, end in ends.items():
            partition = self._partitions.get(number)
            if partition is None:
                partition = self._partitions[number] = _Partition(first_end=end)
                folded = self._folded.get(topic_id, {}).get(number)
                if folded is not None:
                    partition.fold(*folded, now)
            if partition.take_end(end, now):
                self._grew_at = now

    def take_record(
        self, topic_id: str, partition: int, end: int, through: float, now: float
    ) -> None:
        """Takes that a window record covers a partition up to an offset.

        Args:
            topic_id: of the event log.
            partition: its number.
            end: offset behind the last message that is in the record.
            through: time of the newest message in it, unix seconds.
            now: unix seconds.
        """
        known = self._folded.setdefault(topic_id, {})
        if len(self._folded) > _MOST_TOPICS:
            del self._folded[next(iter(self._folded))]
        if end > known.get(partition, (-1, 0.0))[0]:
            known[partition] = (end, through)
        if topic_id == self._topic_id and partition in self._partitions:
            self._partitions[partition].fold(end, through, now)

    def look(self, now: float) -> CountingStatus:
        """What is known now, unix seconds."""
        if now - self._told_at > self._delay_seconds:
            return CountingStatus(CountingState.UNKNOWN, self._told_at)
        messages = sum(max(0, one.end - one.counted) for one in self._partitions.values())
        late = [
            (since, one)
            for one in self._partitions.values()
            if (since := one.waits_since()) is not None and now - since > self._delay_seconds
        ]
        if late:
            since = min(self._counted_through(seen, one) for seen, one in late)
            stuck = any(now - one.grew_at > self._delay_seconds for _, one in late)
            state = CountingState.STALLED if stuck else CountingState.BEHIND
            return CountingStatus(state, since, messages)
        if now - self._grew_at > self._idle_seconds:
            return CountingStatus(CountingState.SILENT, self._grew_at, messages)
        return CountingStatus(CountingState.COUNTED, 0.0, messages)

    @staticmethod
    def _counted_through(seen: float, one: _Partition) -> float:
        """Up to when a partition is counted: what waited at the first look is older than that."""
        waited_before = one.marks[0][1] == one.first_end
        return one.through if waited_before and one.through else seen

"""What gateways sent and is not in the log, by the numbers of their messages and their own word.

A number that is missing between two others of one start of a gateway is a message that was lost
after it was sent: by Kafka, or given up while nobody knew whether it was written. What a gateway
dropped before that, it tells itself, as a total since its start. One that falls silent without a
last message was killed, or is cut off from Kafka. Pure; the clock is passed in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.windows import Sender, WindowRecord

# For a partition that was just added, and of which no record has come yet.
GRACE_SECONDS = 30.0
SILENT_SECONDS = 60.0  # without a message, six heartbeats
SHOWN_SECONDS = 3600.0  # after its last message, how long a silent gateway is reported
MOST_GATEWAYS = 2000  # starts; beyond, those that were heard longest ago are forgotten
MOST_AHEAD = 100_000  # numbers of a gateway while a partition lags; beyond, its gaps are not told


@dataclass(slots=True)
class _Gateway:
    """One start of a gateway process.

    Attributes:
        settled: what is missing up to this number is known; None: nothing was settled yet.
        ahead: numbers beyond it that were seen.
        waiting: the largest number of each range that is not known through, and Kafka's time of it.
        ripe: up to when partitions were folded -> the largest number that was known through then.
        newest: largest number of all.
        heard: Kafka's time of a message at or after the newest, unix seconds.
        dropped: endpoint and reason -> total since its start, as the newest message says.
        ended: it said that it ends.
    """

    settled: int | None = None
    ahead: set[int] = field(default_factory=set)
    waiting: dict[tuple[str, int, int], tuple[float, int]] = field(default_factory=dict)
    ripe: dict[float, int] = field(default_factory=dict)
    newest: int = -1
    heard: float = 0.0
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ended: bool = False


@dataclass(frozen=True, slots=True)
class MessageLosses:
    """What is known to be lost since the counting began.

    Attributes:
        messages: numbers that are missing.
        dropped: endpoint -> reason -> requests and feedback that gateways dropped.
        silent: starts of gateways that fell silent in the last hour, and did not say that they end.
    """

    messages: int = 0
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    silent: int = 0

    @property
    def events(self) -> int:
        """Requests and feedback that gateways dropped, of all endpoints."""
        return sum(sum(reasons.values()) for reasons in self.dropped.values())

    def sentence(self) -> str:
        """What was lost, for people; empty if nothing was."""
        said = []
        if self.messages:
            said.append(f"{self.messages} messages of events are missing in Kafka")
        if self.events:
            said.append(f"gateways lost {self.events} events")
        if self.silent:
            said.append(f"{self.silent} gateways fell silent in the last hour")
        return ", ".join(said)


@dataclass(slots=True)
class Losses:
    """Follows all gateways, record by record, in any order.

    Attributes:
        gateways: by the name of their start.
        missing: numbers of messages since ``begin``.
        dropped: endpoint -> reason -> count, since then.
    """

    gateways: dict[str, _Gateway] = field(default_factory=dict)
    missing: int = 0
    dropped: dict[str, dict[str, int]] = field(default_factory=dict)

    def take(self, record: WindowRecord) -> None:
        """Takes what a record says of its senders; harmless to repeat."""
        for name, sender in record.senders.items():
            if sender.numbers:
                self._take(self.gateways.setdefault(name, _Gateway()), sender, record)

    def begin(self) -> None:
        """What was taken so far is the past: the counts begin at 0 here."""
        self.missing, self.dropped = 0, {}

    def settle(self, known_through: float) -> MessageLosses:
        """Looks for gaps among the numbers that must all be there by now.

        A message is sent when the one before it is acknowledged. So once every partition has been
        folded up to the time of a message, all that its gateway sent before it was folded too.

        Args:
            known_through: Kafka's time up to which every partition has been folded, unix seconds.
        """
        for gateway in self.gateways.values():
            self._settle(gateway, known_through)
        silent = sum(
            not gateway.ended and SILENT_SECONDS < known_through - gateway.heard <= SHOWN_SECONDS
            for gateway in self.gateways.values()
        )
        for name in sorted(self.gateways, key=self._find_heard)[:-MOST_GATEWAYS]:
            del self.gateways[name]
        dropped = {endpoint: dict(reasons) for endpoint, reasons in self.dropped.items()}
        return MessageLosses(self.missing, dropped, silent)

    def _take(self, gateway: _Gateway, sender: Sender, record: WindowRecord) -> None:
        largest = max(sender.numbers)
        beyond = -1 if gateway.settled is None else gateway.settled
        gateway.ahead.update(number for number in sender.numbers if number > beyond)
        if largest > beyond:
            key = (record.topic_id, record.partition, record.start)
            gateway.waiting[key] = (record.through, largest)
        gateway.ended |= sender.ended
        if largest > gateway.newest:
            self._drop(sender.dropped, gateway.dropped)
            gateway.newest, gateway.dropped = largest, sender.dropped
            gateway.heard = max(gateway.heard, record.through)
        if len(gateway.ahead) > MOST_AHEAD:
            gateway.settled, gateway.ahead = gateway.newest, set()
            gateway.waiting, gateway.ripe = {}, {}

    def _find_heard(self, name: str) -> float:
        return self.gateways[name].heard

    def _drop(
        self, now: Mapping[str, Mapping[str, int]], before: Mapping[str, Mapping[str, int]]
    ) -> None:
        for endpoint, reasons in now.items():
            for reason, count in reasons.items():
                more = count - before.get(endpoint, {}).get(reason, 0)
                if more > 0:
                    held = self.dropped.setdefault(endpoint, {})
                    held[reason] = held.get(reason, 0) + more

    def _settle(self, gateway: _Gateway, known_through: float) -> None:
        done = {key: top for key, (at, top) in gateway.waiting.items() if at <= known_through}
        for key in done:
            del gateway.waiting[key]
        if done:
            held = gateway.ripe.get(known_through, -1)
            gateway.ripe[known_through] = max(held, *done.values())
        for at in [at for at in gateway.ripe if at <= known_through - GRACE_SECONDS]:
            self._count(gateway, gateway.ripe.pop(at))

    def _count(self, gateway: _Gateway, largest: int) -> None:
        """Counts what is missing up to a number."""
        if gateway.settled is None and min(gateway.ahead, default=1) > 0:
            gateway.settled = largest  # what came before is not known
        before = -1 if gateway.settled is None else gateway.settled
        seen = {number for number in gateway.ahead if number <= largest}
        gateway.ahead -= seen
        if largest > before:
            self.missing += largest - before - len(seen)
            gateway.settled = largest

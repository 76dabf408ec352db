"""What evaluate processes tell one another of an endpoint, and of a partition. Pure."""

from dataclasses import dataclass, field, replace

from measures.increments import RangeLedger
from measures.losses import Losses
from measures.watermark import Watermark
from stats.evaluation.board import EndpointBoard, Origin, VersionDrift
from stats.evaluation.drift import KnownDrift
from stats.evaluation.history import ArmHistory, ClosedWindow, History, Slot
from stats.evaluation.totals import ArmKey, ArmTotals
from stats.evaluation.usual import KnownUsual

_Version = tuple[str, str]  # version, package


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where pieces were counted: the topic, how many partitions it had, which, and offset."""

    topic_id: str = ""
    count: int = 1
    partition: int = 0
    offset: int = 0


@dataclass(slots=True)
class EndpointState:
    """All that is known of an endpoint.

    Attributes:
        name: the endpoint's.
        at: when this was told, unix seconds.
        place: up to where all its pieces are in it.
        began: when its counters began at 0, unix seconds.
        ledger: what was counted.
        arms: its counters.
        refusals: status and reason -> count.
        history: its windows.
        waiting: closed windows that wait for their version's reference.
        watches: drift by version and package.
        watched: those of them that are watched now.
        usual: what is usual of its texts and answers, by which of them and a digest.
        drift: what drift says, of those that are watched.
        origins: of its packages.
    """

    name: str
    at: float
    place: Place
    began: float
    ledger: RangeLedger
    arms: dict[ArmKey, ArmTotals]
    refusals: dict[str, int]
    history: dict[Slot, ArmHistory]
    waiting: list[ClosedWindow]
    watches: dict[_Version, KnownDrift]
    watched: set[_Version]
    usual: dict[_Version, KnownUsual]
    drift: dict[_Version, VersionDrift]
    origins: list[Origin]

    def board(self) -> EndpointBoard:
        """As the process shows it whose endpoint it is."""
        history = History(self.history)
        return EndpointBoard(
            self.name,
            tuple(history.series()),
            tuple(self._drift(version) for version in sorted(self.drift)),
            tuple(accuracy for _, accuracy in history.accuracy(self.at)),
            tuple(self.origins),
            self.refusals,
            self.began,
            max((kept.closed for kept in self.history.values()), default=self.at),
        )

    def _drift(self, version: _Version) -> VersionDrift:
        points = self.watches[version].points()
        found = self.drift[version]
        return replace(
            found,
            statistics=tuple(
                replace(each, history=points.get(each.statistic, ())) for each in found.statistics
            ),
        )


@dataclass(slots=True)
class CommonState:
    """What is of no endpoint; ``counts`` are messages skipped, copied and mistimed."""

    ledger: RangeLedger = field(default_factory=RangeLedger)
    losses: Losses = field(default_factory=Losses)
    counts: tuple[int, int, int] = (0, 0, 0)
    is_resumed: bool = False


@dataclass(slots=True)
class PartitionState:
    """How far a partition's records go; ``common`` only of the one where that lies.

    Its endpoints' counters began at 0 at the offset ``began`` of the topic of this id.
    """

    watermark: Watermark
    topic_id: str = ""
    began: int = 0
    common: CommonState | None = None

"""What the evaluate role knows now, as one frozen value: the page and the exporter read it.

The evaluator makes a new ``Board`` after each look at Kafka and swaps it in whole; code that reads
takes one (``Callable[[], Board]``) and sees one instant, without a lock. Windows are kept encoded,
since a day of decoded ones would fill the memory: decode what is shown, and keep it, since a closed
window hardly ever changes. It never computes and never reads Kafka.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

import msgspec

from contracts.endpoint import Arm
from contracts.windows import WindowAggregate
from measures.counting import CountingStatus
from measures.monitoring import ALARMS
from measures.trust import Trust

WINDOWS_SECONDS = 3600  # windows as they are in Kafka (10 s) are kept this long
MINUTE_SECONDS = 60
MINUTES_SECONDS = 86_400  # sums of minutes are kept this long

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WindowAggregate)


@dataclass(frozen=True, slots=True)
class Window:
    """A closed window of one endpoint, version, package and arm.

    Attributes:
        start: unix seconds.
        seconds: its length.
        packed: the aggregate; equal bytes are equal aggregates.
    """

    start: int
    seconds: int
    packed: bytes = field(repr=False)

    @classmethod
    def of(cls, aggregate: WindowAggregate, seconds: int) -> Self:
        """The window of an aggregate, which may change afterwards."""
        return cls(aggregate.start, seconds, _encoder.encode(aggregate))

    def aggregate(self) -> WindowAggregate:
        """Its counts, unpacked again at each call."""
        return _decoder.decode(self.packed)


@dataclass(frozen=True, slots=True)
class Series:
    """The windows of one arm, oldest first; a time without attempts has none.

    Attributes:
        endpoint: its name.
        version: of the registered model.
        package: digest of its package.
        arm: the role in which it got requests.
        windows: of the last hour.
        minutes: sums of a minute each, of the last day.
    """

    endpoint: str
    version: str
    package: str
    arm: Arm
    windows: tuple[Window, ...]
    minutes: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Monitor:
    """One statistic under one exponential weight.

    Attributes:
        weight: lambda; 1 is only the last drift window, 0.01 about the last hundred.
        psi: population stability index, less what equal samples would show, at least 0.
        chi_square: Pearson's statistic against the reference.
        threshold: what it is held to, at the endpoint's false-alarm budget.
        calibrated: the null was fitted on enough of this endpoint's traffic; only then it alarms.
    """

    weight: float
    psi: float
    chi_square: float
    threshold: float
    calibrated: bool = False

    @property
    def ratio(self) -> float:
        """Above 1: significant."""
        return self.chi_square / self.threshold if self.threshold > 0 else 0.0


@dataclass(frozen=True, slots=True)
class DriftPoint:
    """A statistic at the end of one drift window; ``at`` in unix seconds."""

    at: float
    psi: float
    ratio: float


@dataclass(frozen=True, slots=True)
class StatisticDrift:
    """One statistic of a version against its reference.

    Attributes:
        statistic: of contracts.statistics, ``truncated``, ``labels``, or ``own:NAME``; with
            ``week:`` before it against what is usual at this time of the week. ``topics``
            and ``vectors`` are as well: their one monitor's chi-square is the evidence, and their
            bins the buckets that tell most.
        monitors: one a weight, from 1 downwards.
        level: 0 quiet, 1 significant with PSI above 0.1, 2 above 0.2.
        bins: names of the compared bins, such as ``<= 16`` or a label.
        reference: share of each bin in the reference.
        now: share of each bin, at the monitor ``shown``'s weight.
        history: of the last day, oldest first.
    """

    statistic: str
    monitors: tuple[Monitor, ...]
    level: Literal[0, 1, 2]
    bins: tuple[str, ...] = ()
    reference: tuple[float, ...] = ()
    now: tuple[float, ...] = ()
    history: tuple[DriftPoint, ...] = ()

    @property
    def calibrated(self) -> bool:
        """Whether the null was fitted on a full day of this endpoint's traffic."""
        return any(monitor.calibrated for monitor in self.monitors)

    @property
    def alarm(self) -> bool:
        """Whether a person should be woken: a calibrated monitor is at level 2 by itself."""
        return any(
            monitor.calibrated and monitor.ratio > 1 and monitor.psi >= ALARMS
            for monitor in self.monitors
        )

    @property
    def shown(self) -> Monitor:
        """The monitor that is furthest beyond its threshold."""
        return max(self.monitors, key=lambda monitor: monitor.ratio)

    @property
    def psi(self) -> float:
        """Effect size of the monitor that is shown."""
        return self.shown.psi

    @property
    def ratio(self) -> float:
        """Chi-square over threshold, of the monitor that is shown."""
        return self.shown.ratio


@dataclass(frozen=True, slots=True)
class DriftReference:
    """What a version is compared with.

    Attributes:
        kind: ``profile`` of its package; ``traffic``, its first day, for want of one; ``none`` yet.
        texts: how many it was made of.
        source: where they came from, for people.
    """

    kind: Literal["profile", "traffic", "none"]
    texts: int
    source: str


@dataclass(frozen=True, slots=True)
class VersionDrift:
    """All statistics of one version, of its stable traffic (or of canary's, while it is one).

    Attributes:
        version: of the registered model.
        package: digest of its package.
        reference: what it is compared with.
        calibration: how much of the day was seen that calibrates the null, 0 to 1.
        at: end of the last drift window, unix seconds; 0 before any.
        texts: in that window.
        statistics: sorted by name; behind them those against what is usual at this time.
        learns_time: too little is known of this time of the week to say what is usual.
    """

    version: str
    package: str
    reference: DriftReference
    calibration: float
    at: float
    texts: int
    statistics: tuple[StatisticDrift, ...]
    learns_time: bool = True

    @property
    def level(self) -> int:
        """The highest level of its statistics."""
        return max((found.level for found in self.statistics), default=0)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Accuracy of one arm over the last hour.

    Attributes:
        version: of the registered model.
        arm: the role.
        mean_score: of the predicted labels; None without scores.
        trust: what the feedback of the last day says of the scores.
        estimated: the mean score if feedback does not contradict it, which is an estimate then;
            None elsewhere.
        low: lower end of its 95 % interval, and
        high: upper end.
        texts: that the estimate rests on.
        measured: share of right answers among those with feedback; None without feedback.
        feedback: texts with feedback.
    """

    version: str
    arm: Arm
    estimated: float | None
    texts: int
    measured: float | None
    feedback: int
    mean_score: float | None = None
    trust: Trust = Trust.UNKNOWN
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a version comes from, as its package's manifest says; empty if nobody knows."""

    version: str
    package: str
    model: str
    run_id: str = ""
    data_sets: tuple[str, ...] = ()
    task: str = ""
    precision: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointBoard:
    """One endpoint.

    ``refusals`` are those of the counters, since ``since``. ``until``: what came later is not in
    it, for another process counts it; 0: it is as new as the board. Both in unix seconds.
    """

    name: str
    series: tuple[Series, ...] = ()
    drift: tuple[VersionDrift, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    origins: tuple[Origin, ...] = ()
    refusals: Mapping[str, int] = field(default_factory=dict)  # "503 overloaded" -> count
    since: float = 0.0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Board:
    """Everything at one instant.

    Attributes:
        at: when it was made, unix seconds.
        since: when the counters began at 0, unix seconds.
        through: up to when events are in the windows, unix seconds; 0: nothing yet.
        connected: Kafka answered lately.
        counting: whether all that gateways published is in the windows.
        by_endpoint: what is known of each.
    """

    at: float = 0.0
    since: float = 0.0
    through: float = 0.0
    connected: bool = False
    counting: CountingStatus = field(default_factory=CountingStatus)
    by_endpoint: Mapping[str, EndpointBoard] = field(default_factory=dict)

    def endpoints(self) -> tuple[str, ...]:
        """Names of the endpoints that have windows, sorted."""
        return tuple(sorted(self.by_endpoint))

    def of(self, endpoint: str) -> EndpointBoard:
        """The endpoint's, empty if it has no windows."""
        return self.by_endpoint.get(endpoint) or EndpointBoard(endpoint)

    def series(self, endpoint: str) -> tuple[Series, ...]:
        """One for each version, package and arm, sorted by them."""
        return self.of(endpoint).series

    def drift(self, endpoint: str, version: str) -> VersionDrift | None:
        """The version's drift; None while nothing is known of it."""
        found = [drift for drift in self.of(endpoint).drift if drift.version == version]
        return max(found, key=lambda drift: drift.at, default=None)

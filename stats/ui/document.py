"""The one JSON document that the page draws, ``/ui/view.json``: every field with its meaning.

Times are unix seconds, shares 0 to 1, latencies seconds. A value that is not known is null, never
zero. Text comes from users as it is; the page sets it as text, never as markup.
"""

from enum import StrEnum

import msgspec

from rollout.view import StageView
from stats.ui.columns import Span

SCHEMA_VERSION = 1

Values = list[float | None]  # one a column; null if nothing was counted


class Tone(StrEnum):
    """How much attention something asks for."""

    QUIET = "quiet"
    BUSY = "busy"  # a rollout or a first version is on its way
    WARN = "warn"
    BAD = "bad"
    IDLE = "idle"  # nothing serves, or there are no requests


class HealthView(msgspec.Struct, frozen=True):
    """Whether what is shown can be trusted.

    Attributes:
        known: statistics are being read.
        through: event time up to which they are known; null before the first record.
        said: a sentence for people if something is amiss; else empty.
    """

    known: bool
    through: float | None
    said: str = ""


class RouteView(msgspec.Struct, frozen=True):
    """Who gets what: percent of callers or, for a shadow, of copied requests."""

    arm: str
    version: str
    percent: float


class Summary(msgspec.Struct, frozen=True):
    """An endpoint in the list.

    Attributes:
        said: its state in a few words.
        rate: attempts a second of callers over the last minute, null if not known.
        errors: share of them that failed.
        spark: ``[columns]`` attempts of callers a second, over the span.
    """

    name: str
    model: str
    tone: Tone
    said: str
    routes: list[RouteView]
    rate: float | None
    errors: float | None
    spark: Values


class VersionView(msgspec.Struct, frozen=True):
    """A version that is loaded, was judged, or had traffic.

    Attributes:
        arms: its arms and percent now; empty if it gets nothing.
        phase: the last that the history says of it.
        since: when that was; null if the history does not reach back.
        requests: attempts over the span, all arms.
        run_url: its MLflow run; empty if the run is not known.
        version_url: its page in MLflow's registry.
        data_sets: names of the data sets that its run logged.
        level: the highest level of drift of its statistics; null if none is known.
        space: of its vectors, and who gets them; empty of what gives none or is not held.
    """

    version: str
    package: str
    arms: list[RouteView]
    phase: str
    since: float | None
    reason: str
    requests: int
    run_url: str
    version_url: str
    data_sets: list[str]
    precision: str
    level: int | None
    space: str


class SeriesView(msgspec.Struct, frozen=True):
    """One version in one arm over time, and over the whole span.

    Attributes:
        rate: attempts a second; null before its first one, and behind what is known.
        errors: share answered 500 and above.
        p50: median of total latency, seconds; so ``p95``, ``p99``.
        tokens: mean tokens a text.
        unk: UNK tokens a token.
        tokens_per_word: mean of texts.
        truncated: share of texts that were cut.
        totals: the same names, and ``requests``, ``texts``, ``accuracy``, ``judged`` (texts with
            feedback), ``agreement`` (a shadow's with callers' answers), over the span.
        stages: mean milliseconds by stage, over the span.
    """

    version: str
    arm: str
    rate: Values
    errors: Values
    p50: Values
    p95: Values
    p99: Values
    tokens: Values
    unk: Values
    tokens_per_word: Values
    truncated: Values
    totals: dict[str, float | None]
    stages: dict[str, float | None]


class Heatmap(msgspec.Struct, frozen=True):
    """Counts over time and value.

    Attributes:
        key: unlike any other of the endpoint.
        group: ``latency``, ``texts``, ``outputs`` or ``own``.
        title: what is counted; may hold a label of the user's.
        version: of which version; empty: of all callers.
        unit: of the edges.
        lower: edge below the first row; null: there is none.
        upper: upper edge of each row.
        counts: ``[columns][rows]``.
        names: of the rows of a category, which has no edges; else empty.
    """

    key: str
    group: str
    title: str
    version: str
    unit: str
    lower: float | None
    upper: list[float]
    counts: list[list[int]]
    names: list[str] = []


class CounterRates(msgspec.Struct, frozen=True):
    """A counter of the users' own over time, of all versions: ``[columns]`` a second."""

    name: str
    values: Values


class UnkWordsView(msgspec.Struct, frozen=True):
    """The words that became UNK, the most frequent first, over the span.

    Attributes:
        seen: words in all.
        below: how much too small any count may be.
        words: word and count; the count is never too large.
    """

    version: str
    seen: int
    below: int
    words: list[tuple[str, int]]


class MonitorView(msgspec.Struct, frozen=True):
    """A statistic under one exponential weight; 1 is only the last window.

    Attributes:
        ratio: chi-square over its threshold; significant above 1.
        psi: effect size, less what equal samples would show.
    """

    weight: float
    ratio: float
    psi: float


class StatisticView(msgspec.Struct, frozen=True):
    """One statistic of a version against its reference.

    Attributes:
        ratio: of the monitor that is furthest beyond its threshold; so ``psi``.
        level: 0 quiet; 1 significant with PSI above 0.1; 2 above 0.2.
        alarm: whether a person should be woken: level 2 by a calibrated monitor.
        calibrated: whether its null was fitted on a full day, without which nobody is woken.
        bins: names of the bins that were compared.
        reference: share of each in the reference; so ``now``.
        ratios: ``[columns]`` largest ratio.
        psis: ``[columns]`` largest PSI.
    """

    statistic: str
    ratio: float
    psi: float
    level: int
    alarm: bool
    calibrated: bool
    monitors: list[MonitorView]
    bins: list[str]
    reference: list[float]
    now: list[float]
    ratios: Values
    psis: Values


class Drift(msgspec.Struct, frozen=True):
    """A version against its reference.

    Attributes:
        kind: ``profile``, ``traffic`` (its first day) or ``none`` yet.
        source: where the reference's texts came from.
        reference_texts: how many they were.
        calibration: how much of the day that calibrates the null was seen, 0 to 1.
        at: end of the last window that was compared; null before any.
        texts: in that window.
        learns_time: too little is known of this time of the week to say what is usual.
    """

    version: str
    kind: str
    source: str
    reference_texts: int
    calibration: float
    at: float | None
    texts: int
    statistics: list[StatisticView]
    learns_time: bool


class AccuracyView(msgspec.Struct, frozen=True):
    """Accuracy of one arm over the last hour, estimated from scores and measured by feedback."""

    version: str
    arm: str
    estimated: float | None
    texts: int
    measured: float | None
    feedback: int
    trust: str  # in scores: held, off or unknown
    low: float | None
    high: float | None


class Preparing(msgspec.Struct, frozen=True):
    """A version that is not compared yet: being converted, verified, loaded, or waiting."""

    version: str
    reason: str
    stages: list[StageView]


class Check(msgspec.Struct, frozen=True):
    """One check's word."""

    name: str
    verdict: str
    reason: str
    gate: bool
    required: bool
    needs: int | None


class HistoryLine(msgspec.Struct, frozen=True):
    """One line of the endpoint's history."""

    at: float
    version: str
    phase: str
    reason: str
    by: str
    percent: float | None


class StepView(msgspec.Struct, frozen=True):
    """From ``at`` on the candidate had ``percent``: of callers, or of copies if ``shadow``."""

    at: float
    percent: float
    shadow: bool


class Points(msgspec.Struct, frozen=True):
    """Both arms of a rollout as its checks saw them, ``[points]``; shares null without requests."""

    at: list[float]
    candidate_rate: Values
    stable_rate: Values
    candidate_errors: Values
    stable_errors: Values
    candidate_slow: Values
    stable_slow: Values


class Rollout(msgspec.Struct, frozen=True):
    """The rollout that goes on, or the last one.

    Attributes:
        phase: of the candidate, or how it ended.
        ended: when, null while it goes on.
        deadline: when it expires without a verdict; null if none counts.
        paused: since when; null if it is not.
        steps: what the candidate had, from when on.
        next_version: waits for this one to end; empty if none does.
    """

    version: str
    against: str
    phase: str
    reason: str
    tone: Tone
    began: float
    ended: float | None
    deadline: float | None
    paused: float | None
    stages: list[StageView]
    steps: list[StepView]
    checks: list[Check]
    points: Points
    moments: list[HistoryLine]
    next_version: str


class Detail(msgspec.Struct, frozen=True):
    """Everything about one endpoint.

    Attributes:
        model_url: the model's page in MLflow's registry, empty if MLflow's address is not known.
        labels: version -> predicted label -> ``[columns]`` share of texts; the most frequent ones.
        try_it: a command that sends traffic, to show if there is none.
        counters: of the users' own.
        unfit: name -> observations that no declaration allows, over the span.
        unk_words: of each version that has any; only if the endpoint asks for them.
        refusals: status and reason (``503 overloaded``) -> requests refused before any attempt,
            since ``counted_since``.
    """

    name: str
    model: str
    model_url: str
    task: str
    tone: Tone
    said: str
    notes: list[str]
    columns: Span
    routes: list[RouteView]
    versions: list[VersionView]
    series: list[SeriesView]
    labels: dict[str, dict[str, Values]]
    heatmaps: list[Heatmap]
    counters: list[CounterRates]
    unfit: dict[str, int]
    unk_words: list[UnkWordsView]
    drift: list[Drift]
    accuracy: list[AccuracyView]
    refusals: dict[str, int]
    counted_since: float
    rollout: Rollout | None
    preparing: Preparing | None
    history: list[HistoryLine]
    try_it: str


class TritonLine(msgspec.Struct, frozen=True):
    """A Triton: its loader, its pool, and what it computes with, in words."""

    loader: str
    pool: str
    said: str
    well: bool


class StatisticsDocument(msgspec.Struct, frozen=True):
    """The document.

    Attributes:
        engines: Tritons whose device is known, by their loaders' names.
        refresh_seconds: when it is worth asking again.
        spans: names of the spans that may be asked for, shortest first.
        detail: of the endpoint that was asked for, else of the first; null without endpoints.
    """

    now: float
    refresh_seconds: float
    span: str
    spans: list[str]
    gateway_url: str
    mlflow_url: str
    health: HealthView
    endpoints: list[Summary]
    detail: Detail | None
    engines: list[TritonLine] = []
    schema_version: int = SCHEMA_VERSION

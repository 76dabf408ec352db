"""Tables of counts as what is drawn: lines, totals, heatmaps. Pure.

What the page shows of one endpoint is bounded here, whatever users send: a fixed number of
versions, labels and words.
"""

from collections.abc import Mapping

import numpy as np

from contracts.statistics import EDGES, LATENCY_EDGES, LatencyStage, Statistic
from contracts.windows import MICRO
from measures import frequent
from stats.ui.columns import (
    Counts,
    Span,
    coarsen,
    means,
    per_second,
    quantiles,
    round_value,
    shares,
    sum_columns,
)
from stats.ui.document import CounterRates, Heatmap, SeriesView, UnkWordsView, Values
from stats.ui.tables import Declaration, Slot, Table, mean_milliseconds

MOST_LABELS = 8  # of a version, the most frequent
MOST_VERSIONS = 3  # with heatmaps, the newest
MOST_OWN = 12  # statistics of the users' own
MOST_WORDS = 20
LATENCY_EVERY = 7  # of LATENCY_EDGES: rows of a factor 1.4

_TEXTS = (
    (Statistic.TOKENS, "Tokens a text"),
    (Statistic.UNK_TOKENS, "UNK tokens a text"),
    (Statistic.TOKENS_PER_WORD, "Tokens a word"),
)


def build_series(slot: Slot, table: Table, over: Span, until: float, *, routed: bool) -> SeriesView:
    """One version in one arm."""
    version, arm = slot
    latency = table.latency.get(LatencyStage.TOTAL)
    upper = LATENCY_EDGES.upper

    def quantile(share: float) -> Values:
        return quantiles(latency, share, upper) or [None] * over.count

    tokens = table.histograms.get(Statistic.TOKENS)
    counted = _texts_in(table, Statistic.TOKENS)
    return SeriesView(
        version=version,
        arm=arm.value,
        rate=per_second(table.requests, over, until, ongoing=routed),
        errors=shares(table.errors, table.requests),
        p50=quantile(0.5),
        p95=quantile(0.95),
        p99=quantile(0.99),
        tokens=[None] * over.count if tokens is None else means(_sum(table, _TOKENS), counted),
        unk=_ratios(_sum(table, Statistic.UNK_TOKENS), _sum(table, _TOKENS), over.count),
        tokens_per_word=means(
            _sum(table, Statistic.TOKENS_PER_WORD), _texts_in(table, Statistic.TOKENS_PER_WORD)
        ),
        truncated=shares(table.truncated, table.texts),
        totals=_totals(table),
        stages={stage.value: mean_milliseconds(table, stage) for stage in LatencyStage},
    )


_TOKENS = Statistic.TOKENS


def _sum(table: Table, statistic: Statistic) -> Counts | None:
    return table.sums.get(statistic)


def _texts_in(table: Table, statistic: Statistic) -> Counts:
    grid = table.histograms.get(statistic)
    return np.zeros(table.columns, dtype=np.int64) if grid is None else grid.sum(axis=1)


def _ratios(part: Counts | None, whole: Counts | None, columns: int) -> Values:
    if part is None or whole is None:
        return [None] * columns
    return shares(part, whole)


def _totals(table: Table) -> dict[str, float | None]:
    requests, texts = int(table.requests.sum()), int(table.texts.sum())
    tokens = sum_columns(table.sums, _TOKENS)
    latency = table.latency.get(LatencyStage.TOTAL)
    per_word = int(_texts_in(table, Statistic.TOKENS_PER_WORD).sum())

    def quantile(share: float) -> float | None:
        if latency is None:
            return None
        (value,) = quantiles(latency.sum(axis=0, keepdims=True), share, LATENCY_EDGES.upper)
        return value

    return {
        "requests": requests,
        "texts": texts,
        "errors": _share(int(table.errors.sum()), requests),
        "p50": quantile(0.5),
        "p95": quantile(0.95),
        "p99": quantile(0.99),
        "tokens": _share(tokens / MICRO, int(_texts_in(table, _TOKENS).sum())),
        "unk": _share(sum_columns(table.sums, Statistic.UNK_TOKENS), tokens),
        "tokens_per_word": _share(
            sum_columns(table.sums, Statistic.TOKENS_PER_WORD) / MICRO, per_word
        ),
        "truncated": _share(int(table.truncated.sum()), texts),
        "accuracy": accuracy(table),
        "judged": int(table.with_feedback.sum()),
        "agreement": _share(int(table.equal.sum()), int(table.pairs.sum())),
    }


def accuracy(table: Table) -> float | None:
    """Share of texts with feedback that were right; None without feedback."""
    return _share(int(table.right.sum()), int(table.with_feedback.sum()))


def _share(part: float, whole: float) -> float | None:
    return round_value(part / whole) if whole else None


def labels(table: Table) -> dict[str, Values]:
    """Share of texts by predicted label over time, the most frequent labels first."""
    every = sum(table.labels.values(), np.zeros(table.columns, dtype=np.int64))
    return {label: shares(table.labels[label], every) for label in _list_frequent(table)}


def _list_frequent(table: Table) -> list[str]:
    ordered = sorted(table.labels, key=lambda label: (-sum_columns(table.labels, label), label))
    return ordered[:MOST_LABELS]


def heatmaps(called: Table, by_version: Mapping[str, Table]) -> list[Heatmap]:
    """Latency of all callers, statistics of all their texts, and each version's outputs."""
    found: list[Heatmap] = []
    latency = called.latency.get(LatencyStage.TOTAL)
    if latency is not None:
        grid, upper = coarsen(latency, LATENCY_EDGES.upper, LATENCY_EVERY)
        found.append(_trim("latency", "latency", "Latency", "", "s", grid, upper))
    for statistic, title in _TEXTS:
        texts = called.histograms.get(statistic)
        if texts is not None:
            edges = EDGES[statistic]
            found.append(
                _trim(
                    statistic.value,
                    "texts",
                    title,
                    "",
                    "" if edges.unit == "ratio" else edges.unit,
                    texts,
                    [*edges.upper, edges.upper[-1]],
                )
            )
    for version in list(by_version)[:MOST_VERSIONS]:
        found += _outputs(version, by_version[version])
    return found + _build_own(called)


def _build_own(called: Table) -> list[Heatmap]:
    """Histograms and categories of the users' own."""
    found: list[Heatmap] = []
    for declared, grid in _list_declared(called):
        key, rows = f"own/{len(found)}/{declared.name}", list(declared.edges)
        if declared.kind == "histogram":
            edges = [*rows, rows[-1]]
            found.append(_trim(key, "own", declared.name, "", "", grid, edges))
        elif declared.kind == "category":
            names = list(declared.values)
            rows = [float(number) for number in range(len(names))]
            counts = grid.tolist()
            found.append(
                Heatmap(key, "own", declared.name, "", "", None, rows, counts, names=names)
            )
    return found


def counters(called: Table, over: Span, until: float) -> list[CounterRates]:
    """Counters of the users' own."""
    return [
        CounterRates(
            declared.name,
            [
                None if rate is None else round_value(rate / MICRO)
                for rate in per_second(grid[:, 0], over, until)
            ],
        )
        for declared, grid in _list_declared(called)
        if declared.kind == "counter"
    ]


def _list_declared(called: Table) -> list[tuple[Declaration, Counts]]:
    ordered = sorted(called.own.items(), key=lambda item: (item[0].name, str(item[0])))
    return ordered[:MOST_OWN]


def unfit(called: Table) -> dict[str, int]:
    """Observations that no declaration allows, the most frequent names first."""
    counted = {name: int(counts.sum()) for name, counts in called.unfit.items()}
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:MOST_OWN])


def unk_words(version: str, table: Table) -> UnkWordsView | None:
    """The words that became UNK; None if none were listed."""
    if not table.unk_words:
        return None
    total = frequent.sum_sketches(table.unk_words)
    words = frequent.ranked_words(total.counts)[:MOST_WORDS]
    return UnkWordsView(version, total.seen, total.below, words)


def _outputs(version: str, table: Table) -> list[Heatmap]:
    scores = EDGES[Statistic.SCORE].upper
    found = [
        Heatmap(
            key=f"{version}/score/{label}",
            group="outputs",
            title=label,
            version=version,
            unit="score",
            lower=0.0,
            upper=list(scores),
            counts=_add_overflow(table.scores[label])[:, :-1].tolist(),  # no score is above 1
        )
        for label in _list_frequent(table)
        if label in table.scores
    ]
    for statistic, name, title in _OF_ANSWERS:
        counts = table.histograms.get(statistic)
        if counts is not None and counts.any():
            upper = EDGES[statistic].upper
            key = f"{version}/{name}"
            found.append(_trim(key, "outputs", title, version, "", counts, [*upper, upper[-1]]))
    return found


_OF_ANSWERS = (
    (Statistic.VECTOR_NORM, "norm", "length of the vector"),
    (Statistic.NON_ZEROS, "non_zeros", "weights that are not 0"),
    (Statistic.GENERATED_TOKENS, "generated", "tokens written"),
)


def _add_overflow(grid: Counts) -> Counts:
    """With whatever lies above the last edge in the row below it."""
    whole = grid.copy()
    whole[:, -2] += whole[:, -1]
    return whole


def _trim(  # noqa: PLR0917 - a heatmap's own fields
    key: str, group: str, title: str, version: str, unit: str, grid: Counts, upper: list[float]
) -> Heatmap:
    """Without the empty rows at both ends, one of them kept for air."""
    used = np.flatnonzero(grid.sum(axis=0))
    first = max(0, int(used[0]) - 1) if used.size else 0
    last = min(grid.shape[1], int(used[-1]) + 2) if used.size else 1
    return Heatmap(
        key=key,
        group=group,
        title=title,
        version=version,
        unit=unit,
        lower=upper[first - 1] if first else None,
        upper=[round_value(edge) for edge in upper[first:last]],
        counts=grid[:, first:last].tolist(),
    )

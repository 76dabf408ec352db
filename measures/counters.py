"""The counters of the exporter, held against what the merged windows gained since they began.

It adds windows up by itself, by another way than the exporter, which adds what each record brings.
Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from contracts.windows import OwnCounts, WindowAggregate
from measures.merging import Windows
from measures.own_statistics import declaration_of
from measures.recounting import Difference

Numbers = Counter[str]  # where -> count

# Fields of an aggregate whose counts are exposed as they are.
_SAME = (
    "statuses", "answered", "repeated", "texts", "truncated", "labels", "histograms", "sums",
    "latency", "latency_sums", "label_scores", "label_score_sums", "pair_distance",
    "pair_distance_sum",
)  # fmt: skip
_NOT_COUNTS = {"endpoint", "version", "arm", "touched"}


def gained(before: Windows, after: Windows) -> Numbers:
    """What the windows hold beyond those before, by where the exporter says it."""
    found = _of_windows(after)
    found.subtract(_of_windows(before))
    return found


def exposed(counters: Mapping[str, Any]) -> Numbers:
    """The numbers of the exporter's document of its counters.

    Raises:
        msgspec.ValidationError: it is no such document.
    """
    found: Numbers = Counter()
    for arm in counters["arms"]:
        path = f"{arm['endpoint']} {arm['version']} {arm['arm']}"
        for name, value in arm.items():
            if name == "own":
                _own(found, path, msgspec.convert(value, list[OwnCounts]))
            elif name not in _NOT_COUNTS:
                _within(found, f"{path} {name}", value)
    _within(found, "refusals", counters["refusals"])
    found["skipped"] = counters["skipped"]
    found["copies"] = counters["copies"]
    found["mistimed"] = counters["mistimed"]
    return found


def differing(shown: Numbers, counted: Numbers) -> tuple[Difference, ...]:
    """Every number in which the two differ, sorted by where it stands; what is absent is 0."""
    return tuple(
        Difference(where, shown[where], counted[where])
        for where in sorted(shown.keys() | counted.keys())
        if shown[where] != counted[where]
    )


def _of_windows(windows: Windows) -> Numbers:
    found: Numbers = Counter()
    for record in windows.records():
        found["skipped"] += record.skipped
        found["copies"] += record.copies
        found["mistimed"] += record.mistimed
        _within(found, "refusals", record.refusals)
    for endpoint in windows.endpoints():
        for window in windows.all(endpoint):
            for aggregate in window.aggregates:
                _aggregate(found, aggregate)
    return found


def _aggregate(found: Numbers, aggregate: WindowAggregate) -> None:
    path = f"{aggregate.endpoint} {aggregate.version} {aggregate.arm.value}"
    for name in _SAME:
        _within(found, f"{path} {name}", getattr(aggregate, name))
    evidence = aggregate.evidence
    found[f"{path} pairs_equal"] += evidence.pairs_equal
    found[f"{path} pairs_differing"] += evidence.pairs - evidence.pairs_equal
    found[f"{path} undeclared"] += sum(aggregate.undeclared.values())
    right = sum(truths.get(answered, 0) for answered, truths in aggregate.feedback.items())
    told = sum(sum(truths.values()) for truths in aggregate.feedback.values())
    found[f"{path} right"] += right
    found[f"{path} wrong"] += told - right
    _own(found, path, aggregate.own)


def _own(found: Numbers, path: str, counts: Iterable[OwnCounts]) -> None:
    for own in counts:
        name = f"{path} own {own.spec.name} {declaration_of(own.spec)[1:]}"
        _within(found, name, own.counts)
        found[f"{name} sum_micro"] += own.sum_micro
        found[f"{name} unfit"] += own.unfit


def _within(found: Numbers, path: str, value: Any) -> None:  # noqa: ANN401 - nested counts
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _within(found, f"{path} {key}", inner)
    else:
        found[path] += value

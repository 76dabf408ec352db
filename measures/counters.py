"""The counters of the exporter, held against what the merged windows gained since they began.

It adds windows up by itself, by another way than the exporter, which adds what each record brings.
Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from contracts.windows import OwnCounts, WindowAggregate, WindowRecord
from measures.recounting import flatten, own_numbers

Numbers = Counter[str]  # where -> count

# Fields of an aggregate whose counts are exposed as they are.
_SAME = (
    "statuses", "answered", "repeated", "texts", "truncated", "labels", "histograms", "sums",
    "latency", "latency_sums", "label_scores", "label_score_sums", "pair_distance",
    "pair_distance_sum",
)  # fmt: skip
_NOT_COUNTS = {"endpoint", "version", "arm", "touched"}


def count_gains(before: Iterable[WindowRecord], after: Iterable[WindowRecord]) -> Numbers:
    """What records hold beyond those before, by where the exporter says it."""
    found = _of_records(after)
    found.subtract(_of_records(before))
    return found


def read_document(counters: Mapping[str, Any]) -> Numbers:
    """The numbers of the exporter's document of its counters.

    Raises:
        msgspec.ValidationError: it is no such document.
    """
    found: Numbers = Counter()
    for arm in counters["arms"]:
        path = f"{arm['endpoint']} {arm['version']} {arm['arm']}"
        for name, value in arm.items():
            if name == "own":
                _add_own(found, path, msgspec.convert(value, list[OwnCounts]))
            elif name not in _NOT_COUNTS:
                _add(found, flatten(f"{path} {name}", value))
    _add(found, flatten("refusals", counters["refusals"]))
    found["skipped"] = counters["skipped"]
    found["copies"] = counters["copies"]
    found["mistimed"] = counters["mistimed"]
    return found


def _of_records(records: Iterable[WindowRecord]) -> Numbers:
    found: Numbers = Counter()
    for record in records:
        found["skipped"] += record.skipped
        found["copies"] += record.copies
        found["mistimed"] += record.mistimed
        _add(found, flatten("refusals", record.refusals))
        for aggregate in record.aggregates:
            _aggregate(found, aggregate)
    return found


def _aggregate(found: Numbers, aggregate: WindowAggregate) -> None:
    path = f"{aggregate.endpoint} {aggregate.version} {aggregate.arm.value}"
    for name in _SAME:
        _add(found, flatten(f"{path} {name}", getattr(aggregate, name)))
    evidence = aggregate.evidence
    found[f"{path} pairs_equal"] += evidence.pairs_equal
    found[f"{path} pairs_differing"] += evidence.pairs - evidence.pairs_equal
    found[f"{path} undeclared"] += sum(aggregate.undeclared.values())
    right = sum(truths.get(answered, 0) for answered, truths in aggregate.feedback.items())
    told = sum(sum(truths.values()) for truths in aggregate.feedback.values())
    found[f"{path} right"] += right
    found[f"{path} wrong"] += told - right
    _add_own(found, path, aggregate.own)


def _add(found: Numbers, numbers: Iterable[tuple[str, float]]) -> None:
    for where, number in numbers:
        found[where] += int(number)


def _add_own(found: Numbers, path: str, counts: Iterable[OwnCounts]) -> None:
    for own in counts:
        _add(found, own_numbers(path, own))

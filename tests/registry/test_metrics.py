"""The registry's metrics before anything has happened."""

import pytest
from prometheus_client import Counter

from registry import metrics


@pytest.mark.parametrize(
    ("counter", "label", "values"),
    [
        (metrics.CONVERSIONS, "outcome", {"published", "version", "environment"}),
        (metrics.PASSES, "outcome", {"whole", "cut short"}),
        (metrics.LOAD_FAILURES, "fault", {"version", "environment"}),
    ],
)
def test_known_values_of_a_label_are_there_from_the_start(
    counter: Counter, label: str, values: set[str]
) -> None:
    (family,) = counter.collect()
    assert {sample.labels[label] for sample in family.samples} >= values

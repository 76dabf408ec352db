import math

import pytest

from bench.metrics import Snapshot, quantile

TEXT = """\
# HELP batches_total Batches.
batches_total{model="a",kind="text"} 3.0
batches_total{model="b",kind="text"} 4.0
batches_total{model="a",kind="padding"} 1e+1
seconds_bucket{endpoint="x",le="0.01"} 5.0
seconds_bucket{endpoint="x",le="0.05"} 99.0
seconds_bucket{endpoint="x",le="+Inf"} 100.0
up 1
"""


def test_a_counter_is_found_by_the_name_that_its_server_gives_it() -> None:
    snapshot = Snapshot('# TYPE computed_us counter\ncomputed_us{model="engine"} 1500\n')
    assert snapshot.total("computed_us", model="engine") == 1500


def test_totals_are_over_all_samples_that_carry_the_labels() -> None:
    snapshot = Snapshot(TEXT)
    assert snapshot.total("batches_total") == 17
    assert snapshot.total("batches_total", kind="text") == 7
    assert snapshot.total("batches_total", kind="text", model="b") == 4
    assert snapshot.total("up") == 1
    assert snapshot.total("absent") == 0


@pytest.mark.parametrize(
    ("share", "edge"), [(0.05, 0.01), (0.5, 0.05), (0.99, 0.05), (1, math.inf)]
)
def test_a_quantile_is_the_edge_of_the_bucket_that_holds_it(share: float, edge: float) -> None:
    assert quantile({}, Snapshot(TEXT).buckets("seconds"), share) == edge


def test_a_quantile_counts_only_what_came_between_two_snapshots() -> None:
    after = Snapshot(TEXT).buckets("seconds")
    before = {0.01: 5.0, 0.05: 5.0, math.inf: 5.0}
    assert quantile(before, after, 0.01) == 0.05
    assert math.isnan(quantile(after, after, 0.5))

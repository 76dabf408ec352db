"""Endpoints divided among processes: each is one's, and together they say what one alone says."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import metrics
from contracts.endpoint import Arm
from contracts.windows import WindowAggregate, WindowRecord
from measures.counting import CountingStatus
from measures.increments import RangeLedger
from stats.evaluation.board import Board
from stats.evaluation.exposition import ExpositionSnapshot, RoleHealth, families
from stats.evaluation.sharding import MOST_SHARDS, Shard, owner
from stats.evaluation.totals import TrafficTotals

names = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


@given(names, st.integers(1, MOST_SHARDS))
def test_an_endpoint_has_exactly_one_owner(name: str, shards: int) -> None:
    owners = [number for number in range(shards) if Shard(number, shards).owns(name)]
    assert owners == [owner(name, shards)]


@given(names, st.integers(1, MOST_SHARDS - 1))
def test_with_one_shard_more_an_endpoint_stays_or_goes_to_the_new_one(
    name: str, shards: int
) -> None:
    assert owner(name, shards + 1) in {owner(name, shards), shards}


def test_a_thousand_endpoints_are_about_equally_divided() -> None:
    names = [f"tenant-{number % 20:02d}-endpoint-{number:04d}" for number in range(1000)]
    counts = [sum(Shard(number, 8).owns(name) for name in names) for number in range(8)]
    assert sum(counts) == 1000
    assert 90 <= min(counts) <= max(counts) <= 160


@pytest.mark.parametrize(
    ("written", "number"), [("0", 0), ("2", 2), ("demo-headrace-evaluate-3", 3)]
)
def test_a_shard_is_written_as_a_number_or_a_pods_name(written: str, number: int) -> None:
    assert Shard.read(written, 4) == Shard(number, 4)


@pytest.mark.parametrize(("written", "shards"), [("4", 4), ("x", 4), ("", 4), ("0", 0), ("0", 65)])
def test_what_is_no_shard_is_refused(written: str, shards: int) -> None:
    with pytest.raises(ValueError, match="shard"):
        Shard.read(written, shards)


def record(number: int, rng: random.Random) -> WindowRecord:
    return WindowRecord(
        topic_id="t",
        partition=0,
        start=64 * number,
        end=64 * number + 64,
        newest=10.0 * number,
        events=7,
        through=10.0 * number,
        skipped=1,
        copies=2,
        aggregates=[
            WindowAggregate(
                endpoint=name, version="1", package="a", arm=Arm.STABLE, start=10 * number,
                statuses={200: rng.randrange(1, 9)}, answered=3, texts=4,
            )
            for name in rng.sample([f"e{each}" for each in range(12)], 5)
        ],
        refusals={f"e{rng.randrange(12)}": {"503 overloaded": rng.randrange(1, 4)}},
    )  # fmt: skip


Told = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def told(records: list[WindowRecord], shard: Shard) -> Told:
    """Every series of a process."""
    totals, ledger = TrafficTotals(), RangeLedger()
    for part in shard.part(records):
        growth = ledger.take(part)
        assert growth is not None
        totals.add(growth, 0.0)
    now = ExpositionSnapshot(
        totals, tuple(totals.arms), totals.refusals, Board(), RoleHealth(), CountingStatus(), 1.0,
        shard=shard,
    )  # fmt: skip
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(now)
        for sample in family.samples
    }


# Of each process: how it is, and how full.
OF_EACH = {metric.name for metric in metrics.EVALUATE if "_evaluate_" in metric.name}


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_all_shards_together_tell_each_series_of_one_process_once(shards: int) -> None:
    rng = random.Random(shards)
    records = [record(number, rng) for number in range(20)]
    whole = told(records, Shard())
    parts = [told(records, Shard(number, shards)) for number in range(shards)]
    together: Told = {}
    for part in parts:
        for key, value in part.items():
            if key[0] not in OF_EACH:
                assert key not in together, key
                together[key] = value
    assert together == {key: value for key, value in whole.items() if key[0] not in OF_EACH}
    assert len({key for key in together if dict(key[1]).get("endpoint")}) > 100


def test_a_process_that_was_killed_has_the_same_endpoints_again() -> None:
    rng = random.Random(1)
    records = [record(number, rng) for number in range(9)]
    before = told(records, Shard.read("evaluate-1", 3))
    assert told(records, Shard.read("evaluate-1", 3)) == before

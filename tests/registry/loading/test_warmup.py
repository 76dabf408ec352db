"""What warm-up runs, and what it makes of it, with an engine whose time is known."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import manifest

from registry.errors import TritonRefusedError
from registry.loading import warmup

MANIFEST = manifest()


class Engine:
    """Takes a fixed time a token; the first run of a shape takes ten times as long."""

    def __init__(self, seconds_per_token: float) -> None:
        self.now = 0.0
        self.runs: list[tuple[int, int]] = []
        self._per_token = seconds_per_token

    def clock(self) -> float:
        return self.now

    async def infer(self, tensors: warmup.Tensors) -> tuple[int, int]:
        rows, bucket = tensors["input_ids"].shape
        first = (rows, bucket) not in self.runs
        self.runs.append((rows, bucket))
        self.now += self._per_token * rows * bucket * (10 if first else 1)
        return rows, 8 * rows


async def test_with_time_enough_every_shape_is_measured_without_its_first_run() -> None:
    engine = Engine(0.0001)
    costs = await warmup.measure(engine.infer, MANIFEST, budget_seconds=100.0, clock=engine.clock)
    assert {(cost.bucket, cost.batch) for cost in costs} == {
        (bucket, batch) for bucket in (4, 8) for batch in (1, 2, 4, 8)
    }
    for cost in costs:
        assert cost.milliseconds == pytest.approx(0.1 * cost.bucket * cost.batch)


async def test_a_slow_engine_is_still_warmed_in_every_bucket_and_no_more() -> None:
    engine = Engine(10.0)
    costs = await warmup.measure(engine.infer, MANIFEST, budget_seconds=1.0, clock=engine.clock)
    assert [(cost.bucket, cost.batch) for cost in costs] == [(4, 1), (8, 1)]
    assert engine.runs == [(1, 4), (1, 8)]


async def test_touching_runs_each_bucket_once() -> None:
    engine = Engine(0.1)
    await warmup.warm_up(engine.infer, MANIFEST)
    assert engine.runs == [(1, 4), (1, 8)]


async def test_every_copy_runs_each_bucket_before_anything_is_measured() -> None:
    asked = 0
    met = asyncio.Barrier(3)

    async def infer(tensors: warmup.Tensors) -> tuple[int, int]:
        nonlocal asked
        asked += 1
        rows = tensors["input_ids"].shape[0]
        if asked <= 3 * len(MANIFEST.length_buckets):
            assert rows == 1
            await met.wait()  # as a Triton with three copies: each takes one
        return rows, 8 * rows

    async with asyncio.timeout(60):
        await warmup.measure(infer, MANIFEST, copies=3, budget_seconds=0.0)
    assert asked > 3 * len(MANIFEST.length_buckets)


@pytest.mark.parametrize("answer", [(0, 0), (1, 0), (2, 16)])
async def test_an_engine_that_answers_with_something_else_is_refused(
    answer: tuple[int, int],
) -> None:
    async def infer(tensors: warmup.Tensors) -> tuple[int, int]:
        del tensors
        return answer

    with pytest.raises(TritonRefusedError, match="1 rows were answered"):
        await warmup.warm_up(infer, MANIFEST)


def test_rows_are_full_of_tokens_that_the_vocabulary_has() -> None:
    tensors = warmup.batch(MANIFEST, 8, 3)
    assert set(tensors) == {"input_ids", "attention_mask"}
    assert tensors["input_ids"].shape == (3, 8)
    assert tensors["input_ids"].max() < MANIFEST.tokenizer.vocabulary
    assert tensors["attention_mask"].min() == 1


@given(st.sets(st.integers(1, 512), min_size=1, max_size=8), st.integers(1, 1024))
def test_every_shape_comes_once_and_single_rows_come_first(buckets: set[int], largest: int) -> None:
    found = warmup.points(sorted(buckets), largest)
    assert len(set(found)) == len(found)
    assert [shape for shape in found if shape[1] == 1] == list(found[: len(buckets)])
    assert {rows for _, rows in found} >= {1, largest}
    assert max(rows for _, rows in found) == largest

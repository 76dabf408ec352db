"""What warm-up runs, and what it makes of it, with an engine whose time is known."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import manifest

from contracts.manifest import EngineKind, FixedSpec, Manifest, PackedSpec
from contracts.tasks import Task
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


async def test_an_engine_in_fixed_shapes_is_measured_at_its_own_numbers_of_rows() -> None:
    fixed = FixedSpec(rows=(1, 3, 8), fused={"Attention": 2})
    in_shapes = MANIFEST.model_copy(update={"fixed": fixed})
    engine = Engine(0.0001)
    costs = await warmup.measure(engine.infer, in_shapes, budget_seconds=100.0, clock=engine.clock)
    assert {(cost.bucket, cost.batch) for cost in costs} == {
        (bucket, batch) for bucket in (4, 8) for batch in fixed.rows
    }


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


def packed_manifest(task: Task = Task.TEXT_EMBEDDING, *, type_ids: bool = True) -> Manifest:
    """Of a packed engine whose batches have up to 16 rows of up to 512 tokens."""
    spec = PackedSpec(loader="AutoModel", type_ids=type_ids)
    changes = {"task": task, "engine": EngineKind.PACKED, "packed": spec, "max_batch_size": 16}
    return MANIFEST.model_copy(update={**changes, "length_buckets": (16, 512)})


class PackedEngine:
    """Takes a fixed time a run, and one more a token; a first run takes ten times as long."""

    def __init__(self, seconds: float, seconds_per_token: float, *, for_tokens: bool = False):
        self.now = 0.0
        self.runs: list[int] = []
        self.rows: list[list[int]] = []
        self._seconds, self._per_token, self._for_tokens = seconds, seconds_per_token, for_tokens

    def clock(self) -> float:
        return self.now

    async def infer(self, tensors: warmup.Tensors) -> tuple[int, int]:
        starts = tensors["row_starts"]
        tokens = int(starts[-1])
        assert tensors["input_ids"].shape == (tokens,)
        assert tensors["input_ids"].dtype == starts.dtype == np.int32
        self.now += (self._seconds + self._per_token * tokens) * (1 if tokens in self.runs else 10)
        self.runs.append(tokens)
        self.rows.append(np.diff(starts).tolist())
        rows = tokens if self._for_tokens else len(starts) - 1
        return rows, 4 * rows


async def test_a_packed_engine_is_measured_by_tokens_up_to_the_largest_batch() -> None:
    engine = PackedEngine(0.0002, 1e-7)
    costs = await warmup.measure(
        engine.infer, packed_manifest(), budget_seconds=1.5, clock=engine.clock
    )
    found = [(cost.bucket, cost.batch) for cost in costs]
    assert found == [(64, 1), (256, 1), (1024, 1), (4096, 1)]
    for cost in costs:
        assert cost.milliseconds == pytest.approx(0.2 + 1e-4 * cost.bucket)
    lengths = {length for rows in engine.rows for length in rows}
    assert len(lengths) > 5
    assert max(lengths) <= 512


async def test_a_slow_packed_engine_is_measured_at_the_fewest_tokens_alone() -> None:
    engine = PackedEngine(0.1, 0.01)
    costs = await warmup.measure(
        engine.infer, packed_manifest(), budget_seconds=1.5, clock=engine.clock
    )
    assert [cost.bucket for cost in costs] == [64]


async def test_a_packed_engine_for_tokens_answers_with_a_row_for_each() -> None:
    engine = PackedEngine(0.0, 1e-7, for_tokens=True)
    of_tokens = packed_manifest(Task.TOKEN_CLASSIFICATION)
    await warmup.warm_up(engine.infer, of_tokens)
    assert engine.runs == [64]
    with pytest.raises(TritonRefusedError, match="were answered with"):
        await warmup.warm_up(engine.infer, packed_manifest())


@pytest.mark.parametrize("type_ids", [True, False])
def test_a_packed_engine_gets_type_ids_if_its_model_reads_them(type_ids: bool) -> None:
    tensors = warmup.batch(packed_manifest(type_ids=type_ids), 64, 1)
    assert ("token_type_ids" in tensors) is type_ids
    assert set(tensors) - {"token_type_ids"} == {"input_ids", "row_starts"}


@given(st.integers(1, 20_000), st.integers(1, 2048))
def test_packed_rows_hold_every_token_and_none_is_too_long(tokens: int, longest: int) -> None:
    lengths = warmup.packed_lengths(tokens, longest)
    assert sum(lengths) == tokens
    assert min(lengths) >= 1
    assert max(lengths) <= longest


async def test_on_a_gpu_no_first_run_is_taken_for_a_cost_however_long_it_took() -> None:
    engine = Engine(10.0)
    costs = await warmup.measure(
        engine.infer, MANIFEST, budget_seconds=1.0, on_gpu=True, clock=engine.clock
    )
    assert {(cost.bucket, cost.batch) for cost in costs} == {
        (bucket, batch) for bucket in (4, 8) for batch in (1, 2, 4, 8)
    }
    for cost in costs:
        assert cost.milliseconds == pytest.approx(10_000 * cost.bucket * cost.batch)


@given(st.sets(st.integers(1, 512), min_size=1, max_size=8), st.integers(1, 1024))
def test_every_shape_comes_once_and_single_rows_come_first(buckets: set[int], largest: int) -> None:
    found = warmup.points(sorted(buckets), largest)
    assert len(set(found)) == len(found)
    assert [shape for shape in found if shape[1] == 1] == list(found[: len(buckets)])
    assert {rows for _, rows in found} >= {1, largest}
    assert max(rows for _, rows in found) == largest

"""The stand-in engines: values that depend on the row alone, and the time of an accelerator."""

import asyncio

import numpy as np
from echo_engine import EchoEngine, SimulatedCost

from gateway.engine.protocol import Work


def work_of(*rows: list[int]) -> Work:
    return Work("any", "logits", {"input_ids": np.array(rows, np.int64)})


async def test_a_rows_values_depend_on_neither_padding_nor_company() -> None:
    engine = EchoEngine(3)
    alone = await engine.infer(work_of([5, 6]), 1)
    among = await engine.infer(work_of([5, 6, 0, 0], [1, 2, 3, 4]), 1)
    assert among[0].tolist() == alone[0].tolist()
    assert among.shape == (2, 3)
    assert among.dtype == np.float32
    assert await engine.ready("any", 1)


async def test_packed_rows_get_the_same_values_as_padded_ones() -> None:
    engine = EchoEngine(3)
    padded = await engine.infer(work_of([5, 6, 0, 0], [1, 2, 3, 4]), 1)
    ids, starts = np.array([5, 6, 1, 2, 3, 4], np.int32), np.array([0, 2, 6], np.int32)
    packed = await engine.infer(Work("any", "logits", {"input_ids": ids, "row_starts": starts}), 1)
    np.testing.assert_array_equal(packed, padded)


async def test_simulated_batches_run_one_after_the_other() -> None:
    engine = EchoEngine(2, SimulatedCost(batch_seconds=0.01, padded_token_seconds=0))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(engine.infer(work_of([1]), 1) for _ in range(5)))
    assert loop.time() - began >= 0.05 - 0.002

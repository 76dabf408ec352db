"""What a loader makes of a Triton's answers."""

import numpy as np
import pytest
from well_triton import well_triton

from registry.errors import TritonLateError, TritonRefusedError, TritonUnavailableError
from registry.loading.triton_client import PROBE, GrpcTriton

TOKENS = {"input_ids": np.ones((2, 3), np.int64)}
NUMBERS = {"rows": np.zeros((2, 3), np.float64)}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
async def test_no_number_for_a_probe_of_tokens_is_a_refusal_and_of_other_requests_an_answer(
    value: float,
) -> None:
    async with well_triton() as (address, well):
        triton = GrpcTriton(address, call_seconds=20, load_seconds=20)
        try:
            assert await triton.infer("m", TOKENS, PROBE) == (2, 16)
            well.values = np.array([[0.5, value]], np.float32)
            with pytest.raises(TritonRefusedError, match="m answers with NaN"):
                await triton.infer("m", TOKENS, PROBE)
            assert await triton.infer("m", TOKENS) == (2, 16)  # what a version answers is its own
            assert await triton.infer("m", NUMBERS, PROBE) == (
                2,
                16,
            )  # zeros may have none
        finally:
            await triton.close()


async def test_a_call_that_takes_too_long_is_told_from_a_triton_that_is_away() -> None:
    async with well_triton() as (address, _):
        triton = GrpcTriton(address, call_seconds=20, load_seconds=0)
        with pytest.raises(TritonLateError):
            await triton.load("m", {})
        await triton.close()
    triton = GrpcTriton(address, call_seconds=20, load_seconds=20)
    with pytest.raises(TritonUnavailableError) as told:
        await triton.load("m", {})
    await triton.close()
    assert not isinstance(told.value, TritonLateError)

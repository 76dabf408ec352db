"""A Triton that answers no inference is found; one that refuses one, or is slow once, is left."""

import asyncio

import pytest
from registry_fakes import FakeTriton, manifest, ref

from contracts.manifest import Manifest
from contracts.model import ModelRef
from registry.errors import ModelProcessGoneError, TritonRefusedError
from registry.examiner import Examiner, ExaminerPace
from registry.package_cache import PackageUnavailableError

STABLE, OTHER = ref("1", "a"), ref("2", "b")
PACE = ExaminerPace(every_seconds=0.01, again_seconds=0.01, deadline_seconds=0.02)


class House:
    def __init__(self) -> None:
        self.triton = FakeTriton()
        self.stable: tuple[ModelRef, ...] = (STABLE, OTHER)
        self.read: list[str] = []
        self.examiner = Examiner(self.triton, lambda: self.stable, self._manifest, PACE)

    def _manifest(self, asked: ModelRef) -> Manifest:
        self.read.append(asked.version)
        if asked.version == "9":
            raise PackageUnavailableError("gone")
        return manifest(asked.version)


@pytest.fixture
def house() -> House:
    return House()


async def test_one_row_of_the_shortest_bucket_is_run_on_each_stable_model(house: House) -> None:
    await house.examiner.look()
    await house.examiner.look()
    assert house.triton.shapes[:2] == [(STABLE.triton_model, (1, 4)), (OTHER.triton_model, (1, 4))]
    assert house.read == ["1", "2"]  # a manifest is read once
    assert house.examiner.fault() == ""


async def test_a_triton_that_hangs_is_found_at_the_second_time_and_forgiven_when_it_answers(
    house: House,
) -> None:
    house.triton.hangs_on.add(STABLE.triton_model)
    await house.examiner.look()
    assert house.examiner.fault() == ""
    await house.examiner.look()
    assert "no inference" in house.examiner.fault()
    house.triton.hangs_on.clear()
    await house.examiner.look()
    assert house.examiner.fault() == ""


async def test_a_triton_that_is_away_is_found_whatever_it_should_hold(house: House) -> None:
    house.stable = ()
    house.triton.down = True
    await house.examiner.look()
    await house.examiner.look()
    assert "refused" in house.examiner.fault()


async def test_a_refusal_is_an_answer_and_so_is_a_package_that_can_not_be_read(
    house: House,
) -> None:
    house.triton.fails[STABLE.triton_model] = TritonRefusedError("shape")
    house.stable = (STABLE, ref("9", "c"))
    for _ in range(3):
        await house.examiner.look()
    assert house.examiner.fault() == ""


async def test_a_model_whose_process_is_gone_is_found(house: House) -> None:
    house.triton.fails[OTHER.triton_model] = ModelProcessGoneError("Stub process is not healthy.")
    await house.examiner.look()
    await house.examiner.look()
    assert f"{OTHER.triton_model} has no process" in house.examiner.fault()


async def test_it_looks_again_and_again_until_it_is_cancelled(house: House) -> None:
    running = asyncio.create_task(house.examiner.run())
    async with asyncio.timeout(10):
        while len(house.triton.shapes) < 6:  # noqa: ASYNC110 - counts, and has no event
            await asyncio.sleep(0.005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

"""What the store lost or damaged is converted again, once the controller has seen it itself."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from controller_harness import ControllerHarness
from registry_fakes import candidate_of, report

from contracts.endpoint import Phase
from contracts.loading import FailureCause, LoadFailure
from contracts.model import ModelRef
from registry.conversions.index import ConversionIndex


@pytest.fixture
def harness(tmp_path: Path) -> ControllerHarness:
    return ControllerHarness(tmp_path)


def tell(harness: ControllerHarness, broken: ModelRef, *held: ModelRef) -> None:
    failure = LoadFailure(
        ref=broken, reason="it is damaged", by_version=False, cause=FailureCause.DAMAGED
    )
    harness.reports.put(report(*held, at=harness.time, failed=(failure,)))


def spoil(harness: ControllerHarness, ref: ModelRef) -> Path:
    file = harness.folder / "store" / ref.package / "model.onnx"
    file.write_bytes(b"rotten")
    return file


async def converted_again(harness: ControllerHarness) -> None:
    """Passes until the next conversion is asked for."""
    asked = len(harness.launcher.requests)
    for _ in range(10):
        await proofs_end(harness)
        if len(harness.launcher.requests) > asked:
            return
        harness.time += 1.0
    raise AssertionError("no conversion began")


async def proofs_end(harness: ControllerHarness) -> None:
    """Passes, and waits for what they began to read."""
    await harness.settle()
    proofs = [task for task in asyncio.all_tasks() if task.get_name() == "proof"]
    await asyncio.gather(*proofs)
    await harness.settle()


async def test_a_candidate_whose_package_is_damaged_is_converted_again_and_goes_on(
    harness: ControllerHarness,
) -> None:
    ref = await harness.converted("1")
    await harness.settle()
    file = spoil(harness, ref)
    tell(harness, ref)
    await converted_again(harness)
    harness.changed.clear()
    assert await harness.convert("1") == ref
    assert file.read_bytes() == b"weights"
    harness.load(ref)
    assert (await harness.settle()).stable == ref


async def test_a_stable_version_whose_package_is_damaged_is_made_whole_before_all_others(
    harness: ControllerHarness,
) -> None:
    ref = await harness.serve("1")
    file = spoil(harness, ref)
    tell(harness, ref)
    await converted_again(harness)
    harness.changed.clear()
    await harness.convert("1")
    status = await harness.settle()
    assert file.read_bytes() == b"weights"
    assert status.stable == ref
    assert not status.rejected


async def test_a_damaged_package_of_which_every_triton_has_a_copy_is_made_whole_once_it_is_read(
    harness: ControllerHarness,
) -> None:
    ref = await harness.serve("1")
    await harness.controller.prove(ref)
    await harness.settle()
    assert len(harness.launcher.requests) == 1
    file = spoil(harness, ref)
    await harness.controller.prove(ref)
    await converted_again(harness)
    harness.changed.clear()
    await harness.convert("1")
    assert (await harness.settle()).stable == ref
    assert file.read_bytes() == b"weights"


async def test_one_loaders_word_is_not_believed(harness: ControllerHarness) -> None:
    ref = await harness.converted("1")
    await harness.settle()
    tell(harness, ref)
    for _ in range(3):
        await proofs_end(harness)
    status = await harness.settle()
    assert len(harness.launcher.requests) == 1
    assert candidate_of(status).phase is Phase.BLOCKED


async def test_packages_that_one_loader_doubts_are_read_one_by_one_and_hold_no_pass_up(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await harness.serve("1")
    over, reading, most = threading.Event(), [0], [0]

    def prove(_: object, doubted: ModelRef) -> None:
        reading[0] += 1
        most[0] = max(most[0], reading[0])
        assert over.wait(60)
        reading[0] -= 1

    monkeypatch.setattr(ConversionIndex, "prove", prove)
    doubted = [ref.model_copy(update={"package": f"{number:0>64}"}) for number in range(100)]
    failed = tuple(
        LoadFailure(ref=each, reason="damaged", by_version=False, cause=FailureCause.DAMAGED)
        for each in doubted
    )
    harness.reports.put(report(ref, at=harness.time, failed=failed))
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))
    try:
        await asyncio.wait_for(harness.settle(), 30)
        await asyncio.wait_for(asyncio.to_thread(int), 30)  # as the heartbeat asks
    finally:
        over.set()
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "proof"))
    assert most == [1]

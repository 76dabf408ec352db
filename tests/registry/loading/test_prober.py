"""A Triton that answers no inference is found; one that refuses one, or is slow once, is left."""

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from gpu_messages import OF_ALL
from registry_fakes import FakeTriton, manifest, ref

from contracts import gpu_faults
from contracts.manifest import Manifest, PyfuncSpec
from contracts.model import ModelRef
from contracts.tensors import Datatype, TensorSpec
from registry.errors import TritonRefusedError
from registry.loading.prober import Prober, ProberPace
from registry.loading.triton_client import PROBE
from registry.packages.cache import PackageUnavailableError

ROWS = (TensorSpec(name="input_ids", datatype=Datatype.FP64, shape=(-1, 2)),)
STABLE, OTHER = ref("1", "a"), ref("2", "b")
PACE = ProberPace(every_seconds=0.01, retry_seconds=0.01, deadline_seconds=0.02)


class ProberHarness:
    def __init__(self) -> None:
        self.triton = FakeTriton()
        self.stable: tuple[ModelRef, ...] = (STABLE, OTHER)
        self.others: tuple[ModelRef, ...] = ()
        self.read: list[str] = []
        self.pyfunc = False
        self.told: dict[ModelRef, str] = {}
        self.failing: set[ModelRef] = set()
        self.gone: list[ModelRef] = []
        self.lost: list[str] = []
        self.takes_note = True
        self.executed: Iterator[int] = itertools.repeat(7)
        self.prober = Prober(
            self.triton,
            lambda: self.stable,
            self.manifest,
            PACE,
            told=self._note_trouble,
            gone=self._note_gone,
            executed=self._executed,
            others=lambda: self.others,
            lost=self.lost.append,
        )

    def _note_trouble(self, asked: ModelRef, why: str, fails: bool) -> None:
        self.told[asked] = why
        self.failing = self.failing - {asked} | ({asked} if fails else set())

    def _note_gone(self, asked: ModelRef) -> bool:
        self.gone.append(asked)
        return self.takes_note

    async def _executed(self, _: str) -> int:
        return next(self.executed)

    def manifest(self, asked: ModelRef) -> Manifest:
        self.read.append(asked.version)
        if asked.version == "9":
            raise PackageUnavailableError("gone")
        made = manifest(asked.version)
        spec = PyfuncSpec(python="3.11", example=(1.0, 2.0), model_bytes=1, site_bytes=1)
        return made.model_copy(update={"pyfunc": spec, "inputs": ROWS} if self.pyfunc else {})


@pytest.fixture
def harness() -> ProberHarness:
    return ProberHarness()


async def test_one_row_of_the_shortest_bucket_is_run_on_each_stable_model(
    harness: ProberHarness,
) -> None:
    await harness.prober.probe()
    await harness.prober.probe()
    assert harness.triton.shapes[:2] == [
        (STABLE.triton_model, (1, 4)),
        (OTHER.triton_model, (1, 4)),
    ]
    assert harness.read == ["1", "2"]  # a manifest is read once
    assert harness.prober.fault() == ""


async def test_a_manifest_is_forgotten_with_its_model(harness: ProberHarness) -> None:
    for stable in ((STABLE,), (OTHER,), (STABLE,)):
        harness.stable = stable
        await harness.prober.probe()
    assert harness.read == ["1", "2", "1"]


async def test_a_triton_that_hangs_is_found_at_the_second_time_and_forgiven_when_it_answers(
    harness: ProberHarness,
) -> None:
    harness.triton.hangs_on.add(STABLE.triton_model)
    await harness.prober.probe()
    assert harness.prober.fault() == ""
    await harness.prober.probe()
    assert "no inference" in harness.prober.fault()
    harness.triton.hangs_on.clear()
    await harness.prober.probe()
    assert harness.prober.fault() == ""


async def test_a_triton_that_runs_other_batches_meanwhile_is_slow_and_not_ended(
    harness: ProberHarness,
) -> None:
    harness.stable = (STABLE,)
    harness.triton.hangs_on.add(STABLE.triton_model)
    harness.executed = itertools.count()
    for _ in range(5):
        await harness.prober.probe()
        assert harness.prober.fault() == ""
    harness.executed = itertools.repeat(5)  # it has stopped
    for _ in range(3):
        await harness.prober.probe()
    assert "no inference" in harness.prober.fault()


async def test_a_triton_that_is_away_is_found_whatever_it_should_hold(
    harness: ProberHarness,
) -> None:
    harness.stable = ()
    harness.triton.down = True
    await harness.prober.probe()
    await harness.prober.probe()
    assert "refused" in harness.prober.fault()


async def test_a_refusal_is_an_answer_and_so_is_a_package_that_can_not_be_read(
    harness: ProberHarness,
) -> None:
    harness.triton.fails[STABLE.triton_model] = TritonRefusedError("shape")
    harness.stable = (STABLE, ref("9", "c"))
    for _ in range(3):
        await harness.prober.probe()
    assert harness.prober.fault() == ""


async def test_a_model_whose_process_is_gone_is_to_be_loaded_anew_and_ends_no_triton(
    harness: ProberHarness,
) -> None:
    harness.triton.gone.add(OTHER.triton_model)
    await harness.prober.probe()
    assert harness.gone == [OTHER]
    assert harness.prober.fault() == ""
    harness.triton.gone.clear()  # as the loader does
    for _ in range(3):
        await harness.prober.probe()
    assert harness.gone == [OTHER]


async def test_a_model_that_stays_without_a_process_ends_its_triton(harness: ProberHarness) -> None:
    harness.triton.gone.add(OTHER.triton_model)
    for _ in range(PACE.reloads_allowed):
        await harness.prober.probe()
        assert harness.prober.fault() == ""
    for _ in range(1 + PACE.failures_allowed):
        await harness.prober.probe()
    assert f"{OTHER.triton_model} has no process" in harness.prober.fault()


async def test_a_candidate_whose_process_is_gone_is_to_be_loaded_anew(
    harness: ProberHarness,
) -> None:
    harness.stable, harness.others = (STABLE,), (OTHER,)
    harness.triton.gone.add(OTHER.triton_model)
    await harness.prober.probe()
    assert harness.gone == [OTHER]
    harness.triton.gone.clear()
    await harness.prober.probe()
    assert harness.gone == [OTHER]
    assert harness.told == {STABLE: "", OTHER: ""}


async def test_a_candidate_that_stays_without_a_process_is_told_of_and_ends_no_triton(
    harness: ProberHarness,
) -> None:
    harness.stable, harness.others = (STABLE,), (OTHER,)
    harness.triton.gone.add(OTHER.triton_model)
    for _ in range(PACE.reloads_allowed + 5):
        await harness.prober.probe()
        assert harness.prober.fault() == ""
    assert harness.gone == [OTHER] * PACE.reloads_allowed
    assert "has no process any more" in harness.told[OTHER]


async def test_a_candidate_that_hangs_is_told_of_and_ends_no_triton(harness: ProberHarness) -> None:
    harness.stable, harness.others = (STABLE,), (OTHER,)
    harness.triton.hangs_on.add(OTHER.triton_model)
    for _ in range(3):
        await harness.prober.probe()
        assert harness.prober.fault() == ""
    assert "answered no inference" in harness.told[OTHER]
    assert harness.told[STABLE] == ""


async def test_a_candidate_that_fails_more_requests_is_looked_at_at_once(
    harness: ProberHarness,
) -> None:
    failed = {OTHER.triton_model: 3}

    async def refused() -> dict[str, int]:
        return dict(failed)

    pace = replace(PACE, every_seconds=3600.0)
    prober = Prober(
        harness.triton,
        lambda: (STABLE,),
        harness.manifest,
        pace,
        refused=refused,
        others=lambda: (OTHER,),
    )
    looking = asyncio.create_task(prober.run())
    for probes in (2, 4):
        async with asyncio.timeout(60):
            while len(harness.triton.shapes) < probes:  # noqa: ASYNC110 - counts, and has no event
                await asyncio.sleep(0.005)
        failed[OTHER.triton_model] += 1
    looking.cancel()


async def test_a_loader_that_is_busy_with_another_model_has_its_time(
    harness: ProberHarness,
) -> None:
    harness.triton.gone.add(OTHER.triton_model)
    await harness.prober.probe()
    harness.takes_note = False  # it has not come to it yet
    for _ in range(PACE.reloads_allowed + PACE.failures_allowed + 1):
        await harness.prober.probe()
        assert harness.prober.fault() == ""


async def test_a_model_that_fails_more_requests_is_looked_at_at_once(
    harness: ProberHarness,
) -> None:
    failed = {STABLE.triton_model: 3}

    async def refused() -> dict[str, int]:
        return dict(failed)

    pace = replace(PACE, every_seconds=3600.0)
    prober = Prober(harness.triton, lambda: harness.stable, harness.manifest, pace, refused=refused)
    looking = asyncio.create_task(prober.run())
    for probes in (2, 4):
        async with asyncio.timeout(60):
            while len(harness.triton.shapes) < probes:  # noqa: ASYNC110 - counts, and has no event
                await asyncio.sleep(0.005)
        failed[STABLE.triton_model] += 1
    looking.cancel()


async def test_why_a_model_refuses_is_told_until_it_answers(harness: ProberHarness) -> None:
    why = "engine: The version's code took more than 2 s and was stopped."
    harness.triton.fails[STABLE.triton_model] = TritonRefusedError(why)
    await harness.prober.probe()
    assert harness.told == {STABLE: why.removeprefix("engine: "), OTHER: ""}
    harness.triton.fails.clear()
    await harness.prober.probe()
    assert harness.told == {STABLE: "", OTHER: ""}
    assert set(harness.triton.request_ids) == {PROBE}


async def test_triton_fails_a_model_that_it_refuses_twice_in_a_row(
    harness: ProberHarness,
) -> None:
    refusal = TritonRefusedError("CUDA failure 719: unspecified launch failure")
    found = []
    for refuses in (True, False, True, True, True, False):
        harness.triton.fails = {STABLE.triton_model: refusal} if refuses else {}
        await harness.prober.probe()
        found.append(harness.failing == {STABLE})
    assert found == [False, False, False, True, True, False]


async def test_users_own_code_that_refuses_is_no_failure_of_triton(harness: ProberHarness) -> None:
    harness.pyfunc = True
    harness.triton.fails[STABLE.triton_model] = TritonRefusedError("engine: no such table")
    for _ in range(3):
        await harness.prober.probe()
    assert harness.told[STABLE] == "no such table"
    assert not harness.failing


async def test_a_model_that_refused_once_is_looked_at_again_soon(harness: ProberHarness) -> None:
    harness.triton.fails[STABLE.triton_model] = TritonRefusedError("CUDA failure 719")
    pace = replace(PACE, every_seconds=3600.0, retry_seconds=0.01)
    failing = asyncio.Event()

    def told(_: ModelRef, __: str, fails: bool) -> None:
        if fails:
            failing.set()

    prober = Prober(harness.triton, lambda: harness.stable, harness.manifest, pace, told=told)
    looking = asyncio.create_task(prober.run())
    async with asyncio.timeout(60):
        await failing.wait()
    looking.cancel()


async def test_code_of_users_own_that_hangs_is_told_of_and_ends_no_triton(
    harness: ProberHarness,
) -> None:
    harness.pyfunc = True
    harness.triton.hangs_on.add(STABLE.triton_model)
    for _ in range(3):
        await harness.prober.probe()
    assert harness.prober.fault() == ""
    assert "no inference within" in harness.told[STABLE]
    assert harness.told[OTHER] == ""


async def test_it_looks_again_and_again_until_it_is_cancelled(harness: ProberHarness) -> None:
    running = asyncio.create_task(harness.prober.run())
    async with asyncio.timeout(60):
        while len(harness.triton.shapes) < 6:  # noqa: ASYNC110 - counts, and has no event
            await asyncio.sleep(0.005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


ECC = "onnx runtime error 1: CUDA failure 214: uncorrectable ECC error encountered ; GPU=0"


async def test_a_triton_whose_own_process_lost_its_gpu_is_ended_at_the_second_look(
    harness: ProberHarness,
) -> None:
    harness.triton.fails[STABLE.triton_model] = TritonRefusedError(ECC)
    await harness.prober.probe()
    assert harness.prober.fault() == ""
    assert harness.told[STABLE] == ECC
    assert harness.lost == [ECC]
    await harness.prober.probe()
    assert ECC in harness.prober.fault()
    harness.triton.fails.clear()
    await harness.prober.probe()
    assert harness.prober.fault() == ""
    assert harness.lost[-1] == ""


async def test_a_model_whose_own_process_lost_its_gpu_is_loaded_anew(
    harness: ProberHarness,
) -> None:
    harness.triton.fails[OTHER.triton_model] = TritonRefusedError(f"engine: {ECC}")
    await harness.prober.probe()
    assert harness.gone == [OTHER]
    assert harness.prober.fault() == ""
    assert set(harness.lost) == {""}  # Triton's own process says nothing of its GPU


@pytest.mark.parametrize(("name", "words"), OF_ALL)
async def test_only_what_ends_a_process_ends_triton(
    name: str, words: str, harness: ProberHarness
) -> None:
    del name
    harness.triton.fails[STABLE.triton_model] = TritonRefusedError(words)
    for _ in range(3):
        await harness.prober.probe()
    assert bool(harness.prober.fault()) is gpu_faults.ends_process(words)


async def test_words_of_users_own_code_are_no_words_of_a_gpu(harness: ProberHarness) -> None:
    harness.pyfunc = True
    harness.triton.fails[STABLE.triton_model] = TritonRefusedError(f"engine: {ECC}")
    for _ in range(3):
        await harness.prober.probe()
    assert harness.prober.fault() == ""
    assert harness.gone == []
    assert set(harness.lost) == {""}


async def test_a_candidates_words_alone_end_no_triton(harness: ProberHarness) -> None:
    harness.stable, harness.others = (STABLE,), (OTHER,)
    harness.triton.fails[OTHER.triton_model] = TritonRefusedError(ECC)
    for _ in range(3):
        await harness.prober.probe()
    assert harness.prober.fault() == ""
    assert ECC in harness.told[OTHER]
    assert set(harness.lost) == {""}

"""A loader and what its Triton computes with: what it loads where, what it refuses and reports."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from loader_harness import LoaderHarness, names
from numpy.typing import NDArray
from registry_fakes import FakeTriton, ref

from contracts.loading import DeviceKind
from contracts.tasks import Task
from registry.loading.devices import PROBE_MODEL, Promise
from registry.loading.room import Room
from registry.packages.device_proof import DeviceProof, ProofRow

STABLE, CANDIDATE = ref("2", "a"), ref("3", "b")
GPU: dict[str, object] = {
    "kind": "gpu",
    "name": "NVIDIA H200",
    "count": 1,
    "memory_bytes": 140_000_000_000,
    "free_bytes": 100_000_000_000,
    "driver": "580.95.05",
    "cuda": "13.0",
    "onnxruntime": "13.0",
}
NO_GPU: dict[str, object] = {"kind": "cpu", "fault": "the driver has no GPU"}


@pytest.fixture
def harness(tmp_path: Path) -> LoaderHarness:
    return LoaderHarness(tmp_path)


def on(harness: LoaderHarness, device: dict[str, object], promise: Promise = Promise.AUTO) -> None:
    """A loader whose Triton says this of itself."""
    harness.triton.device = device
    harness.triton.gpus = int(device["kind"] == "gpu")
    harness.promise = promise
    harness.loader = harness.new_loader()


async def test_the_report_tells_the_gpu_and_the_probe_is_no_package(
    harness: LoaderHarness,
) -> None:
    on(harness, GPU)
    report = await harness.serve(STABLE, stable=STABLE)
    assert report.device is not None
    assert (report.device.kind, report.device.name) == (DeviceKind.GPU, "NVIDIA H200")
    assert names(report) == ["2"]
    assert harness.placement.devices == {STABLE.triton_model: DeviceKind.GPU}
    harness.endpoints.delete("e")
    for _ in range(3):
        harness.time += 601
        report = await harness.settle()
    assert report.loaded == ()
    assert harness.triton.models == {PROBE_MODEL}


async def test_a_gpu_that_was_promised_and_is_not_there_leaves_the_loader_unready_with_the_reason(
    harness: LoaderHarness,
) -> None:
    on(harness, NO_GPU, Promise.GPU)
    report = await harness.serve(STABLE, stable=STABLE)
    why = "this Triton can't use a GPU: the driver has no GPU"
    assert report.device is not None
    assert (report.ready, report.device.fault) == (False, why)
    assert harness.loader.unready() == why
    assert [(item.reason, item.by_version) for item in report.failed] == [(why, False)]
    assert harness.packages.fetched == [STABLE]
    assert harness.triton.loads() == [PROBE_MODEL]


async def test_a_gpu_that_is_lost_in_service_takes_its_triton_out_at_once_and_until_it_is_back(
    harness: LoaderHarness,
) -> None:
    on(harness, GPU)
    report = await harness.serve(STABLE, stable=STABLE)
    assert report.ready
    assert harness.loader.unready() == ""
    harness.loader.note_lost("CUDA failure 214: uncorrectable ECC error encountered")
    assert "uncorrectable ECC" in harness.loader.unready()
    report = await harness.settle()
    assert report.device is not None
    assert not report.ready
    assert "uncorrectable ECC" in report.device.fault
    assert [model.ref for model in report.loaded] == [STABLE]
    harness.loader.note_lost("")
    assert harness.loader.unready() == ""
    assert (await harness.settle()).ready


async def test_a_gpu_that_comes_back_is_taken_up(harness: LoaderHarness) -> None:
    on(harness, NO_GPU, Promise.GPU)
    await harness.serve(STABLE, stable=STABLE)
    harness.triton.device, harness.triton.gpus = GPU, 1
    harness.time += 61
    report = await harness.settle()
    assert (report.ready, names(report), report.failed) == (True, ["2"], ())
    assert harness.loader.unready() == ""


async def test_a_loader_told_to_use_cpus_says_so_to_triton(harness: LoaderHarness) -> None:
    on(harness, GPU, Promise.CPU)
    harness.triton.gpus = 0
    report = await harness.serve(STABLE, stable=STABLE)
    assert harness.placement.devices == {STABLE.triton_model: DeviceKind.CPU}
    assert report.device is not None
    assert report.device.kind is DeviceKind.CPU


async def test_a_candidate_that_the_gpu_has_no_room_for_is_not_fetched(
    harness: LoaderHarness,
) -> None:
    on(harness, {**GPU, "free_bytes": 1_000_000_000})
    harness.options = replace(harness.options, room=Room(memory_bytes=200_000_000))
    harness.loader = harness.new_loader()
    harness.packages.sizes[CANDIDATE.package] = 600_000_000
    report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    (failure,) = report.failed
    assert (failure.ref, failure.by_version) == (CANDIDATE, False)
    assert failure.reason == ("it needs some 1.1 GB of the GPU's memory, and 1.0 GB of it are free")
    assert harness.packages.fetched == [STABLE]
    harness.triton.device = GPU
    harness.time += 61
    assert sorted(names(await harness.settle())) == ["2", "3"]


class GrowingTriton(FakeTriton):
    """Whose first batch takes all but a little of its GPU."""

    async def infer(
        self, name: str, inputs: Mapping[str, NDArray[np.number]], request_id: str = ""
    ) -> tuple[int, int]:
        self.device = {**GPU, "free_bytes": 10_000_000_000}
        return await super().infer(name, inputs, request_id)


async def test_what_a_package_took_of_the_gpu_is_known_when_it_comes_again(
    harness: LoaderHarness,
) -> None:
    harness.triton = GrowingTriton()
    on(harness, {**GPU, "free_bytes": 90_000_000_000})
    await harness.serve(CANDIDATE, stable=None)
    assert names(harness.reports.stored["l"]) == ["3"]
    harness.triton.models.discard(CANDIDATE.triton_model)
    report = await harness.settle()
    assert [item.reason for item in report.failed] == [
        "it needs some 80.0 GB of the GPU's memory, and 10.0 GB of it are free"
    ]


async def test_what_others_took_of_the_gpu_meanwhile_is_not_charged_to_a_package(
    harness: LoaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    class Shared(GrowingTriton):
        """The driver tells what the package's own process holds; somebody else has the rest."""

        async def ask(self, name: str) -> bytes:
            assert self.device is not None
            loaded = self.models & {CANDIDATE.triton_model}
            self.device = {**self.device, "held": dict.fromkeys(loaded, 1_000_000_000)}
            return await super().ask(name)

    harness.triton = Shared()
    on(harness, {**GPU, "free_bytes": 90_000_000_000})
    await harness.serve(CANDIDATE, stable=None)
    harness.triton.models.discard(CANDIDATE.triton_model)
    report = await harness.settle()
    assert (names(report), report.failed) == (["3"], ())
    assert "what others took meanwhile" not in caplog.text


async def test_where_the_driver_tells_no_process_the_log_says_what_was_weighed(
    harness: LoaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    harness.triton = GrowingTriton()
    on(harness, {**GPU, "free_bytes": 90_000_000_000})
    await harness.serve(CANDIDATE, stable=None)
    assert (
        f"{CANDIDATE.triton_model} is weighed as 80000 MB of a GPU, with what others took meanwhile"
        in caplog.text
    )


async def test_a_model_without_a_process_is_loaded_anew_and_blames_nobody(
    harness: LoaderHarness,
) -> None:
    await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    name = STABLE.triton_model
    harness.triton.gone.add(name)
    before = len(harness.triton.calls)
    harness.loader.note_gone(STABLE)
    report = await harness.settle()
    assert harness.triton.calls[before:] == [("unload", name), ("load", name)]
    assert sorted(names(report)) == ["2", "3"]
    assert (report.ready, report.failed) == (True, ())
    assert harness.loader.unready() == ""
    await harness.settle()
    assert len(harness.triton.calls) == before + 2


async def test_a_model_that_is_told_gone_again_while_it_is_unloaded_is_loaded_once(
    harness: LoaderHarness,
) -> None:
    class ToldAgain(FakeTriton):
        async def unload(self, name: str) -> None:
            told.append(harness.loader.note_gone(STABLE))
            await super().unload(name)

    told: list[bool] = []
    harness.triton = ToldAgain()
    on(harness, GPU)
    await harness.serve(STABLE, stable=STABLE)
    name = STABLE.triton_model
    before = len(harness.triton.calls)
    told += [harness.loader.note_gone(STABLE), harness.loader.note_gone(STABLE)]
    assert told == [True, False]  # the second time, it is still to be done
    await harness.settle()
    await harness.settle()
    assert harness.triton.calls[before:] == [("unload", name), ("load", name)]


PROOF = DeviceProof(
    task=Task.TEXT_EMBEDDING,
    type_ids=False,
    scale=1.0,
    limits={"max_abs_difference": 0.01, "min_cosine": 0.999},
    rows=(
        ProofRow(ids=(1, 2), values=((0.6, 0.8),)),
        ProofRow(ids=(1, 2, 3), values=((0.8, 0.6),)),
    ),
)


async def test_a_package_is_loaded_if_it_answers_as_its_proof_says(harness: LoaderHarness) -> None:
    harness.packages.proofs[STABLE.package] = PROOF
    row = np.array([[0.6, 0.8]] * 2, np.float32)

    class Knowing(FakeTriton):
        async def outputs(
            self, name: str, inputs: Mapping[str, NDArray[np.generic]]
        ) -> NDArray[np.float32]:
            self.calls.append(("outputs", name))
            long = np.diff(inputs["row_starts"].astype(int)) > 2
            return np.where(long[:, None], row[: len(long), ::-1], row[: len(long)])

    harness.triton = Knowing()
    on(harness, GPU)
    report = await harness.serve(STABLE, stable=STABLE)
    assert (names(report), report.failed) == (["2"], ())
    assert ("outputs", STABLE.triton_model) in harness.triton.calls


async def test_a_package_that_strays_on_the_device_is_refused_as_the_versions_fault_with_figures(
    harness: LoaderHarness,
) -> None:
    on(harness, GPU)
    harness.packages.proofs[CANDIDATE.package] = PROOF
    strange = np.array([[0.6, 0.8], [0.6, 0.8]], np.float32)  # both rows as the first
    harness.triton.answers[CANDIDATE.triton_model] = strange
    report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    assert names(report) == ["2"]
    (failure,) = report.failed
    assert failure.by_version
    assert failure.reason == (
        "it strays from the original on this Triton's NVIDIA H200: of one row, "
        "max abs difference to the original is 0.2, and the limit is 0.01"
    )


async def test_a_proof_that_can_not_be_read_is_no_fault_of_the_version(
    harness: LoaderHarness,
) -> None:
    harness.packages.proofs[CANDIDATE.package] = PROOF.model_copy(update={"rows": ()})
    report = await harness.serve(CANDIDATE, stable=None)
    assert [item.by_version for item in report.failed] == [False]
    assert "can't be read" in report.failed[0].reason

"""What a loader finds out about its own Triton once that refused a package."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from loader_harness import LoaderHarness, names, status
from registry_fakes import ref

from contracts.loading import FailureCause, WitnessAnswer
from contracts.manifest import MODEL_ONNX
from contracts.model import ModelRef
from registry.errors import TritonRefusedError
from registry.loading.placement import SharedRepository, UploadedFiles
from registry.loading.witness import NAME
from registry.packages import triton_config
from registry.packages.triton_files import triton_file

STABLE, CANDIDATE = ref("2", "b"), ref("3", "c")
GRAPH = TritonRefusedError("INVALID_GRAPH: no such operator")
ECC = TritonRefusedError("CUDA failure 214: uncorrectable ECC error encountered ; GPU=0")


@pytest.fixture
def harness(tmp_path: Path) -> LoaderHarness:
    return LoaderHarness(tmp_path)


async def refused(
    harness: LoaderHarness, why: Exception, stable: ModelRef | None = STABLE
) -> tuple[bool, WitnessAnswer]:
    harness.triton.refuses[CANDIDATE.triton_model] = why
    packages = (CANDIDATE,) if stable is None else (stable, CANDIDATE)
    (failure,) = (await harness.serve(*packages, stable=stable)).failed
    assert failure.cause is FailureCause.REFUSED
    return failure.by_version, failure.witness


async def test_a_version_is_accused_while_stables_package_still_loads(
    harness: LoaderHarness,
) -> None:
    assert await refused(harness, GRAPH) == (True, WitnessAnswer.LOADS)
    assert NAME in harness.triton.loads()
    assert STABLE in harness.packages.fetched
    assert harness.triton.models == {STABLE.triton_model}  # the witness left


async def test_a_triton_that_refuses_its_witness_too_accuses_nobody(harness: LoaderHarness) -> None:
    harness.triton.refuses[NAME] = ECC
    assert await refused(harness, GRAPH) == (False, WitnessAnswer.REFUSED)


async def test_a_witness_that_gives_no_answer_is_none(harness: LoaderHarness) -> None:
    harness.triton.fails[NAME] = TritonRefusedError("engine: CUDA error")
    assert await refused(harness, GRAPH) == (False, WitnessAnswer.REFUSED)


async def test_words_of_the_machine_accuse_nobody_though_the_witness_loads(
    harness: LoaderHarness,
) -> None:
    assert await refused(harness, ECC) == (False, WitnessAnswer.LOADS)


async def test_without_a_stable_package_a_tiny_graph_is_the_witness(harness: LoaderHarness) -> None:
    assert await refused(harness, GRAPH, stable=None) == (True, WitnessAnswer.LOADS)
    assert (NAME, "onnxruntime") in harness.placement.placed
    assert NAME in harness.placement.removed


async def test_the_witness_is_asked_again_until_it_loads(harness: LoaderHarness) -> None:
    harness.triton.refuses[NAME] = ECC
    await refused(harness, GRAPH)
    harness.triton.refuses.pop(NAME)
    harness.time += 1.0
    (failure,) = (await harness.settle()).failed
    assert failure.by_version
    asked = harness.triton.loads().count(NAME)
    harness.time += 1e4
    await harness.settle()
    assert harness.triton.loads().count(NAME) == asked


async def test_a_refusal_that_goes_on_is_told_as_such_and_is_tried_again(
    harness: LoaderHarness,
) -> None:
    await refused(harness, ECC)
    for _ in range(3):
        harness.time += 60.0
        report = await harness.settle()
    assert report.failed[0].persists
    harness.triton.refuses.clear()
    harness.time += 60.0
    report = await harness.settle()
    assert names(report) == ["2", "3"]
    assert not report.failed


async def test_a_cordoned_triton_is_unready_and_goes_on_loading(harness: LoaderHarness) -> None:
    told = status(STABLE, CANDIDATE, stable=STABLE).model_copy(update={"cordoned": ("l",)})
    harness.endpoints.show(told)
    report = await harness.settle()
    assert report.cordoned
    assert not report.ready
    assert names(report) == ["2", "3"]
    assert "out of service" in harness.loader.unready()
    harness.endpoints.show(told.model_copy(update={"cordoned": ("another",)}))
    report = await harness.settle()
    assert report.ready
    assert not harness.loader.unready()


@pytest.mark.parametrize("backend", ["python", "onnxruntime"])
def test_the_tiny_graph_is_placed_like_any_other_and_answers(tmp_path: Path, backend: str) -> None:
    assert SharedRepository(tmp_path).place_witness(NAME, backend, None) == {}
    version = tmp_path / NAME / triton_config.VERSION_FOLDER
    assert (version / "model.py").is_file() is (backend == "python")
    uploaded = UploadedFiles().place_witness(NAME, backend, None)
    graph = (version / MODEL_ONNX).read_bytes()
    assert (
        uploaded[f"file:1/{MODEL_ONNX}"] == graph == triton_file("witness", MODEL_ONNX).read_bytes()
    )
    session = ort.InferenceSession(graph)
    (found,) = session.run(["ids"], {"input_ids": np.array([[1, -2]], np.int64)})
    assert found.tolist() == [[1.0, 0.0]]

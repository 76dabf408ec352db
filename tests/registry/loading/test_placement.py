"""Both ways of bringing a package to Triton."""

import ast
import importlib.util
import json
import sys
from pathlib import Path

import pytest
from registry_fakes import manifest

from contracts import gpu_faults
from contracts.endpoint import Precision
from contracts.features import Feature, FeatureKind
from contracts.loading import DeviceKind
from contracts.manifest import (
    CONFIG_ONNXRUNTIME,
    CONFIG_PYTHON,
    DEVICE_PROOF,
    ENCODER_ONNX,
    MANIFEST,
    MODEL_CONFIG,
    MODEL_ONNX,
    PYFUNC,
    WEIGHTS,
    EngineKind,
    FixedSpec,
    GenerationSpec,
    PackedDense,
    PackedSpec,
    PyfuncSpec,
    TokenRules,
)
from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec
from registry.loading.placement import Placement, SharedRepository, UploadedFiles
from registry.loading.splits import InstanceSplit
from registry.packages import triton_config
from registry.packages.triton_files import triton_file
from registry.pyfunc.process import PyfuncLimits

NAME = "m-v1-aaaaaaaaaaaa"
# What Triton's Python, or the packages of a pyfunc, bring.
NEEDED = {"numpy", "onnxruntime", "triton_python_backend_utils", "pandas", "mlflow"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    python, native = triton_config.render(
        inputs=[TensorSpec(name="input_ids", datatype=Datatype.INT64, shape=(-1, -1))],
        outputs=[TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, 2))],
        max_batch_size=8,
        threads=1,
    )
    (folder / CONFIG_PYTHON).write_text(python)
    (folder / CONFIG_ONNXRUNTIME).write_text(native)
    (folder / MODEL_ONNX).write_bytes(b"graph")
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repository"


def test_the_python_backend_gets_its_model_beside_the_graph(
    package: Path, repository: Path
) -> None:
    assert SharedRepository(repository).place(NAME, package, "python", InstanceSplit(1, 1)) == {}
    model = repository / NAME
    assert 'backend: "python"' in (model / "config.pbtxt").read_text()
    assert (model / "1" / "model.onnx").read_bytes() == b"graph"
    assert (model / "1" / "model.py").read_text() == triton_file("python_model").read_text()


def test_a_model_that_writes_gets_all_that_it_imports_beside_both_graphs(
    package: Path, repository: Path
) -> None:
    rules = TokenRules(forced_bos_token_id=0, bad_words_ids=((7,), (8, 9)))
    text = triton_config.render_generation(
        context=64, rows=4, threads=1, generation=GenerationSpec(start_id=2, rules=rules)
    )
    (package / CONFIG_PYTHON).write_text(text)
    (package / ENCODER_ONNX).write_bytes(b"reads")
    SharedRepository(repository).place(NAME, package, "python", InstanceSplit(1, 1))
    placed = {file.name: file for file in (repository / NAME / "1").iterdir()}
    scripts = {"model.py", "python_model.py", "token_rules.py", "gpu_faults.py"}
    assert placed.keys() == {MODEL_ONNX, ENCODER_ONNX, *scripts}
    # Nothing of Headrace is installed where Triton runs them.
    beside = {"numpy", "onnxruntime", "triton_python_backend_utils"}
    for name in scripts:
        for node in ast.walk(ast.parse(placed[name].read_text())):
            if isinstance(node, ast.Import):
                wanted = {each.name.split(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                wanted = {(node.module or "").split(".")[0]}
            else:
                continue
            here = {script.removesuffix(".py") for script in scripts}
            assert wanted <= beside | sys.stdlib_module_names | here
    parameters = json.loads(
        str(UploadedFiles().place(NAME, package, "python", InstanceSplit(1, 1))["config"])
    )["parameters"]
    assert parameters["start"]["string_value"] == "2"
    assert json.loads(parameters["rules"]["string_value"]) == {
        "forced_bos_token_id": 0,
        "bad_words_ids": [[7], [8, 9]],
    }


def test_the_native_backend_gets_the_graph_alone(package: Path, repository: Path) -> None:
    SharedRepository(repository).place(NAME, package, "onnxruntime", InstanceSplit(1, 1))
    model = repository / NAME
    assert 'backend: "onnxruntime"' in (model / "config.pbtxt").read_text()
    assert [item.name for item in (model / "1").iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("backend", ["python", "onnxruntime"])
def test_a_model_is_placed_with_as_many_copies_as_are_asked_for(
    package: Path, repository: Path, backend: str
) -> None:
    SharedRepository(repository).place(NAME, package, backend, InstanceSplit(3, 2))
    text = (repository / NAME / "config.pbtxt").read_text()
    assert "count: 3" in text
    assert 'string_value: "2"' in text
    sent = json.loads(UploadedFiles().place(NAME, package, backend, InstanceSplit(3, 1))["config"])
    assert [group["count"] for group in sent["instance_group"]] == [3]


def test_other_copies_change_the_configuration_alone(package: Path, repository: Path) -> None:
    shared = SharedRepository(repository)
    shared.place(NAME, package, "python", InstanceSplit(1, 1))
    files = {path: path.stat() for path in (repository / NAME / "1").iterdir()}
    assert shared.resize(NAME, package, "python", InstanceSplit(4, 1)) == {}
    assert "count: 4" in (repository / NAME / "config.pbtxt").read_text()
    assert {path: path.stat() for path in (repository / NAME / "1").iterdir()} == files
    assert {path.name for path in (repository / NAME).iterdir()} == {"1", "config.pbtxt"}
    uploaded = UploadedFiles()
    assert uploaded.resize(NAME, package, "python", InstanceSplit(4, 1)) == uploaded.place(
        NAME, package, "python", InstanceSplit(4, 1)
    )


@pytest.fixture
def pyfunc(package: Path) -> Path:
    """The package of a pyfunc, as far as its placement looks at it."""
    (package / MODEL_ONNX).unlink()
    (package / CONFIG_ONNXRUNTIME).unlink()
    (package / PYFUNC).write_bytes(b"archive")
    features = (
        Feature(name="age", kind=FeatureKind.INTEGER),
        Feature(name="city", kind=FeatureKind.CATEGORY, categories=("Oslo", "Rome")),
    )
    spec = PyfuncSpec(python="3.11", example=(1.0, 0.0), model_bytes=20, site_bytes=70)
    made = manifest().model_copy(update={"features": features, "pyfunc": spec})
    (package / MANIFEST).write_bytes(made.canonical())
    return package


def test_a_pyfunc_gets_what_runs_it_and_is_told_its_limits(pyfunc: Path, repository: Path) -> None:
    limits = PyfuncLimits(call_seconds=7.0, megabytes=1234, closed_off=False)
    SharedRepository(repository, limits).place(NAME, pyfunc, "python", InstanceSplit(1, 2))
    placed = {path.name: path.read_bytes() for path in (repository / NAME / "1").iterdir()}
    told = json.loads(placed["pyfunc.json"])
    assert told["categories"] == [None, ["Oslo", "Rome"]]
    assert (told["python"], told["example"], told["bytes"]) == ("3.11", [1.0, 0.0], 90)
    assert told["labels"] == list(manifest().labels)
    assert PyfuncLimits(**told["limits"]) == limits
    assert placed["pyfunc.zip"] == b"archive"
    assert placed["model.py"] == triton_file("pyfunc_model").read_bytes()
    sent = UploadedFiles(limits).place(NAME, pyfunc, "python", InstanceSplit(1, 2))
    assert {f"file:1/{name}": data for name, data in placed.items()} == {
        name: data for name, data in sent.items() if name != "config"
    }


def test_what_is_placed_for_a_pyfunc_needs_no_headrace(pyfunc: Path, repository: Path) -> None:
    SharedRepository(repository).place(NAME, pyfunc, "python", InstanceSplit(1, 1))
    folder = repository / NAME / "1"
    beside = {path.stem for path in folder.glob("*.py")}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                assert top in beside | sys.stdlib_module_names | NEEDED, f"{path.name}: {name}"


@pytest.fixture
def packed(package: Path) -> Path:
    """The package of a packed engine."""
    (package / MODEL_ONNX).unlink()
    (package / CONFIG_ONNXRUNTIME).unlink()
    text = triton_config.render_packed(task=Task.TEXT_EMBEDDING, width=3, type_ids=True, threads=1)
    (package / CONFIG_PYTHON).write_text(text)
    for name in (WEIGHTS, MODEL_CONFIG, "dense-1.safetensors", "tokenizer.json"):
        (package / name).write_bytes(name.encode())
    spec = PackedSpec(
        loader="AutoModel",
        type_ids=True,
        modes=("mean",),
        dense=(PackedDense(file="dense-1.safetensors", activation="Tanh"),),
        normalise=True,
    )
    changes = {"engine": EngineKind.PACKED, "packed": spec, "precision": Precision.FP16}
    made = manifest().model_copy(update={**changes, "task": Task.TEXT_EMBEDDING})
    (package / MANIFEST).write_bytes(made.canonical())
    return package


def test_a_packed_engine_gets_its_weights_its_scripts_and_what_it_is_told(
    packed: Path, repository: Path
) -> None:
    SharedRepository(repository).place(NAME, packed, "python", InstanceSplit(1, 4))
    folder = repository / NAME / "1"
    placed = {path.name: path.read_bytes() for path in folder.iterdir()}
    scripts = {path.name for path in triton_file("packed_model").parent.glob("*.py")}
    files = {WEIGHTS, MODEL_CONFIG, "dense-1.safetensors"}
    assert placed.keys() == {*files, *scripts, "python_model.py", "gpu_faults.py", "packed.json"}
    assert (folder / WEIGHTS).samefile(packed / WEIGHTS)
    assert json.loads(placed["packed.json"]) == {
        "loader": "AutoModel",
        "type_ids": True,
        "modes": ["mean"],
        "dense": [{"file": "dense-1.safetensors", "activation": "Tanh"}],
        "normalise": True,
        "task": "text-embedding",
        "output": "embedding",
        "rank": 2,
        "dtype": "fp16",
        "threads": 4,
    }
    sent = UploadedFiles().place(NAME, packed, "python", InstanceSplit(1, 4))
    assert {f"file:1/{name}": data for name, data in placed.items()} == {
        name: data for name, data in sent.items() if name != "config"
    }


def test_a_fused_graph_gets_what_fills_its_batches_up_and_is_told_its_shapes(
    package: Path, repository: Path
) -> None:
    fixed = FixedSpec(rows=(1, 8), fused={"Attention": 2})
    made = manifest().model_copy(update={"fixed": fixed, "precision": Precision.FP16})
    (package / MANIFEST).write_bytes(made.canonical())
    (package / DEVICE_PROOF).write_text("{}")
    SharedRepository(repository).place(NAME, package, "python", InstanceSplit(1, 4))
    placed = {path.name: path.read_bytes() for path in (repository / NAME / "1").iterdir()}
    scripts = {"model.py", "fixed_shapes.py", "python_model.py", "gpu_faults.py"}
    assert placed.keys() == {MODEL_ONNX, "shapes.json", *scripts}
    assert placed["model.py"] == triton_file("fixed_model").read_bytes()
    assert json.loads(placed["shapes.json"]) == {
        "shapes": [[1, 4], [8, 4], [1, 8], [8, 8]],
        "fill": {"input_ids": 0, "attention_mask": 0},
        "output": "logits",
        "rank": 2,
        "width": 2,
    }
    sent = UploadedFiles().place(NAME, package, "python", InstanceSplit(1, 4))
    assert {f"file:1/{name}": data for name, data in placed.items()} == {
        name: data for name, data in sent.items() if name != "config"
    }


def test_other_threads_reach_a_packed_engine(packed: Path, repository: Path) -> None:
    shared = SharedRepository(repository)
    shared.place(NAME, packed, "python", InstanceSplit(1, 4))
    shared.resize(NAME, packed, "python", InstanceSplit(1, 2))
    told = json.loads((repository / NAME / "1" / "packed.json").read_text())
    assert told["threads"] == 2


@pytest.mark.parametrize(
    ("device", "kind"),
    [(None, "KIND_AUTO"), (DeviceKind.CPU, "KIND_CPU"), (DeviceKind.GPU, "KIND_GPU")],
)
def test_a_model_is_placed_on_the_device_that_is_asked_for(
    package: Path, repository: Path, device: DeviceKind | None, kind: str
) -> None:
    shared, uploaded = SharedRepository(repository), UploadedFiles()
    for place in (shared.place, shared.resize):
        place(NAME, package, "python", InstanceSplit(1, 1), device)
        config = (repository / NAME / "config.pbtxt").read_text()
        assert (kind in config) or (device is None and "KIND" not in config)
    for send in (uploaded.place, uploaded.resize):
        config = str(send(NAME, package, "python", InstanceSplit(1, 1), device)["config"])
        assert (kind in config) or (device is None and "KIND" not in config)


@pytest.mark.parametrize("kind", [SharedRepository, UploadedFiles])
def test_the_probe_of_devices_is_placed_like_a_model(
    kind: type[Placement], repository: Path
) -> None:
    placement = SharedRepository(repository) if kind is SharedRepository else UploadedFiles()
    sent = placement.place_probe("probe")
    script = triton_file("device_probe").read_bytes()
    if kind is SharedRepository:
        assert sent == {}
        assert (repository / "probe" / "1" / "model.py").read_bytes() == script
        assert "KIND_CPU" in (repository / "probe" / "config.pbtxt").read_text()
    else:
        assert sent["file:1/model.py"] == script
        assert "KIND_CPU" in str(sent["config"])


def test_whatever_runs_python_of_ours_has_the_table_of_gpu_faults_beside_it(
    package: Path, pyfunc: Path
) -> None:
    uploaded = UploadedFiles()
    sent = [
        uploaded.place_witness("w", "python", None),
        uploaded.place(NAME, package, "python", InstanceSplit(1, 1)),
    ]
    sent.append(uploaded.place(NAME, pyfunc, "python", InstanceSplit(1, 1)))
    table = Path(gpu_faults.__file__).read_bytes()
    assert [overrides["file:1/gpu_faults.py"] for overrides in sent] == [table] * 3
    assert "file:1/gpu_faults.py" not in uploaded.place_witness("w", "onnxruntime", None)


def test_placing_again_replaces_everything(package: Path, repository: Path) -> None:
    shared = SharedRepository(repository)
    shared.place(NAME, package, "python", InstanceSplit(1, 1))
    (repository / f".{NAME}").mkdir()  # as one that was killed leaves it
    shared.place(NAME, package, "onnxruntime", InstanceSplit(1, 1))
    assert not (repository / NAME / "1" / "model.py").exists()
    assert [item.name for item in repository.iterdir()] == [NAME]


@pytest.mark.parametrize("kind", [SharedRepository, UploadedFiles])
def test_removing_twice_is_no_error(kind: type[Placement], repository: Path, package: Path) -> None:
    placement = SharedRepository(repository) if kind is SharedRepository else UploadedFiles()
    placement.place(NAME, package, "python", InstanceSplit(1, 1))
    placement.remove(NAME)
    placement.remove(NAME)
    assert not (repository / NAME).exists()


def test_an_upload_carries_the_configuration_as_json_and_every_file(package: Path) -> None:
    overrides = UploadedFiles().place(NAME, package, "python", InstanceSplit(1, 1))
    assert json.loads(overrides["config"])["backend"] == "python"
    assert overrides["file:1/model.onnx"] == b"graph"
    assert overrides["file:1/model.py"] == triton_file("python_model").read_bytes()
    assert "file:1/model.py" not in UploadedFiles().place(
        NAME, package, "onnxruntime", InstanceSplit(1, 1)
    )


def test_the_folder_of_the_python_model_is_no_importable_package() -> None:
    folder = triton_file("python_model").parents[1]
    assert "class TritonPythonModel" in triton_file("python_model").read_text(encoding="utf-8")
    assert not list(folder.rglob("__init__.py"))
    spec = importlib.util.find_spec("triton")
    assert spec is None or str(folder) not in list(spec.submodule_search_locations or ())

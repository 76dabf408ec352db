"""What Triton runs for a pyfunc: two copies, in this process and without Triton."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_pyfunc_worker import WORKER
from registry_fakes import manifest

from contracts.features import Feature, FeatureKind
from contracts.manifest import CONFIG_PYTHON, MANIFEST, PYFUNC, PyfuncSpec
from registry.loading.placement import SharedRepository
from registry.loading.splits import InstanceSplit
from registry.loading.triton_client import PROBE
from registry.pyfunc import archive
from registry.pyfunc.process import PyfuncLimits

LIMITS = PyfuncLimits(call_seconds=60.0, start_seconds=60.0, first_pause_seconds=60.0)
SITE_BYTES = 9
OURS = ("model", "python_model", "pyfunc_archive", "pyfunc_process", "triton_python_backend_utils")


@dataclass
class Request:
    rows: np.ndarray
    id: str = ""

    def request_id(self) -> str:
        return self.id


@dataclass
class Response:
    outputs: list[Any] = field(default_factory=list)
    error: str = ""


class Heartbeat:
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def check(self) -> None: ...


def backend() -> dict[str, ModuleType]:
    """What Triton and the other model's file have for it."""
    utils, beside = ModuleType("triton_python_backend_utils"), ModuleType("python_model")
    utils.__dict__.update(
        get_input_tensor_by_name=lambda request, _: request.rows,
        InferenceResponse=Response,
        TritonError=str,
    )
    beside.__dict__.update(THREADS="threads", Heartbeat=Heartbeat, output=lambda _, array: array)
    return {utils.__name__: utils, beside.__name__: beside}


def placed(folder: Path, *, told_bytes: int = SITE_BYTES) -> Path:
    """Triton's repository with a pyfunc whose worker is a fake one."""
    package, site = folder / "package", folder / "site"
    for made in (package, site):
        made.mkdir()
    (site / "module").write_bytes(b"x" * SITE_BYTES)
    archive.pack({archive.SITE: site}, package / PYFUNC)
    spec = PyfuncSpec(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        example=(1.0, 0.0),
        model_bytes=0,
        site_bytes=told_bytes,
    )
    features = tuple(Feature(name=name, kind=FeatureKind.NUMBER) for name in ("a", "b"))
    update = {"features": features, "pyfunc": spec, "labels": ()}
    (package / MANIFEST).write_bytes(manifest().model_copy(update=update).canonical())
    (package / CONFIG_PYTHON).write_text("name: 'm'\n", encoding="utf-8")
    SharedRepository(folder / "repository", LIMITS).place(
        "m", package, "python", InstanceSplit(2, 1)
    )
    (folder / "repository" / "m" / "1" / "pyfunc_worker.py").write_text(WORKER, encoding="utf-8")
    return folder / "repository" / "m"


Made = Callable[[Path], Any]


@pytest.fixture
def copy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Makes and opens a copy of a model that was placed."""
    made = []
    for name, module in backend().items():
        monkeypatch.setitem(sys.modules, name, module)

    def one(folder: Path) -> Any:
        monkeypatch.syspath_prepend(str(folder / "1"))
        model: Any = importlib.import_module("model")
        instance = model.TritonPythonModel()
        config = {"input": [{"name": "in"}], "output": [{"name": "out", "dims": [2]}]}
        instance.initialize(
            {
                "model_config": json.dumps(config),
                "model_repository": str(folder),
                "model_version": "1",
            }
        )
        made.append(instance)
        return instance

    yield one
    for instance in made:
        instance.finalize()
    for name in OURS:
        sys.modules.pop(name, None)


def ask(instance: Any, first: float, request_id: str = "") -> Any:
    (answer,) = instance.execute([Request(np.array([[first, 2.0]]), request_id)])
    return SimpleNamespace(values=answer.outputs[0].tolist() if answer.outputs else None,
                           error=answer.error)  # fmt: skip


def test_why_a_process_ended_is_told_to_the_probe_by_every_copy_and_to_nobody_else(
    tmp_path: Path, copy: Made
) -> None:
    folder = placed(tmp_path)
    one, other = copy(folder), copy(folder)
    assert ask(one, 1.0).values == [[1.0, 2.0]]
    assert ask(one, 1.0, PROBE).values == [[1.0, 2.0]]
    raised = ask(one, -3.0)
    assert raised.error == "engine: The version's code failed: ValueError: no."
    assert ask(other, 1.0, PROBE).error == ""  # what is raised ends no process
    ended = ask(one, -2.0)
    assert "ended with status 7" in ended.error
    told = ask(other, 1.0, PROBE)
    assert told.error == ended.error
    assert ask(other, 1.0).values == [[1.0, 2.0]]


def test_what_ended_long_ago_is_told_no_more(tmp_path: Path, copy: Made) -> None:
    folder = placed(tmp_path)
    one, other = copy(folder), copy(folder)
    ask(one, -2.0)
    note = folder / "1" / "pyfunc.ended"
    found = json.loads(note.read_text(encoding="utf-8"))
    note.write_text(json.dumps({**found, "at": found["at"] - 601}), encoding="utf-8")
    assert ask(other, 1.0, PROBE).error == ""
    note.write_text("no note", encoding="utf-8")
    assert ask(other, 1.0, PROBE).error == ""


def test_an_archive_of_more_than_its_manifest_says_is_not_unpacked(
    tmp_path: Path, copy: Made
) -> None:
    folder = placed(tmp_path, told_bytes=SITE_BYTES - 1)
    with pytest.raises(Exception, match="its package tells of 8"):
        copy(folder)
    assert not (folder / "1" / "pyfunc").exists()

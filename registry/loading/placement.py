"""Brings a package's files to where Triton loads them from.

Two ways: a folder that this process and Triton share, or the files inside the load call itself, for
a Triton elsewhere. It never talks to Triton, and never changes the package.
"""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Protocol

from contracts.manifest import (
    CONFIG_ONNXRUNTIME,
    CONFIG_PYTHON,
    ENCODER_ONNX,
    MANIFEST,
    MODEL_ONNX,
    PYFUNC,
    Manifest,
)
from preprocess.model_code import sandbox
from registry.loading.splits import Split
from registry.loading.triton_client import Overrides
from registry.packages import token_rules, triton_config
from registry.pyfunc import archive, process, worker
from registry.pyfunc.process import Limits

_CONFIGS = {
    triton_config.BACKEND_PYTHON: CONFIG_PYTHON,
    triton_config.BACKEND_ONNXRUNTIME: CONFIG_ONNXRUNTIME,
}
_CONFIG = "config.pbtxt"
_PYFUNC_SPEC = "pyfunc.json"  # beside the archive, see ``triton/pyfunc_model``
_HERE = Path(__file__).resolve().parent
_USUAL = Limits()
# What Triton's model of a pyfunc imports and starts, under names that begin with ``pyfunc_``.
_SOURCES = {
    "archive": Path(archive.__file__),
    "process": Path(process.__file__),
    "worker": Path(worker.__file__),
    "sandbox": Path(sandbox.__file__),
}


class Placement(Protocol):
    """A way to bring models to one Triton."""

    def place(self, name: str, package: Path, backend: str, split: Split) -> Overrides:
        """Brings the files; returns what the load call must carry.

        Args:
            name: Triton's name of the model.
            package: folder of a verified package.
            backend: ``python`` or ``onnxruntime``.
            split: how many copies run at once, and by how many threads.

        Raises:
            OSError: no space, no right to write.
        """
        ...

    def resize(self, name: str, package: Path, backend: str, split: Split) -> Overrides:
        """Changes only how many copies of a placed model run, and by how many threads.

        The arguments, what is returned and what is raised are those of ``place``. Triton answers
        meanwhile, by the copies that it has.
        """
        ...

    def remove(self, name: str) -> None:
        """Removes what ``place`` left; nothing there is no error."""
        ...


class SharedRepository:
    """A model repository folder that Triton reads too.

    Layout: ``<folder>/<name>/{config.pbtxt,1/model.onnx,1/model.py}``, moved into place whole.

    Args:
        folder: the repository.
        pyfunc: what the Python of a version may take.
    """

    def __init__(self, folder: Path, pyfunc: Limits = _USUAL) -> None:
        self._folder = folder
        self._pyfunc = pyfunc

    def place(self, name: str, package: Path, backend: str, split: Split) -> Overrides:
        """Lays the model out; the load call carries nothing."""
        aside = self._folder / f".{name}"
        shutil.rmtree(aside, ignore_errors=True)
        version = aside / triton_config.VERSION_FOLDER
        version.mkdir(parents=True)
        (aside / _CONFIG).write_text(_config(package, backend, split), encoding="utf-8")
        for graph in _graphs(package):
            _link(graph, version / graph.name)
        for file, source in _scripts(package, backend).items():
            shutil.copyfile(source, version / file)
        for file, text in _told(package, self._pyfunc).items():
            (version / file).write_text(text, encoding="utf-8")
        self.remove(name)
        aside.rename(self._folder / name)
        return {}

    def resize(self, name: str, package: Path, backend: str, split: Split) -> Overrides:
        """Replaces the configuration alone: files that stay need not be read again."""
        aside = self._folder / name / f".{_CONFIG}"
        aside.write_text(_config(package, backend, split), encoding="utf-8")
        aside.replace(self._folder / name / _CONFIG)
        return {}

    def remove(self, name: str) -> None:
        """Removes the model's folder."""
        shutil.rmtree(self._folder / name, ignore_errors=True)


class UploadedFiles:
    """A Triton with no folder in common: the load call carries the configuration and the files."""

    def __init__(self, pyfunc: Limits = _USUAL) -> None:
        self._pyfunc = pyfunc

    def place(self, name: str, package: Path, backend: str, split: Split) -> Overrides:
        """Reads the files into the load call's parameters."""
        del name
        config = _config(package, backend, split)
        folder = f"file:{triton_config.VERSION_FOLDER}"
        overrides: dict[str, str | bytes] = {
            "config": triton_config.as_json(config),
            **{f"{folder}/{graph.name}": graph.read_bytes() for graph in _graphs(package)},
        }
        for file, source in _scripts(package, backend).items():
            overrides[f"{folder}/{file}"] = source.read_bytes()
        for file, text in _told(package, self._pyfunc).items():
            overrides[f"{folder}/{file}"] = text.encode()
        return overrides

    def resize(self, name: str, package: Path, backend: str, split: Split) -> Overrides:
        """The same as ``place``: Triton compares what it is sent with what it has."""
        return self.place(name, package, backend, split)

    def remove(self, name: str) -> None:
        """Nothing was left: Triton removes what it was sent."""


def python_model(name: str = "python_model") -> Path:
    """``model.py`` of a Python-backend model; the usual one runs ONNX Runtime on batches.

    It is data of the folder ``triton/``, which the wheel ships beside this module.
    """
    for folder in (_HERE / "triton_files", _HERE.parents[1] / "triton"):
        path = folder / name / "model.py"
        if path.is_file():
            return path
    raise FileNotFoundError("Triton's model.py is missing here; install headrace again")


def _scripts(package: Path, backend: str) -> dict[str, Path]:
    """What the Python backend runs, by the names that it has beside the graph."""
    if backend != triton_config.BACKEND_PYTHON:
        return {}
    batches = python_model()
    if (package / PYFUNC).is_file():
        return {
            triton_config.MODEL_PY: python_model("pyfunc_model"),
            "python_model.py": batches,
            **{f"pyfunc_{each}.py": _SOURCES[each] for each in _SOURCES},
        }
    if not triton_config.generates((package / CONFIG_PYTHON).read_text(encoding="utf-8")):
        return {triton_config.MODEL_PY: batches}
    generating = python_model("generation_model")
    rules = Path(token_rules.__file__)
    return {
        triton_config.MODEL_PY: generating,
        "python_model.py": batches,
        "token_rules.py": rules,
    }


def _told(package: Path, limits: Limits) -> dict[str, str]:
    """What a pyfunc is told beside its archive; nothing of other models."""
    if not (package / PYFUNC).is_file():
        return {}
    manifest = Manifest.model_validate_json((package / MANIFEST).read_bytes())
    spec = manifest.pyfunc
    if spec is None:
        raise ValueError(f"{PYFUNC} is there, and the manifest does not say what it is")
    return {
        _PYFUNC_SPEC: json.dumps(
            {
                "python": spec.python,
                "example": spec.example,
                "bytes": spec.unpacked_bytes,
                "labels": manifest.labels,
                "categories": [feature.categories or None for feature in manifest.features],
                "limits": dataclasses.asdict(limits),
            }
        )
    }


def _graphs(package: Path) -> list[Path]:
    """The graph, and of an encoder-decoder the encoder's; of a pyfunc its archive."""
    if (package / PYFUNC).is_file():
        return [package / PYFUNC]
    encoder = package / ENCODER_ONNX
    return [package / MODEL_ONNX, *([encoder] if encoder.is_file() else [])]


def _config(package: Path, backend: str, split: Split) -> str:
    text = (package / _CONFIGS[backend]).read_text(encoding="utf-8")
    return triton_config.with_split(text, copies=split.copies, threads=split.threads)


def _link(source: Path, target: Path) -> None:
    """A hard link, which costs no disk; a copy where the folders are on different disks."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

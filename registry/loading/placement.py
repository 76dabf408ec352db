"""Brings a package's files to where Triton loads them from.

Two ways: a folder that this process and Triton share, or the files inside the load call itself, for
a Triton elsewhere. It never talks to Triton, and never changes the package.
"""

import dataclasses
import json
import os
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from contracts import gpu_faults
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
    Manifest,
)
from preprocess.model_code import sandbox
from registry.loading.splits import InstanceSplit
from registry.loading.triton_client import Overrides
from registry.packages import token_rules, triton_config
from registry.packages.triton_files import triton_file
from registry.pyfunc import archive, process, worker
from registry.pyfunc.process import PyfuncLimits

_CONFIGS = {
    triton_config.BACKEND_PYTHON: CONFIG_PYTHON,
    triton_config.BACKEND_ONNXRUNTIME: CONFIG_ONNXRUNTIME,
}
_CONFIG = "config.pbtxt"
_PYFUNC_SPEC = "pyfunc.json"  # beside the archive, see ``triton/pyfunc_model``
_PACKED_SPEC = "packed.json"  # beside the weights, see ``triton/packed_model``
_SHAPES = "shapes.json"  # beside a graph for GPUs, see ``triton/fixed_model``
_USUAL = PyfuncLimits()
_GPU_FAULTS = {"gpu_faults.py": Path(gpu_faults.__file__)}  # beside every model of our own
# What Triton's model of a pyfunc imports and starts, under names that begin with ``pyfunc_``.
_SOURCES = {
    "archive": Path(archive.__file__),
    "process": Path(process.__file__),
    "worker": Path(worker.__file__),
    "sandbox": Path(sandbox.__file__),
}


@dataclass(frozen=True, slots=True)
class _Layout:
    """A model's configuration, and the files of its version: where they lie, or what they hold.

    ``linked`` are large, and stay as they are.
    """

    config: str
    linked: tuple[Path, ...] = ()
    copied: dict[str, Path] = dataclasses.field(default_factory=dict)
    written: dict[str, str] = dataclasses.field(default_factory=dict)


class Placement(ABC):
    """A way to bring models to one Triton."""

    def __init__(self, pyfunc: PyfuncLimits = _USUAL) -> None:
        self._pyfunc = pyfunc

    def place(
        self,
        name: str,
        package: Path,
        backend: str,
        split: InstanceSplit,
        device: DeviceKind | None = None,
    ) -> Overrides:
        """Brings the files; returns what the load call must carry.

        Args:
            name: Triton's name of the model.
            package: folder of a verified package.
            backend: ``python`` or ``onnxruntime``.
            split: how many copies run at once, and by how many threads.
            device: where they run; None: on each GPU if Triton sees one, else on the CPU.

        Raises:
            OSError: no space, no right to write.
        """
        return self._lay(name, _layout(package, backend, split, device, self._pyfunc))

    def resize(
        self,
        name: str,
        package: Path,
        backend: str,
        split: InstanceSplit,
        device: DeviceKind | None = None,
    ) -> Overrides:
        """Changes only how many copies of a placed model run, and by how many threads.

        The arguments, what is returned and what is raised are those of ``place``. Triton answers
        meanwhile, by the copies that it has.
        """
        return self._change(name, _layout(package, backend, split, device, self._pyfunc))

    def place_probe(self, name: str) -> Overrides:
        """Brings the model that says what Triton's machine computes with (``devices``).

        Raises:
            OSError: as ``place``.
        """
        return self._lay(name, _probe())

    def place_witness(self, name: str, backend: str, device: DeviceKind | None) -> Overrides:
        """Brings the tiny graph that every Triton should load (``witness``).

        Raises:
            OSError: as ``place``.
        """
        return self._lay(name, _witness(backend, device))

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes what ``place`` left; nothing there is no error."""

    @abstractmethod
    def _lay(self, name: str, layout: _Layout) -> Overrides:
        """Brings a whole model."""

    @abstractmethod
    def _change(self, name: str, layout: _Layout) -> Overrides:
        """Brings what may differ from the model that is there: configuration and settings."""


class SharedRepository(Placement):
    """A model repository folder that Triton reads too; a load call carries nothing.

    Layout: ``<folder>/<name>/{config.pbtxt,1/model.onnx,1/model.py}``, moved into place whole.
    """

    def __init__(self, folder: Path, pyfunc: PyfuncLimits = _USUAL) -> None:
        super().__init__(pyfunc)
        self._folder = folder

    def remove(self, name: str) -> None:
        """Removes the model's folder."""
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def _lay(self, name: str, layout: _Layout) -> Overrides:
        aside = self._folder / f".{name}"
        shutil.rmtree(aside, ignore_errors=True)
        version = aside / triton_config.VERSION_FOLDER
        version.mkdir(parents=True)
        (aside / _CONFIG).write_text(layout.config, encoding="utf-8")
        for file in layout.linked:
            _link(file, version / file.name)
        for name_of_copy, source in layout.copied.items():
            shutil.copyfile(source, version / name_of_copy)
        for file_name, text in layout.written.items():
            (version / file_name).write_text(text, encoding="utf-8")
        self.remove(name)
        aside.rename(self._folder / name)
        return {}

    def _change(self, name: str, layout: _Layout) -> Overrides:
        model = self._folder / name
        texts = {
            f"{triton_config.VERSION_FOLDER}/{file}": text for file, text in layout.written.items()
        }
        for file, text in {**texts, _CONFIG: layout.config}.items():
            aside = (model / file).with_name(f".{Path(file).name}")
            aside.write_text(text, encoding="utf-8")
            aside.replace(model / file)
        return {}


class UploadedFiles(Placement):
    """A Triton with no folder in common: the load call carries the configuration and the files."""

    def remove(self, name: str) -> None:
        """Nothing was left: Triton removes what it was sent."""

    def _lay(self, name: str, layout: _Layout) -> Overrides:
        del name
        folder = f"file:{triton_config.VERSION_FOLDER}"
        return {
            "config": triton_config.as_json(layout.config),
            **{f"{folder}/{file.name}": file.read_bytes() for file in layout.linked},
            **{f"{folder}/{file}": source.read_bytes() for file, source in layout.copied.items()},
            **{f"{folder}/{file}": text.encode() for file, text in layout.written.items()},
        }

    def _change(self, name: str, layout: _Layout) -> Overrides:
        # Triton compares what it is sent with what it has.
        return self._lay(name, layout)


def _layout(
    package: Path,
    backend: str,
    split: InstanceSplit,
    device: DeviceKind | None,
    limits: PyfuncLimits,
) -> _Layout:
    return _Layout(
        config=_config(package, backend, split, device),
        linked=_graphs(package),
        copied=_scripts(package, backend),
        written=_settings(package, limits, split),
    )


def _probe() -> _Layout:
    return _Layout(
        config=triton_config.render_probe(),
        copied={triton_config.MODEL_PY: triton_file("device_probe")},
    )


def _witness(backend: str, device: DeviceKind | None) -> _Layout:
    python = backend == triton_config.BACKEND_PYTHON
    text = triton_config.render_witness()[0 if python else 1]
    return _Layout(
        config=triton_config.with_split(text, copies=1, threads=1, device=device),
        linked=(triton_file("witness", MODEL_ONNX),),
        copied={triton_config.MODEL_PY: triton_file("python_model"), **_GPU_FAULTS}
        if python
        else {},
    )


def _scripts(package: Path, backend: str) -> dict[str, Path]:
    """What the Python backend runs, by the names that it has beside the graph."""
    if backend != triton_config.BACKEND_PYTHON:
        return {}
    batches = triton_file("python_model")
    shared = {"python_model.py": batches, **_GPU_FAULTS}
    if (package / WEIGHTS).is_file():
        beside = triton_file("packed_model").parent.glob("*.py")
        return {**shared, **{file.name: file for file in beside}}
    if (package / PYFUNC).is_file():
        return {
            **shared,
            triton_config.MODEL_PY: triton_file("pyfunc_model"),
            **{f"pyfunc_{each}.py": _SOURCES[each] for each in _SOURCES},
        }
    if _read_fixed(package) is not None:
        beside = triton_file("fixed_model").parent.glob("*.py")
        return {**shared, **{file.name: file for file in beside}}
    if not triton_config.generates((package / CONFIG_PYTHON).read_text(encoding="utf-8")):
        return {triton_config.MODEL_PY: batches, **_GPU_FAULTS}
    return {
        **shared,
        triton_config.MODEL_PY: triton_file("generation_model"),
        "token_rules.py": Path(token_rules.__file__),
    }


def _settings(package: Path, limits: PyfuncLimits, split: InstanceSplit) -> dict[str, str]:
    """What an engine is told beside its files; nothing of most graphs."""
    if (package / WEIGHTS).is_file():
        return {_PACKED_SPEC: _packed_spec(_manifest(package), split)}
    if (fixed := _read_fixed(package)) is not None:
        return {_SHAPES: json.dumps(triton_config.fixed_settings(fixed))}
    if not (package / PYFUNC).is_file():
        return {}
    manifest = _manifest(package)
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


def _packed_spec(manifest: Manifest, split: InstanceSplit) -> str:
    if manifest.packed is None:
        raise ValueError(f"{WEIGHTS} is there, and the manifest does not say what loads it")
    return json.dumps(
        triton_config.packed_settings(
            manifest.packed,
            task=manifest.task,
            precision=manifest.precision,
            threads=split.threads,
        )
    )


def _read_fixed(package: Path) -> Manifest | None:
    """The manifest of a graph that runs in fixed shapes; None of other packages."""
    if not (package / DEVICE_PROOF).is_file() or (package / WEIGHTS).is_file():
        return None
    manifest = _manifest(package)
    return manifest if manifest.fixed is not None else None


def _manifest(package: Path) -> Manifest:
    return Manifest.model_validate_json((package / MANIFEST).read_bytes())


def _graphs(package: Path) -> tuple[Path, ...]:
    """The graph, and of an encoder-decoder the encoder's; of a pyfunc its archive.

    Of a packed engine its weights, what transformers reads with them, and its dense layers.
    """
    if (package / WEIGHTS).is_file():
        spec = _manifest(package).packed
        dense = () if spec is None else tuple(layer.file for layer in spec.dense)
        return tuple(package / name for name in (WEIGHTS, MODEL_CONFIG, *dense))
    if (package / PYFUNC).is_file():
        return (package / PYFUNC,)
    encoder = package / ENCODER_ONNX
    return (package / MODEL_ONNX, *((encoder,) if encoder.is_file() else ()))


def _config(package: Path, backend: str, split: InstanceSplit, device: DeviceKind | None) -> str:
    text = (package / _CONFIGS[backend]).read_text(encoding="utf-8")
    return triton_config.with_split(text, copies=split.copies, threads=split.threads, device=device)


def _link(source: Path, target: Path) -> None:
    """A hard link, which costs no disk; a copy if the folders are on different disks."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

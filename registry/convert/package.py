"""Builds a package: lays its files out in a folder and writes the manifest that proves them.

It never looks into a graph and never reaches a store.
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from contracts.manifest import (
    CODE,
    CONFIG_ONNXRUNTIME,
    CONFIG_PYTHON,
    DEVICE_PROOF,
    ENCODER_ONNX,
    MODEL_CONFIG,
    MODEL_ONNX,
    PYFUNC,
    TOKENIZER,
    WEIGHTS,
    GenerationSpec,
    PackageFile,
)
from contracts.tensors import TensorSpec
from registry.packages.store import digest
from registry.packages.triton_config import render, render_generation

# What a package runs; it has one of them.
_RUN = (PYFUNC, WEIGHTS, MODEL_ONNX)
_FURTHER = frozenset(
    {TOKENIZER, CONFIG_ONNXRUNTIME, ENCODER_ONNX, CODE, MODEL_CONFIG, DEVICE_PROOF}
)
_DENSE = "dense-*.safetensors"  # of a packed engine: layers after pooling


def created_by() -> str:
    """Program and version, for the manifest."""
    try:
        return f"headrace {version('headrace')}"
    except PackageNotFoundError:
        return "headrace"


def write_configs(
    folder: Path,
    *,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    max_batch_size: int,
    threads: int,
    native: bool = True,
) -> None:
    """Writes Triton's configuration for both backends, or only for the Python backend."""
    python, of_native = render(
        inputs=inputs,
        outputs=outputs,
        max_batch_size=max_batch_size,
        threads=threads,
    )
    (folder / CONFIG_PYTHON).write_text(python, encoding="utf-8")
    if native:
        (folder / CONFIG_ONNXRUNTIME).write_text(of_native, encoding="utf-8")


def write_generation_config(
    folder: Path, *, context: int, rows: int, threads: int, generation: GenerationSpec
) -> None:
    """Writes Triton's configuration of a model that generates: for the Python backend only."""
    made = render_generation(context=context, rows=rows, threads=threads, generation=generation)
    (folder / CONFIG_PYTHON).write_text(made, encoding="utf-8")


def proofs(folder: Path) -> dict[str, PackageFile]:
    """Digest and size of each of the package's files; raises ``FileNotFoundError``.

    A model of tables has no tokeniser, one that writes no configuration of the native backend, and
    few versions bring code or have an encoder beside the decoder. A pyfunc has no graph, nor has a
    packed engine, which has weights instead.
    """
    run = next((name for name in _RUN if (folder / name).exists()), MODEL_ONNX)
    names = {name for name in _FURTHER if (folder / name).exists()}
    if run == WEIGHTS:
        names |= {MODEL_CONFIG, DEVICE_PROOF, *(path.name for path in folder.glob(_DENSE))}
    return {
        name: PackageFile(sha256=digest(folder / name), bytes=(folder / name).stat().st_size)
        for name in sorted({run, CONFIG_PYTHON, *names})
    }

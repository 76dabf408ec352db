"""Finds the files of the folder ``triton/``, in a checkout and in an installed wheel alike.

The folder holds data only and is never imported; the wheel ships it beside this module as
``triton_files/`` (see pyproject.toml).
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def python_model() -> Path:
    """``model.py`` of the Python-backend model that runs ONNX Runtime."""
    return _find("python_model/model.py")


def simulated_accelerator() -> Path:
    """``model.py`` of the model that sleeps as long as an accelerator might compute."""
    return _find("simulated_accelerator/model.py")


def _find(name: str) -> Path:
    for folder in (_HERE / "triton_files", _HERE.parent / "triton"):
        path = folder / name
        if path.is_file():
            return path
    raise FileNotFoundError(f"{name} is missing from this installation; install headrace again")

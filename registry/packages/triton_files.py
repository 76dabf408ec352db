"""Where the programs are that Triton's Python backend runs: data of the folder ``triton/``.

In a checkout it is beside ``registry/``; the wheel ships it inside of ``registry/loading``.
"""

from pathlib import Path

_REGISTRY = Path(__file__).resolve().parents[1]
_FOLDERS = (_REGISTRY / "loading" / "triton_files", _REGISTRY.parent / "triton")


def triton_file(model: str, name: str = "model.py") -> Path:
    """A file of one of Triton's models; raises ``FileNotFoundError``."""
    for folder in _FOLDERS:
        path = folder / model / name
        if path.is_file():
            return path
    raise FileNotFoundError(f"Triton's {model}/{name} is missing here; install headrace again")

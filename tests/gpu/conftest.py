"""Tests that need a GPU: ``make test-gpu``. They skip where there is none, and say why.

The packed engine is imported as Triton's Python backend imports it.
"""

from pathlib import Path
from types import ModuleType

import pytest


def no_gpu() -> str:
    """Why there is no GPU for tests; empty if there is."""
    try:
        import torch
    except ImportError as error:
        return f"torch is not here ({error})"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU"
    return ""


@pytest.fixture(scope="session", autouse=True)
def _gpu() -> None:
    if why := no_gpu():
        pytest.skip(f"no GPU: {why}")


@pytest.fixture(scope="session")
def engines(_gpu: None) -> ModuleType:
    """``packed_engine``."""
    from packed_files import packed

    return packed("packed_engine")


@pytest.fixture(scope="session")
def devices(engines: ModuleType) -> ModuleType:
    """``packed_device``, of the same ``packed_engine``."""
    from packed_files import packed

    return packed("packed_device", packed_engine=engines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a model."""
    return tmp_path / "model"

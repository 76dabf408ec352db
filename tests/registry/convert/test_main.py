"""The process where it can't convert, and that it is quick to start.

``tests/real/test_convert_registered.py`` has what it converts.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_mlflow import FakeMlflow
from tiny_models import write_onnx_version

from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    ConversionRequest,
    PublishedPackage,
    progress_of,
    result_of,
)

pytestmark = pytest.mark.real  # starts processes

PROGRAM = [sys.executable, "-P", "-m", "registry.convert"]


def run(
    fake: FakeMlflow, tmp_path: Path, **changes: object
) -> tuple[list[ConversionProgress | None], PublishedPackage | ConversionFailure | None]:
    work = tmp_path / "work"
    work.mkdir()
    request = ConversionRequest.model_validate(
        {
            "tracking_uri": fake.uri,
            "model": "tiny",
            "version": "1",
            "store_url": (tmp_path / "store").as_uri(),
            "serving": {},
            "work_dir": str(work),
            **changes,
        }
    )
    path = tmp_path / "request.json"
    path.write_text(request.model_dump_json())
    result = tmp_path / "result.json"
    done = subprocess.run(
        [*PROGRAM, str(path), str(result)], capture_output=True, text=True, check=True, timeout=180
    )
    for line in done.stderr.splitlines():
        json.loads(line)
    return [progress_of(line) for line in done.stdout.splitlines()], result_of(result.read_bytes())


def test_a_registry_that_is_away_is_not_the_versions_fault(
    fake: FakeMlflow, tmp_path: Path
) -> None:
    _, last = run(fake, tmp_path, tracking_uri="http://127.0.0.1:1")
    assert isinstance(last, ConversionFailure)
    assert not last.by_version


def test_a_store_that_is_away_is_not_the_versions_fault(fake: FakeMlflow, tmp_path: Path) -> None:
    write_onnx_version(fake.root / "v")
    fake.register("tiny", "mlflow-artifacts:/v")
    (tmp_path / "file").write_bytes(b"")
    steps, last = run(fake, tmp_path, store_url=(tmp_path / "file" / "store").as_uri())
    assert steps
    assert all(isinstance(step, ConversionProgress) for step in steps)
    assert isinstance(last, ConversionFailure)
    assert not last.by_version
    assert "package store" in last.reason


def test_without_a_request_it_says_how_it_is_used() -> None:
    done = subprocess.run(PROGRAM, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_neither_mlflow_nor_torch_is_imported_for_an_onnx_version() -> None:
    """Importing MLflow's client alone takes longer than all the rest."""
    code = (
        "import sys, registry.convert.walk;"
        "print([m for m in ('mlflow', 'torch', 'pandas', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=180
    )
    assert done.stdout.strip() == "[]"

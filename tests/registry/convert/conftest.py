"""Fixtures of the conversion's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_mlflow import FakeMlflow, serve


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeMlflow]:
    (tmp_path / "artifacts").mkdir()
    with serve(FakeMlflow(tmp_path / "artifacts")) as server:
        yield server

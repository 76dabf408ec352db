"""One local stack with the example model, shared by the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_stack import PATIENT, RunningStack, running_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with running_stack(tmp_path_factory.mktemp("stack") / "home") as running:
        running.apply(PATIENT)
        yield running


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Real texts of many lengths."""
    replay = Path(__file__).parents[2] / "examples" / "sentiment" / "texts" / "replay.txt"
    return replay.read_text(encoding="utf-8").splitlines()

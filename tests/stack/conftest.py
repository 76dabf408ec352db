"""Two local stacks with the example model, shared by the tests of this folder.

Each has two gateways and two Tritons: whole classes of mistakes need two.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rolling_stack import spec
from running_stack import EXAMPLE_ENDPOINT, PATIENT, RunningStack, running_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    home = tmp_path_factory.mktemp("stack") / "home"
    with running_stack(home, gateways=2, tritons=2) as running:
        running.apply(PATIENT)
        running.until_all_serve()
        yield running


@pytest.fixture(scope="session")
def rolling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """For rollouts: its windows last a second, so that these are over soon."""
    home = tmp_path_factory.mktemp("rolling") / "home"
    with running_stack(home, "--window-seconds", "1", gateways=2, tritons=2) as running:
        running.until_answers(EXAMPLE_ENDPOINT)
        running.apply(spec())
        running.until_all_serve()
        yield running


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Real texts of many lengths."""
    replay = Path(__file__).parents[2] / "examples" / "sentiment" / "texts" / "replay.txt"
    return replay.read_text(encoding="utf-8").splitlines()

"""One local stack with the example model, shared by the tests of this folder.

It has two gateways and two Tritons: whole classes of mistakes need two. Its windows last a second,
so that rollouts are over soon, and texts that two versions label differently may be kept. A test
that registers a version, or that needs the endpoint to be configured in its way, applies the
endpoint first: tests run in any order.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_stack import EXAMPLE_ENDPOINT, PATIENT, RunningStack, running_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    home = tmp_path_factory.mktemp("stack") / "home"
    flags = ("--window-seconds", "1", "--pair-texts-hours", "1", "--model-code", "--pyfunc")
    with running_stack(home, *flags, gateways=2, tritons=2) as running:
        running.until_answers(EXAMPLE_ENDPOINT)
        running.apply(PATIENT)
        running.until_all_serve()
        yield running


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Real texts of many lengths."""
    replay = Path(__file__).parents[2] / "examples" / "sentiment" / "texts" / "replay.txt"
    return replay.read_text(encoding="utf-8").splitlines()

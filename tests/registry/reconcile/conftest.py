"""Fixtures of the reconcile loop's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controller_harness import ControllerHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ControllerHarness]:
    made = ControllerHarness(tmp_path)
    yield made
    await made.jobs.close()

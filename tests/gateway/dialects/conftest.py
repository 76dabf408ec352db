"""Fixtures of the dialects' tests."""

from collections.abc import Iterator

import pytest
from front_fakes import FakeKeys
from front_server import Served, serving


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    """Both fronts, without keys; whoever changes the fake behind them sets it back."""
    with serving(Served()) as served:
        yield served


@pytest.fixture(scope="module")
def keyed_fronts() -> Iterator[Served]:
    """Both fronts with keys on: ``good`` is for sentiment alone."""
    with serving(Served(keys=FakeKeys({"good": {"sentiment"}}))) as served:
        yield served

"""Fixtures of the registry's tests."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """MLflow's client is settled by variables: those of one test are not the next one's."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)

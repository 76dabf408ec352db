"""Fixtures of the tests of clients."""

from collections.abc import Iterator
from typing import Any

import pytest
from client_programs import PYTHON, Client, run
from front_server import Served, serving


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    """Both fronts, without keys."""
    with serving(Served()) as served:
        yield served


@pytest.fixture(scope="module")
def client(fronts: Served) -> Client:
    """Runs a program with the gateway's address, and gives the JSON that it prints."""
    if not PYTHON.exists():
        pytest.skip("the clients are not installed: make clients")

    def ask(program: str, *arguments: str) -> Any:
        return run(program, fronts.url, *arguments)

    return ask

"""Servers that answer as a test says."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from http_server import Answer, http_server

Serve = Callable[[int, str], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as servers:
        yield lambda status, body: servers.enter_context(
            http_server(lambda _: Answer(status, body))
        )

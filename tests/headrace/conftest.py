"""The program's commands are built once for all tests of a process, and none says that it waits."""

import functools
from collections.abc import Iterator

import pytest
import typer.testing

from headrace import program


@pytest.fixture(scope="session", autouse=True)
def _commands_once() -> Iterator[None]:
    """Typer builds all commands again for each run in a test: 14 ms of processor time."""
    once = functools.cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", once)
        patch.setattr(program, "SILENT_SECONDS", 3600.0)  # a busy machine takes longer than one
        yield

"""Registering the example: what is said while it takes long, and how it ends."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from headrace.errors import RequestFailedError
from headrace.stack import example

# Says where it is, and waits for a file.
SCRIPT = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "pid").write_text(str(os.getpid()))
while not (folder / "go").exists():
    time.sleep(0.01)
"""


def words(folder: Path) -> list[str]:
    return [sys.executable, "-S", "-c", SCRIPT, str(folder)]


async def test_a_registration_that_takes_long_is_told_and_waited_for(tmp_path: Path) -> None:
    told: list[str] = []

    def note(text: str) -> None:
        told.append(text)
        (tmp_path / "go").touch()

    await example.register(
        words(tmp_path), os.environ, note, within_seconds=600, say_every_seconds=0.05
    )
    assert "still runs after" in told[0]


async def test_one_beyond_its_time_is_ended_and_the_options_are_named(tmp_path: Path) -> None:
    started = tmp_path / "pid"

    def note(_: str) -> None:
        return None

    with pytest.raises(RequestFailedError, match=r"more than .* s: --start-within .*--no-example"):
        await example.register(words(tmp_path), os.environ, note, within_seconds=0.5)
    if started.exists():  # a busy machine may have come no further
        pid = int(await asyncio.to_thread(started.read_text))
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_script_that_fails_is_quoted(tmp_path: Path) -> None:
    failing = [sys.executable, "-S", "-c", "raise SystemExit('no such registry')", str(tmp_path)]
    with pytest.raises(RequestFailedError, match="no such registry"):
        await example.register(failing, os.environ, print, within_seconds=600)


async def test_an_mlflow_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(RequestFailedError, match=r"127\.0\.0\.1:1 does not answer"):
        await example.registry_is_empty("http://127.0.0.1:1", print, 600)

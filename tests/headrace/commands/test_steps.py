import errno
from io import StringIO

import pytest
from rich.console import Console

from headrace.commands.steps import Steps


def shown() -> tuple[Steps, StringIO]:
    file = StringIO()
    return Steps(Console(file=file, width=200)), file


def test_a_step_is_one_line_with_its_time() -> None:
    steps, file = shown()
    with steps.step("get kafka"):
        pass
    (line,) = file.getvalue().splitlines()
    assert line.startswith("✓ get kafka")
    assert line.endswith(" s")


def test_a_step_that_fails_is_not_shown_as_done() -> None:
    steps, file = shown()
    with pytest.raises(OSError, match="away"), steps.step("get kafka"):
        raise OSError("away")
    assert not file.getvalue()


def test_what_a_step_is_at_is_said_once_each() -> None:
    steps, file = shown()
    with steps.step("answers"):
        for text in ("Converting", "Converting", "Loading"):
            steps.note("answers", text)
    said = [line for line in file.getvalue().splitlines() if line.startswith("…")]
    assert [line.split()[-1] for line in said] == ["Converting", "Loading"]


def test_what_a_service_that_is_not_ready_says_is_shown() -> None:
    steps, file = shown()
    steps.note_start("mlflow")
    steps.note_wait("mlflow", 31.2, "Running upgrade -> 451")
    steps.note_ready("mlflow", 40.0)
    told = file.getvalue()
    assert "mlflow" in told
    assert "not ready after 31 s; its log ends: Running upgrade -> 451" in told


def test_a_word_in_brackets_is_shown_and_no_markup() -> None:
    steps, file = shown()
    steps.note_death("loader", "exit status 1 [/red]", 0.2)
    assert "[/red]" in file.getvalue()


class FullDisk(StringIO):
    """A file on a disk without room."""

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_nobody_can_read_ends_nothing() -> None:
    steps = Steps(Console(file=FullDisk(), width=200))
    steps.note_death("kafka", "exit status 1", 0.2)
    with steps.step("answers"):
        steps.note("answers", "Loading")

"""What commands that go on show where nothing can be replaced."""

from collections.abc import Iterator

import pytest
from waiting import until

from headrace.commands import output


def test_a_watch_into_a_pipe_shows_each_change_once_and_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pictures = iter(["Shadow", "Shadow", "Canary 20 %"])
    seen: Iterator[str] = iter(["", "Shadow\n", ""])

    def draw() -> str:
        assert capsys.readouterr().out == next(seen, "\nCanary 20 %\n")
        try:
            return next(pictures)
        except StopIteration:
            raise KeyboardInterrupt from None

    output.display(draw, watch=True, piped_seconds=0)


def test_what_is_slow_says_what_it_waits_for_and_each_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def heard() -> bool:
        told.append(capsys.readouterr().err)
        return "MLflow" in "".join(told)

    told: list[str] = []
    with output.slow("MLflow", after_seconds=0.0) as change:
        until("it is said", 60, heard)
        change("Kafka")
        change("Kafka")
    told.append(capsys.readouterr().err)
    assert "".join(told) == "Waiting: MLflow ...\nWaiting: Kafka ...\n"


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with output.slow("MLflow", after_seconds=3600.0) as change:
        change("Kafka")
    assert capsys.readouterr().err == ""

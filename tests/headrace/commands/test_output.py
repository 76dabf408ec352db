"""What commands that go on show where nothing can be replaced."""

from collections.abc import Iterator

import pytest

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

import json

import pytest

from contracts.windows import UnkWordCounts
from headrace.commands.unk_words import tell


def test_the_most_frequent_words_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"3": UnkWordCounts(10, {"zoom": 2, "corona": 6, "[bold]x": 1}, 1)}
    tell("tone", found, 2, as_json=False)
    said = capsys.readouterr().out
    assert said.index("corona") < said.index("zoom")
    assert "60.0%" in said
    assert "bold" not in said
    assert "too small by up to 1" in said


def test_words_of_strangers_can_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell("tone", {"3": UnkWordCounts(2, {"\x1b[31mred": 1, "[red]x": 1})}, 9, as_json=False)
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\\u001b[31mred" in said
    assert "[red]x" in said


def test_scripts_get_counts_with_their_bound(capsys: pytest.CaptureFixture[str]) -> None:
    tell("tone", {"3": UnkWordCounts(5, {"zoom": 2}, 1)}, 9, as_json=True)
    (version,) = json.loads(capsys.readouterr().out)["versions"]
    assert version == {
        "version": "3",
        "seen": 5,
        "too_small_by_at_most": 1,
        "words": [{"word": "zoom", "count": 2}],
    }


def test_nothing_is_said_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    tell("tone", {}, 9, as_json=False)
    assert "No word of tone became UNK" in capsys.readouterr().out

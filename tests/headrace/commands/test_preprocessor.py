"""``headrace preprocessor test``: what users' own code does, told before a gateway runs it."""

import json
from pathlib import Path

import pytest

from contracts.backoff import Backoff
from headrace.commands.preprocessor import try_out
from headrace.errors import RefusedError, RequestFailedError
from preprocess.model_code.process import CodeLimits

LIMITS = CodeLimits(call_seconds=60.0, start_seconds=240.0)
SOURCE = """
class Preprocessor:
    def preprocess(self, texts, state):
        if "raise" in texts[0]:
            raise ValueError("of the user")
        for text in texts:
            state.observe("length", len(text))
        if state.pairs is not None:
            state.pairs = [pair.upper() for pair in state.pairs]
        return [text.upper() for text in texts]

    def postprocess(self, answers, state):
        return [[number + 1 for number in answer] for answer in answers]
"""


@pytest.fixture
def code(tmp_path: Path) -> str:
    folder = tmp_path / "version" / "code"
    folder.mkdir(parents=True)
    (folder / "headrace_preprocessor.py").write_text(SOURCE, encoding="utf-8")
    return str(folder.parent)


def requests(folder: Path, *lines: object) -> Path:
    path = folder / "requests.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def test_results_observed_values_and_times_are_shown(
    code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = requests(tmp_path, "a", {"texts": ["b"], "pairs": ["c"], "answers": [[1.0, 2.0]]})
    try_out(code, asked, LIMITS, as_json=False)
    told = capsys.readouterr().out
    for shown in (
        "becomes   A",
        "answered  [2.0, 3.0]",
        "took",
        '"least": 1',
        "2 requests, 0 failed",
    ):
        assert shown in told
    try_out(code, asked, LIMITS, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["requests"][1]["pairs"] == ["C"]
    assert document["milliseconds"]["longest"] >= document["milliseconds"]["median"] > 0


def test_a_request_that_fails_is_told_and_ends_in_a_refusal(
    code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("raise\nwell\n", encoding="utf-8")
    with pytest.raises(RefusedError, match=r"1 of 2 requests failed.*ValueError: of the user"):
        try_out(code, path, LIMITS, as_json=False)
    assert "becomes   WELL" in capsys.readouterr().out


def test_an_installed_class_is_run_as_a_version_s_would_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RequestFailedError, match="has neither preprocess nor postprocess"):
        try_out("collections:Counter", requests(tmp_path, "a"), LIMITS, as_json=False)
    assert capsys.readouterr().out == ""


HANGING = """
import time

class Preprocessor:
    def preprocess(self, texts, state):
        while "hang" in texts[0]:
            time.sleep(60)
        return texts
"""


def test_a_call_that_took_too_long_is_tried_again_and_the_next_request_is_not_blamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "headrace_preprocessor.py").write_text(HANGING, encoding="utf-8")
    limits = CodeLimits(call_seconds=1.0, start_seconds=240.0, pauses=Backoff(0.1, 0.1))
    asked = requests(tmp_path, "well", "hang", "well again")
    with pytest.raises(RefusedError, match=r"1 of 3 requests failed.*in each of 3 tries"):
        try_out(str(tmp_path), asked, limits, as_json=True)
    errors = [each["error"] for each in json.loads(capsys.readouterr().out)["requests"]]
    assert [bool(error) for error in errors] == [False, True, False]


@pytest.mark.parametrize(
    ("code", "line", "sentence"),
    [
        ("no folder", '"a"', "neither a folder nor module:Class"),
        (".", '"a"', "holds no headrace_preprocessor.py"),
        ("json:JSONDecoder", '{"texts": 7}', "line 1"),
        ("json:JSONDecoder", '{"text": ["a"]}', "line 1"),
    ],
)
def test_what_can_t_be_run_is_said(code: str, line: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(RequestFailedError, match=sentence):
        try_out(
            code.replace(".", str(tmp_path)) if code == "." else code, path, LIMITS, as_json=True
        )

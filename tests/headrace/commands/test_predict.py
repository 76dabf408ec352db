import httpx
import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.commands.predict import show


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"label": "positive", "score": 0.98765}, "positive 0.988"),
        ([{"label": "a", "score": 0.5}, {"label": "b", "score": 0.25}], "a 0.500, b 0.250"),
        (
            [{"entity_group": "PER", "score": 0.5, "word": "Jane Austen", "start": 0, "end": 11}],
            "PER Jane Austen 0.500",
        ),
        ([], "nothing found"),
        ([0.1, 0.2, 0.3, 0.4, 0.5], "[0.1000, 0.2000, 0.3000, 0.4000, ...] (5 numbers)"),
    ],
)
def test_an_answer_is_shown_in_a_line(result: object, shown: str) -> None:
    assert show(result) == shown


def test_texts_and_labels_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def post(url: str, **_: object) -> httpx.Response:
        return httpx.Response(200, json=[{"label": "[/neg]", "score": 1.0}])

    monkeypatch.setattr(httpx, "post", post)
    shown = CliRunner().invoke(app, ["predict", "tone", "a [/] [red]b", "--url", "http://g"])
    assert shown.exit_code == 0, shown.exception
    assert "a [/] [red]b" in shown.output
    assert "[/neg] 1.000" in shown.output

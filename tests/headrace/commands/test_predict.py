import pytest

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

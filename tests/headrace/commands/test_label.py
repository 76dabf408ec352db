"""Pairs are handed out without bias, and labels tell at any time what is known."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.commands.label import ComparedPair, LabelFile, LabelFindings, PairLabel, order_pairs
from headrace.commands.label import judge_labels as shown_of
from headrace.errors import RefusedError

PAIRS = [
    ComparedPair(f"r-{n}", "good", "good" if n % 20 else "bad", text=f"text {n}")
    for n in range(10_000)
]


def shown(pairs: list[ComparedPair], answers: list[PairLabel], margin: float) -> LabelFindings:
    return shown_of(LabelFile.of(pairs, answers), margin)


def different(pairs: list[ComparedPair]) -> list[ComparedPair]:
    return list(LabelFile.of(pairs, []).pairs)


def answered(count: int, *, candidate_right: int = 2) -> list[PairLabel]:
    """Labels of the first pairs in their order: the candidate is right at one of so many."""
    return [
        PairLabel(pair.id, pair.stable if n % candidate_right else pair.candidate)
        for n, pair in enumerate(different(PAIRS)[:count])
    ]


def test_some_sixty_labels_show_that_a_version_is_not_worse() -> None:
    few, enough = shown(PAIRS, answered(20), 0.02), shown(PAIRS, answered(66), 0.02)
    assert (few.pairs, few.disagree, few.labels) == (10_000, 500, 20)
    assert not few.not_worse
    assert enough.not_worse
    assert -0.025 < enough.lower < 0 < enough.upper < 0.025


def test_a_version_that_is_mostly_wrong_where_it_differs_is_not_called_as_good() -> None:
    found = shown(PAIRS, answered(200, candidate_right=10), 0.02)
    assert not found.not_worse
    assert found.upper < -0.02


def test_labels_count_up_to_the_first_pair_that_has_none() -> None:
    answers = answered(100)
    without = [answer for n, answer in enumerate(answers) if n != 30]
    assert shown(PAIRS, without, 0.02).labels == 30
    unsure = [*without, PairLabel(answers[30].id, None)]
    assert shown(PAIRS, unsure, 0.02).labels == 100


def test_order_does_not_depend_on_answers_or_on_the_file() -> None:
    other = [ComparedPair(pair.id, pair.candidate, pair.stable) for pair in reversed(PAIRS)]
    assert [pair.id for pair in order_pairs(other)] == [pair.id for pair in order_pairs(PAIRS)]


def test_two_pairs_of_one_id_are_refused() -> None:
    with pytest.raises(RefusedError, match="an id each"):
        shown([*PAIRS, PAIRS[0]], [], 0.02)


def test_the_commands_walk_through_files(tmp_path: Path) -> None:
    pairs, answers = tmp_path / "pairs.jsonl", tmp_path / "answers.jsonl"
    pairs.write_text(
        "\n".join(
            json.dumps({"id": p.id, "stable": p.stable, "candidate": p.candidate, "text": p.text})
            for p in PAIRS[:200]
        )
    )
    words = [str(pairs), "--answers", str(answers), "--json"]
    first = json.loads(CliRunner().invoke(app, ["label", "next", *words, "--count", "3"]).stdout)
    assert [one["id"] for one in first] == [pair.id for pair in different(PAIRS[:200])[:3]]
    assert first[0]["answers"] == ["bad", "good"]
    answers.write_text(json.dumps({"id": first[0]["id"], "label": "good"}) + "\n")
    second = json.loads(CliRunner().invoke(app, ["label", "next", *words]).stdout)
    assert second[0]["id"] == first[1]["id"]
    told = json.loads(CliRunner().invoke(app, ["label", "verdict", *words]).stdout)
    assert (told["labels"], told["stable_right"], told["not_worse"]) == (1, 1, False)
    said = CliRunner().invoke(app, ["label", "verdict", *words[:-1]]).stdout
    assert "10 of 200 pairs disagree; of 1 labels" in said


def test_texts_of_strangers_can_not_steer_the_terminal(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    text = "\x1b[31m[red]one\ntwo"
    pairs.write_text(json.dumps({"id": "a", "stable": "x", "candidate": "y", "text": text}))
    said = CliRunner().invoke(app, ["label", "next", str(pairs)]).stdout
    assert "\x1b" not in said
    assert "  \\u001b[31m[red]one\n  two\n" in said


def test_a_line_that_is_no_pair_is_told_with_its_number(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"id": "a", "stable": "x", "candidate": "y"}\n{"id": 3}\n')
    result = CliRunner().invoke(app, ["label", "next", str(pairs)])
    assert result.exit_code == 1
    assert "line 2" in result.output

"""The comparison on reranking and labels of tokens: what is pure in it, and what peers compute."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from loaded_script import loaded
from served_models import asked, converted

from bench import studies
from bench.tasks import judging
from bench.tasks.reported import draw, tables
from bench.tasks.servers.compute import Computer
from bench.tasks.ways import HEADRACE, RANKING, TOKENS, WAYS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tasks"
LOAD = "200 rows, 1 callers"


def test_scores_are_right_where_the_best_documents_are_the_same() -> None:
    known = [[at / 20 for at in range(20)]]
    assert judging.scores(known, [[score + 0.01 for score in known[0]]]).right
    assert not judging.scores(known, [list(reversed(known[0]))]).right
    # Documents of equal scores may change places.
    assert judging.scores([[0.5] * 20], [[0.5 + at / 10000 for at in range(20)]]).right
    with pytest.raises(ValueError, match="scores, not"):
        judging.scores(known, [[0.1]])


def entity(start: int, score: float = 0.9) -> dict[str, Any]:
    return {"entity_group": "PART", "start": start, "end": start + 3, "score": score}


def test_entities_are_right_where_type_and_place_are_the_same() -> None:
    known = [[entity(0)], []]
    assert judging.entities(known, [[entity(0, 0.91)], []]).right
    assert not judging.entities(known, [[entity(0, 0.5)], []]).right
    assert judging.entities(known, [[entity(1)], []]).equal == 0.5
    with pytest.raises(ValueError, match="for 2 texts"):
        judging.entities(known, [[]])


def found(rate: float) -> list[dict[str, float]]:
    return [
        {"rows_per_second": rate * at, "p50": 10, "p99": 20, "answered": 5, "failed": at - 1}
        for at in (1, 2)
    ]


KEPT: dict[str, Any] = {
    RANKING: {
        "rounds": {HEADRACE: {LOAD: found(100)}},
        "answers": {HEADRACE: {"apart": 0.001, "equal": 1.0}},
        "failures": {way.name: "it | fell" for way in WAYS if way.name != HEADRACE},
    }
}


def test_tables_have_every_way_and_say_who_fell_out_and_what_was_not_run() -> None:
    made = tables(KEPT)
    assert "| Headrace | 150 (100 to 200); 10 and 20 ms; 1 failed |" in made["tasks-ranking"]
    assert "| BentoML | out: it / fell |" in made["tasks-ranking"]
    assert made["tasks-tokens"] == "Not run."
    assert "0.0010; 100.0 %" in made["tasks-who"]


def test_the_document_has_a_place_for_each_table(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert "150 (100 to 200)" in studies.written(document, tables(KEPT), "measured")
    draw(KEPT, tmp_path / "tasks.svg")
    assert "BentoML" in (tmp_path / "tasks.svg").read_text(encoding="utf-8")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield loaded(EXAMPLE / "ask.py")
    sys.modules.pop("word_models", None)


@pytest.mark.slow
async def test_what_peers_compute_is_what_headrace_answers(
    example: ModuleType, tmp_path: Path
) -> None:
    model, graph = converted(example.FINDER, example.MODELS[example.FINDER], tmp_path / "finder")
    assert model.task is TOKENS
    path, body = example.request_of(example.FINDER)
    ours = await asked(model, graph, example.FINDER, path, body)
    theirs = Computer(graph.parent).entities(body["inputs"])
    judged = judging.entities(theirs, ours)
    assert (judged.equal, judged.apart < 1e-5) == (1, True)

    model, graph = converted(example.RANKER, example.MODELS[example.RANKER], tmp_path / "ranker")
    assert model.task is RANKING
    path, body = example.request_of(example.RANKER)
    answer = await asked(model, graph, example.RANKER, path, body)
    by_index = sorted(answer["results"], key=lambda each: each["index"])
    pairs = [(body["query"], document) for document in body["documents"]]
    known = Computer(graph.parent).rank(pairs)
    assert [each["relevance_score"] for each in by_index] == pytest.approx(known, abs=1e-5)

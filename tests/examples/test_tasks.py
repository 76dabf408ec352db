"""The example's models become packages, and answer its requests as its README shows."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest
from loaded_script import loaded
from page_snippets import ROOT, of
from served_models import asked, converted

from contracts.tasks import Task

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "tasks"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLE))  # as where it is run as a program
    yield loaded(EXAMPLE / "ask.py")
    sys.path.remove(str(EXAMPLE))


async def test_documents_come_in_the_order_that_the_readme_shows(
    example: ModuleType, tmp_path: Path
) -> None:
    model, graph = converted(example.RANKER, example.MODELS[example.RANKER], tmp_path)
    assert model.task is Task.TEXT_RANKING
    answer = await asked(model, graph, example.RANKER, "/v1/rerank", example.rerank_request())
    assert [each["index"] for each in answer["results"]] == [1, 2, 3, 0]
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for each in answer["results"]:
        assert f"{each['relevance_score']:.3f}  {each['document']['text']}" in shown
    example.show_ranking(answer)


async def test_entities_are_those_that_the_readme_shows(
    example: ModuleType, tmp_path: Path
) -> None:
    model, graph = converted(example.FINDER, example.MODELS[example.FINDER], tmp_path)
    assert model.task is Task.TOKEN_CLASSIFICATION
    path = f"/endpoints/{example.FINDER}"
    answer = await asked(model, graph, example.FINDER, path, example.entities_request())
    found = [
        [text[each["start"] : each["end"]] for each in entities]
        for text, entities in zip(example.TEXTS, answer, strict=True)
    ]
    assert found == [["Jane Austen", "Bath", "Emma"], ["London", "New York"], []]
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for entities in answer:
        for each in entities:
            assert f"{each['entity_group']}  {each['start']}-{each['end']}" in shown
    example.show_entities(answer)


async def test_labels_of_the_callers_own_fit_as_the_readme_shows(
    example: ModuleType, tmp_path: Path
) -> None:
    name = example.SORTER
    model, graph = converted(name, example.MODELS[name], tmp_path, task=example.TASKS[name])
    assert model.task is Task.ZERO_SHOT_CLASSIFICATION
    answer = await asked(model, graph, name, f"/endpoints/{name}", example.labels_request())
    assert [labels[0]["label"] for labels in answer] == ["books", "travel", "travel"]
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for labels in answer:
        lines = [f"{each['score']:8.3f}  {each['label']}" for each in labels]
        assert "\n".join(lines) in shown
    example.show_labels(answer)


async def test_texts_get_the_weights_that_the_readme_shows(
    example: ModuleType, tmp_path: Path
) -> None:
    name = example.EXPANDER
    model, graph = converted(name, example.MODELS[name], tmp_path, task=example.TASKS[name])
    assert model.task is Task.SPARSE_EMBEDDING
    path = f"/endpoints/{name}/embed_sparse"
    answer = await asked(model, graph, name, path, example.weights_request())
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for text, weights in zip(example.TEXTS, answer, strict=True):
        heaviest = sorted(weights, key=lambda weight: -weight["value"])
        lines = [f"{each['value']:8.3f}  {example.WORDS[each['index']]}" for each in heaviest]
        assert "\n".join([text, *lines]) in shown
    example.show_weights(answer)


async def test_one_text_gets_three_kinds_of_vectors_as_the_readme_shows(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = example.HYBRID
    model, graph = converted(name, example.MODELS[name], tmp_path, task=example.TASKS[name])
    assert model.task is Task.HYBRID_EMBEDDING
    answer = await asked(model, graph, name, f"/endpoints/{name}", example.kinds_request())
    assert list(answer) == ["dense", "sparse", "tokens"]
    example.show_kinds(answer)
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 4
    assert "\n".join(lines) in shown


async def test_a_question_is_answered_as_the_readme_shows(
    example: ModuleType, tmp_path: Path
) -> None:
    model, graph = converted(example.READER, example.MODELS[example.READER], tmp_path)
    assert model.task is Task.QUESTION_ANSWERING
    path = f"/endpoints/{example.READER}"
    answer = await asked(model, graph, example.READER, path, example.answers_request())
    assert [each["answer"] for each in answer] == ["", "Ada Lovelace", "Jane Austen", "Turing"]
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for document, each in zip(example.DOCUMENTS, answer, strict=True):
        assert document[each["start"] : each["end"]] == each["answer"]
        place = f"{each['start']}-{each['end']}"
        assert f"{each['score']:8.3f}  {place:6} {each['answer'] or '(no answer)'}" in shown
    example.show_answers(answer)


async def test_a_text_is_written_as_the_readme_shows(example: ModuleType, tmp_path: Path) -> None:
    name = example.WRITER
    model, graph = converted(name, example.MODELS[name], tmp_path)
    assert model.task is Task.TEXT_GENERATION
    assert model.manifest.generation is not None
    assert model.manifest.generation.stop_ids == (3,)
    path, body = example.request_of(name)
    answer = await asked(model, graph, name, path, body)
    (choice,) = answer["choices"]
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert f"Ada Lovelace{choice['text']}\n   {choice['finish_reason']}" in shown
    example.show_text(answer)


async def test_vectors_come_in_the_forms_that_the_readme_shows(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = example.EMBEDDER
    model, graph = converted(name, example.MODELS[name], tmp_path)
    assert model.task is Task.TEXT_EMBEDDING
    assert set(model.manifest.tokenizer.prompts) == {"travel", "books", "computers"}
    path, body = example.request_of(name)
    for form, more in example.FORMS.items():
        answer = await asked(model, graph, name, path, {**body, **more})
        example.show_nearest(form, answer)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(example.FORMS)
    assert "\n".join(lines) in (EXAMPLE / "README.md").read_text(encoding="utf-8")


# Of the page's endpoints, which example stands for each.
STANDS_FOR = {
    "splade": "EXPANDER",
    "m3": "HYBRID",
    "reranker": "RANKER",
    "topics": "SORTER",
    "reader": "READER",
    "entities": "FINDER",
}


def requests_of_the_page() -> dict[str, tuple[str, dict[str, Any]]]:
    """Path and body of each request in ``docs/endpoints.md`` that is asked here, by endpoint."""
    found = {}
    for snippet in of(ROOT / "docs" / "endpoints.md"):
        if snippet.said == "tests/examples/test_tasks.py":
            words = shlex.split(snippet.text)
            path = urlsplit(next(word for word in words if word.startswith("http"))).path
            body = json.loads(words[words.index("-d") + 1])
            found[body.get("model") or path.split("/")[2]] = (path, body)
    return found


@pytest.mark.parametrize("name", STANDS_FOR)
async def test_requests_of_the_page_about_endpoints_are_answered(
    name: str, example: ModuleType, tmp_path: Path
) -> None:
    asked_for = requests_of_the_page()
    assert asked_for.keys() == STANDS_FOR.keys()
    path, body = asked_for[name]
    model_name = getattr(example, STANDS_FOR[name])
    model, graph = converted(
        name, example.MODELS[model_name], tmp_path, task=example.TASKS.get(model_name)
    )
    answer = await asked(model, graph, name, path, body)
    page = (ROOT / "docs" / "endpoints.md").read_text(encoding="utf-8")
    shown = page.partition(f"http://127.0.0.1:8080{path}")[2].partition("```text\n")[2]
    first = answer[0] if isinstance(answer, list) else answer
    for key in (first[0] if isinstance(first, list) else first) if name != "reranker" else ():
        assert f'"{key}":' in shown.partition("\n")[0]


def test_the_tables_know_every_word_of_the_texts(example: ModuleType) -> None:
    tokenizer = sys.modules["word_models"].tokenizer()
    labels = example.labels_request()["parameters"]["candidate_labels"]
    for text in (example.QUERY, *example.DOCUMENTS, *example.TEXTS, "This example is", *labels):
        assert "[UNK]" not in tokenizer.encode(text).tokens, text

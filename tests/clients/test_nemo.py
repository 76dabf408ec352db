"""NeMo Guardrails: its rail for classifiers with nothing but an address."""

import json
from collections.abc import Iterator

import pytest
from client_programs import NEMO, run
from front_fakes import guard
from front_server import Served, serving

from contracts.tasks import Task
from gateway.errors import OverloadedError

pytestmark = pytest.mark.slow  # starts the client's own Python


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    """A guard of texts and one of entities."""
    made = Served()
    made.predictor.views["tags"] = guard(Task.TOKEN_CLASSIFICATION, "tags")
    with serving(made) as served:
        yield served


def told(fronts: Served, *asked: tuple[str, list[str], str]) -> list[str]:
    if not NEMO.exists():
        pytest.skip("the client is not installed: make clients")
    names = ("endpoint", "labels", "text")
    questions = json.dumps([dict(zip(names, one, strict=True)) for one in asked])
    found: list[str] = run("use_nemo", fronts.url, questions, python=NEMO)
    return found


def test_messages_are_blocked_by_the_labels_of_their_texts_and_of_entities(fronts: Served) -> None:
    *verdicts, refusal = told(
        fronts,
        ("sentiment", ["positive"], "good good"),
        ("sentiment", ["positive"], "a rainy day"),
        ("sentiment", ["other"], "good good"),
        ("tags", ["FOOD"], "the soup"),
        ("tags", ["FOOD"], "rain"),
        ("reranker", ["x"], "a"),
    )
    assert verdicts == ["blocked", "allowed", "allowed", "blocked", "allowed"]
    assert "422" in refusal
    assert "a guardrail needs an endpoint of text-classification" in refusal


def test_without_room_no_message_is_allowed(fronts: Served) -> None:
    with fronts.predictor.failing(OverloadedError("full", retry_after_seconds=1.0)):
        (said,) = told(fronts, ("sentiment", ["positive"], "a rainy day"))
    assert "503" in said

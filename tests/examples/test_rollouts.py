"""Each version of ``examples/rollouts`` has the fault that its name says, and no other."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from loaded_script import loaded
from numpy.typing import NDArray
from tokenizers import Tokenizer

from headrace.endpoints import document

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
SENTIMENT, ROLLOUTS = EXAMPLES / "sentiment", EXAMPLES / "rollouts"
POSITIVE = 1

Logits = NDArray[np.float32]


@pytest.fixture(scope="module")
def variants() -> ModuleType:
    return loaded(ROLLOUTS / "variants.py")


@pytest.fixture(scope="module")
def texts() -> list[dict[str, Any]]:
    lines = (SENTIMENT / "texts" / "held_out.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:200]]


@pytest.fixture(scope="module")
def answers(variants: ModuleType) -> Callable[[str, list[str]], Logits]:
    """Logits of a variant, a text alone each time."""
    tokenizer = Tokenizer.from_file(str(SENTIMENT / "model" / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4

    def of(variant: str, asked: list[str]) -> Logits:
        graph = variants.make(variant).SerializeToString()
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        found = []
        for text in asked:
            ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
            feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            found.append(session.run(["logits"], feeds)[0])
        joined: Logits = np.concatenate(found)
        return joined

    return of


Answers = Callable[[str, list[str]], Logits]


def words(rows: list[dict[str, Any]]) -> list[str]:
    return [row["text"] for row in rows]


def test_a_better_version_keeps_every_label_and_is_less_sure_of_it(
    answers: Answers, texts: list[dict[str, Any]]
) -> None:
    before, after = answers("baseline", words(texts)[:50]), answers("better", words(texts)[:50])
    np.testing.assert_array_equal(before.argmax(axis=1), after.argmax(axis=1))
    assert (np.abs(after) < np.abs(before)).all()


def test_a_worse_version_turns_one_answer_in_four_and_keeps_the_shares_of_the_classes(
    answers: Answers, texts: list[dict[str, Any]]
) -> None:
    before = answers("baseline", words(texts)).argmax(axis=1)
    after = answers("worse", words(texts)).argmax(axis=1)
    assert 0.18 < (before != after).mean() < 0.32
    assert abs((before == POSITIVE).mean() - (after == POSITIVE).mean()) < 0.06


def test_a_slow_version_answers_as_before(answers: Answers, texts: list[dict[str, Any]]) -> None:
    few = words(texts)[:5]
    np.testing.assert_allclose(answers("slow", few), answers("baseline", few), atol=1e-5)


def test_a_collapsed_version_says_positive_of_nearly_everything(
    answers: Answers, texts: list[dict[str, Any]]
) -> None:
    assert (answers("collapsed", words(texts)).argmax(axis=1) == POSITIVE).mean() > 0.9


def test_a_failing_version_fails_on_a_few_replayed_texts_and_on_none_that_it_is_verified_with(
    variants: ModuleType, answers: Answers, texts: list[dict[str, Any]]
) -> None:
    token, share = variants.failing_token()
    assert variants.FAILING_SHARE[0] <= share <= variants.FAILING_SHARE[1]
    answers("failing", words(texts)[:50])
    word = Tokenizer.from_file(str(SENTIMENT / "model" / "tokenizer.json")).id_to_token(token)
    assert word is not None
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument):
        answers("failing", [word])


def test_no_engine_takes_the_unconvertible_version(answers: Answers) -> None:
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match="SecretActivation"):
        answers("unconvertible", ["fine"])


@pytest.mark.parametrize("folder", [SENTIMENT, ROLLOUTS])
def test_the_examples_endpoints_are_taken_as_they_are(folder: Path) -> None:
    (found,) = document.read((folder / "endpoint.yaml").read_text(encoding="utf-8"), folder.name)
    shadow, *weights = found.spec.rollout.steps
    assert shadow is not None
    assert len(weights) == 2


@pytest.mark.parametrize(
    ("phase", "failed_checks", "statuses", "is_right"),
    [
        ("RolledBack", ("errorRate",), {"200": 900}, True),
        ("RolledBack", ("errorRate", "quality"), {"200": 900}, True),
        ("RolledBack", ("latency",), {"200": 900}, False),
        ("Settled", ("errorRate",), {"200": 900}, False),
        ("RolledBack", ("errorRate",), {"200": 899, "500": 1}, False),
        ("RolledBack", ("errorRate",), {}, False),
    ],
)
def test_an_end_is_right_by_its_phase_its_check_and_callers_who_saw_nothing(
    phase: str, failed_checks: tuple[str, ...], statuses: dict[str, int], is_right: bool
) -> None:
    run = loaded(ROLLOUTS / "run.py")
    example = run.Example("failing", "RolledBack", because=("errorRate",))
    ended = run.Ended("4", phase, "why", failed_checks, 9.0, {"statuses": statuses})
    assert ended.is_expected(example) is is_right


def test_what_a_busy_machine_refuses_is_no_versions_failure_and_is_told_apart() -> None:
    run = loaded(ROLLOUTS / "run.py")
    failures = {run.NO_ROOM: 3, "500: The model failed.": 1}
    traffic = {"statuses": {"200": 90, "500": 1, "503": 3}, "failures": failures}
    ended = run.Ended("4", "Settled", "why", (), 9.0, traffic)
    assert (ended.failed_requests, ended.refused_requests) == (1, 3)

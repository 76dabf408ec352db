"""A question's answer is a part of its context, to the character, in whichever window it lies."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_models import VOCABULARY, asking_tokenizer

from contracts.manifest import TokenizerSpec
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.errors import InvalidTextError, ParameterError
from preprocess.tasks import HEADS
from preprocess.tasks.head import Side
from preprocess.tasks.question_answering import (
    MOST_ANSWERS,
    MOST_TOKENS,
    NO_ANSWER,
    AnswerSpan,
    answers,
)
from preprocess.windows import MOST_WINDOWS, ContextEncoder

HEAD = HEADS[Task.QUESTION_ANSWERING]
MAX_TOKENS = 16
ENCODER = ContextEncoder(
    asking_tokenizer().to_str().encode(),
    TokenizerSpec(max_tokens=MAX_TOKENS, pad_id=0, unk_id=1, vocabulary=VOCABULARY),
)
words = st.lists(st.sampled_from(["soup", "was", "cold", "i", "unheard"]), min_size=1)
CONTEXT = "the soup was cold and the rain was warm"


@dataclass(frozen=True)
class Answer:
    values: NDArray[np.float32]
    encoded: EncodedTexts
    parameters: Mapping[str, Any]
    labels: tuple[str, ...] = ("start", "end")
    multi_label: bool = False
    ranges: NDArray[np.float32] | None = None


def logits_of(encoded: EncodedTexts, spans: Mapping[str, float]) -> NDArray[np.float32]:
    """Logits by which these parts of the contexts are answers, the larger the likelier.

    ``""`` is the row's first token.
    """
    windows = encoded.windows
    assert windows is not None
    values = np.zeros((sum(encoded.tokens), 2), np.float32)
    for row, end in enumerate(accumulate(encoded.tokens)):
        first = end - encoded.tokens[row]
        text = windows.texts[windows.text_of[row]]
        for part, sure in spans.items():
            if not part:
                values[first] = sure
            begin = text.find(part)
            for at, (start, stop) in enumerate(windows.offsets[row]):
                place = first + windows.before[row] + at
                if part and start == begin:
                    values[place, 0] = sure
                if part and stop == begin + len(part):
                    values[place, 1] = sure
    return values


@given(words, words)
def test_windows_hold_the_question_and_every_token_of_the_context(
    question: list[str], context: list[str]
) -> None:
    asked, text = " ".join(question), " ".join(context)
    encoded = ENCODER.encode([asked], [text])
    windows = encoded.windows
    assert windows is not None
    kept = question[: (MAX_TOKENS - 3) // 2]
    room = MAX_TOKENS - 3 - len(kept)
    stride = ENCODER.stride_beside(len(kept))
    held: set[int] = set()
    for row, ids in enumerate(encoded.ids):
        assert len(ids) == encoded.tokens[row] <= MAX_TOKENS
        assert (ids[0], ids[1 + len(kept)], ids[-1]) == (2, 3, 3)
        assert windows.before[row] == len(kept) + 2
        start = windows.starts[row]
        for at, (begin, end) in enumerate(windows.offsets[row]):
            assert text[begin:end] == context[start + at]
            held.add(start + at)
        assert start == 0 or start == windows.starts[row - 1] + room - stride
    assert encoded.type_ids is not None
    assert encoded.type_ids[0] == [0] * (len(kept) + 2) + [1] * (
        len(encoded.ids[0]) - len(kept) - 2
    )
    seen = min(len(context), room + (MOST_WINDOWS - 1) * (room - stride))
    assert held == set(range(seen))
    cut = len(question) > len(kept) or seen < len(context)
    unknown = [*kept, *context[:seen]].count("unheard")
    assert encoded.statistics() == [(len(kept) + seen + 3, len(kept) + seen, unknown, cut)]


def test_a_question_of_many_contexts_has_rows_of_each() -> None:
    question = "was it cold"
    encoded = ENCODER.encode([question] * 3, ["no", "the " * 30, "yes"])
    windows = encoded.windows
    assert windows is not None
    assert windows.text_of == [0, *[1] * (len(encoded) - 2), 2]
    assert len(encoded) > 4
    assert len(encoded.statistics()) == 3


def test_a_context_that_is_no_unicode_is_refused_by_its_place() -> None:
    with pytest.raises(InvalidTextError, match="pair 1"):
        ENCODER.encode(["it", "it"], ["no", "\ud800"])
    with pytest.raises(InvalidTextError, match="text 0"):
        ENCODER.encode(["\ud800"], ["no"])


def test_the_likeliest_part_is_the_answer_and_others_follow() -> None:
    encoded = ENCODER.encode(["was it cold"], [CONTEXT])
    values = logits_of(encoded, {"soup": 9, "rain": 8})
    (found,) = answers(encoded, values, top_k=3, max_answer_len=1)
    assert [(one.answer, one.start, one.end) for one in found[:2]] == [
        ("soup", 4, 8),
        ("rain", 26, 30),
    ]
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert len(found) == 3
    (only,) = answers(encoded, values)
    assert only == found[:1]


def test_no_answer_is_one_where_it_is_asked_for() -> None:
    encoded = ENCODER.encode(["was it cold"], [CONTEXT])
    values = logits_of(encoded, {"": 9, "soup": 5})
    (without,) = answers(encoded, values)
    assert without[0].answer == "soup"
    (found,) = answers(encoded, values, handle_impossible_answer=True, top_k=2)
    assert [(one.answer, one.start, one.end) for one in found] == [("", 0, 0), ("soup", 4, 8)]


def test_an_answer_in_a_later_window_has_its_place_in_the_whole_context() -> None:
    context = "the " * 20 + "soup"
    encoded = ENCODER.encode(["was it cold"], [context])
    assert len(encoded) > 2
    (found,) = answers(encoded, logits_of(encoded, {"soup": 9}))
    assert found[0][1:] == (80, 84, "soup")


def test_an_answer_that_two_windows_hold_counts_in_both() -> None:
    context = "no " * 9 + "soup cold " + "no " * 12
    encoded = ENCODER.encode(["was it"], [context])
    windows = encoded.windows
    assert windows is not None
    at = context.index("soup")
    holding = [row for row in windows.offsets if any(start == at for start, _ in row)]
    assert len(holding) == 2
    (found,) = answers(encoded, logits_of(encoded, {"soup": 9}))
    assert found[0].answer == "soup"
    assert found[0].score > 1.9  # as the pipeline has it


def test_answers_are_no_longer_than_asked_for() -> None:
    encoded = ENCODER.encode(["was it cold"], [CONTEXT])
    values = logits_of(encoded, {"soup was cold": 9})
    assert answers(encoded, values)[0][0].answer == "soup was cold"
    assert answers(encoded, values, max_answer_len=3)[0][0].answer == "soup was cold"
    short = answers(encoded, values, max_answer_len=2, top_k=5)[0]
    assert all(len(one.answer.split()) <= 2 for one in short)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"top_k": MOST_ANSWERS + 1}, "parameters.top_k"),
        ({"max_answer_len": MOST_TOKENS + 1}, "parameters.max_answer_len"),
    ],
)
def test_a_parameter_that_can_not_be_had_is_refused(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        HEAD.rows_of_text(parameters)


def test_empty_questions_and_contexts_are_refused_by_their_place() -> None:
    with pytest.raises(ParameterError, match=r"^question: it is empty"):
        HEAD.rows([" "], ["a"], {})
    with pytest.raises(ParameterError, match=r"^context 1: it is empty"):
        HEAD.rows(["a", "b"], ["c", ""], {})


def test_what_is_recorded_is_how_long_answers_are_and_how_often_there_is_none() -> None:
    contexts = [CONTEXT, "the soup", "no rain"]
    encoded = ENCODER.encode(["was it cold"] * 3, contexts)
    values = logits_of(encoded, {"": 5, "soup was cold and": 9})
    records = HEAD.records(encoded, values, ("start", "end"))
    classes = [record.entities[0][0] for record in records if record.entities]
    assert classes == ["17-32 characters", NO_ANSWER, NO_ANSWER]
    assert all(record.label is None and record.score is None for record in records)
    known = HEAD.classes(("start", "end"))
    assert set(classes) <= set(known)


def test_copies_are_compared_by_place_and_characters() -> None:
    contexts = [CONTEXT, CONTEXT, "no rain"]
    encoded = ENCODER.encode(["was it cold"] * 3, contexts)
    ours = logits_of(encoded, {"": 5, "soup was": 9})
    same = HEAD.difference(side(ours, encoded), side(ours, encoded))
    assert (same.equal, same.distance.tolist()) == ([True] * 3, [0.0] * 3)
    theirs = logits_of(encoded, {"": 5, "was cold": 9})
    other = HEAD.difference(side(ours, encoded), side(theirs, encoded))
    assert other.equal == [False, False, True]
    # Each has 8 characters, of which "was" is shared.
    np.testing.assert_allclose(other.distance, [1 - 3 / 8, 1 - 3 / 8, 0])
    none = logits_of(encoded, {"": 9})
    apart = HEAD.difference(side(ours, encoded), side(none, encoded))
    assert (apart.equal, apart.distance.tolist()) == ([False, False, True], [1.0, 1.0, 0.0])


def side(values: NDArray[np.float32], encoded: EncodedTexts) -> Side:
    return Side(values, ("start", "end"), encoded=encoded)


@given(words, st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_every_answer_is_a_part_of_its_context(
    context: list[str], top_k: int, impossible: bool, aligned: bool, seed: int
) -> None:
    text = " ".join(context)
    encoded = ENCODER.encode(["was it"], [text])
    random = np.random.default_rng(seed)
    values = random.normal(0, 3, (sum(encoded.tokens), 2)).astype(np.float32)
    (found,) = answers(
        encoded, values, top_k=top_k, handle_impossible_answer=impossible, align_to_words=aligned
    )
    assert 1 <= len(found) <= top_k
    for one in found:
        assert one.answer == text[one.start : one.end]
        assert one.score >= 0
        assert one.answer or (impossible and one[1:] == (0, 0, ""))
    assert len({one.answer.lower() for one in found}) == len(found)


def test_an_answer_shows_as_the_pipeline_shows_it() -> None:
    encoded = ENCODER.encode(["was it cold"] * 2, [CONTEXT, "the soup"])
    values = logits_of(encoded, {"soup": 9})
    answer = Answer(values, encoded, {"top_k": 2})
    one = HEAD.pipeline(Answer(values, encoded, {}), {}, one=False)
    assert [each["answer"] for each in one] == ["soup", "soup"]
    several = HEAD.pipeline(answer, {"top_k": 2}, one=True)
    assert [len(each) for each in HEAD.predictions(answer)] == [2, 2]
    assert several == HEAD.predictions(answer)[0]
    assert HEAD.outputs(answer)["ANSWER"] == ["soup", "soup"]
    assert AnswerSpan(**several[0]).answer == "soup"

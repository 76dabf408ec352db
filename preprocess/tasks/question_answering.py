"""Extractive question answering: which part of a context answers a question, if any does.

Answers are those of the question-answering pipeline of ``transformers`` 4 (its
``pipelines/question_answering.py``): in each window of a context, a span's score is the probability
of its start times that of its end; spans of equal text are added up over windows.
"""

import json
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from contracts.events import TextRecord
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts, TextEncoder, Windows
from preprocess.errors import ParameterError
from preprocess.tasks.head import (
    AnsweredTexts,
    Difference,
    Head,
    Output,
    SecondText,
    Side,
    Values,
    require_encoded,
)
from preprocess.windows import ContextEncoder

NO_ANSWER = "no answer"
# What answers are counted as: by their characters, which mean the same in every language and for
# every tokeniser. The first number that is not below the answer's counts.
_LENGTHS = {8: "1-8 characters", 16: "9-16 characters", 32: "17-32 characters"}
_LONG = "33 characters and more"
_USUAL_TOKENS = 15  # of an answer, as in the pipeline
# Of one answer, and of one request's answers to a context: they are made on the event loop.
MOST_TOKENS = 64
MOST_ANSWERS = 50
_TAKEN = ("top_k", "handle_impossible_answer", "max_answer_len", "align_to_words")


class AnswerSpan(NamedTuple):
    """A part of a context, or nothing: then it is empty and lies at 0."""

    score: float
    start: int  # character
    end: int  # behind the last one
    answer: str


class QuestionAnswering(Head):
    """Values are float32 ``[tokens of all rows, 2]`` logits: of starts and of ends of answers."""

    task: ClassVar[Task] = Task.QUESTION_ANSWERING
    second_text: ClassVar[SecondText] = SecondText.REQUIRED
    everywhere: ClassVar[frozenset[str]] = frozenset(_TAKEN)
    parameters: ClassVar[frozenset[str]] = everywhere
    encoder: ClassVar[type[TextEncoder]] = ContextEncoder
    by_tokens: ClassVar[bool] = True

    def rows_of_text(self, parameters: Mapping[str, Any]) -> int:
        """One: windows are the encoder's."""
        for name, most in (("max_answer_len", MOST_TOKENS), ("top_k", MOST_ANSWERS)):
            if (parameters.get(name) or 1) > most:
                raise ParameterError(f"parameters.{name}", f"it may be {most} at most")
        return 1

    def rows(
        self, texts: list[str], pairs: list[str] | None, parameters: Mapping[str, Any]
    ) -> tuple[list[str], list[str] | None]:
        """The questions with their contexts; raises ``ParameterError`` for an empty one."""
        for place, both in (("question", texts), ("context", pairs or ())):
            for index, text in enumerate(both):
                if not text.strip():
                    of = f" {index}" if len(texts) > 1 else ""
                    raise ParameterError(f"{place}{of}", "it is empty")
        return super().rows(texts, pairs, parameters)

    def classes(self, labels: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG002 - of answers
        """Lengths of answers, and none."""
        return (*_LENGTHS.values(), _LONG, NO_ANSWER)

    def records(
        self,
        encoded: EncodedTexts,
        values: Values,
        labels: tuple[str, ...],  # noqa: ARG002
    ) -> list[TextRecord]:
        """The best answer's length and score; no answer where that is likelier.

        Whatever the caller asked for: answers of at most 15 tokens, aligned to words.
        """
        return [
            TextRecord(*known, entities=[(_class_of(best), best.score)])
            for known, best in zip(encoded.statistics(), _best(encoded, values), strict=True)
        ]

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """1 - F1 of the characters of both answers, by place; whether they are the same part.

        No answer is equal to no answer, and has nothing in common with any other.
        """
        distance: list[float] = []
        equal: list[bool] = []
        sides = (_best(require_encoded(side), side.values) for side in (ours, theirs))
        for one, other in zip(*sides, strict=True):
            same = (one.start, one.end) == (other.start, other.end)
            shared = max(0, min(one.end, other.end) - max(one.start, other.start))
            size = one.end - one.start + other.end - other.start
            equal.append(same)
            distance.append(0.0 if same else 1 - 2 * shared / max(1, size))
        return Difference(np.array(distance), equal, [], np.empty(0))

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401
        """``{"score", "start", "end", "answer"}`` a context; a list of it where there are several.

        There are several only with ``top_k``.
        """
        found = [
            [each._asdict() for each in of_text]
            for of_text in answers(require_encoded(answer), answer.values, **_options(parameters))
        ]
        shown = [of_text[0] if len(of_text) == 1 else of_text for of_text in found]
        return shown[0] if one else shown

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """A list of answers for each context, best first."""
        found = answers(require_encoded(answer), answer.values, **_options(answer.parameters))
        return [[each._asdict() for each in of_text] for of_text in found]

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The best answer, its score, and all answers as JSON."""
        found = answers(require_encoded(answer), answer.values, **_options(answer.parameters))
        best = [of_text[0] if of_text else _NOTHING for of_text in found]
        return {
            "ANSWER": [each.answer for each in best],
            "SCORE": np.array([each.score for each in best], np.float32),
            "ANSWERS": [
                json.dumps(
                    [each._asdict() for each in of_text], ensure_ascii=False, separators=(",", ":")
                )
                for of_text in found
            ],
        }


_NOTHING = AnswerSpan(0.0, 0, 0, "")


def answers(
    encoded: EncodedTexts,
    values: Values,
    *,
    top_k: int = 1,
    handle_impossible_answer: bool = False,
    max_answer_len: int = _USUAL_TOKENS,
    align_to_words: bool = True,
) -> list[list[AnswerSpan]]:
    """The best answers of each context, best first.

    Args:
        encoded: rows of a ``ContextEncoder``.
        values: ``[tokens of all rows, 2]`` logits of starts and ends.
        top_k: how many of each context at most.
        handle_impossible_answer: "" is an answer, too; its score is the lowest one of the first
            token of a row, over all windows.
        max_answer_len: tokens of an answer at most.
        align_to_words: an answer begins and ends with a whole word.
    """
    windows = encoded.windows
    if windows is None:
        raise ValueError("answers have no places in contexts that were not encoded in windows")
    found: list[dict[str, AnswerSpan]] = [{} for _ in windows.texts]
    nothing = [1.0] * len(windows.texts)
    # Several spans may be one answer once they are aligned to words.
    kept = 2 * top_k + 10 if align_to_words else top_k
    for row, (text, end) in enumerate(
        zip(windows.text_of, accumulate(encoded.tokens), strict=True)
    ):
        logits = values[end - encoded.tokens[row] : end]
        spans, null = _spans(logits, windows, row, kept, max_answer_len)
        nothing[text] = min(nothing[text], null)
        known = found[text]
        for first, last, score in spans:
            start, stop = _place(windows, row, first, last, aligned=align_to_words)
            answer = windows.texts[text][start:stop]
            same = known.get(answer.lower())
            known[answer.lower()] = (
                AnswerSpan(score, start, stop, answer)
                if same is None
                else same._replace(score=same.score + score)
            )
    every = [list(known.values()) for known in found]
    if handle_impossible_answer:
        for text, null in enumerate(nothing):
            every[text].append(AnswerSpan(null, 0, 0, ""))
    return [sorted(each, key=lambda one: one.score, reverse=True)[:top_k] for each in every]


def _spans(
    logits: Values, windows: Windows, row: int, kept: int, most: int
) -> tuple[list[tuple[int, int, float]], float]:
    """The best spans of a row, as first and last token of its context, and the score of none."""
    before = windows.before[row]
    after = before + len(windows.offsets[row])
    # The probabilities are of the context's tokens and of the row's first one, which says "none".
    seen = np.concatenate([logits[:1], logits[before:after]])
    if not windows.special_first:
        seen[0] = -np.inf
    shifted = np.exp(seen - seen.max(axis=0))
    probabilities = shifted / shifted.sum(axis=0)
    null = float(probabilities[0, 0] * probabilities[0, 1])
    starts, ends = probabilities[1:, 0], probabilities[1:, 1]
    count = len(starts)
    if not count:
        return [], null
    width = min(most, count)
    padded = np.concatenate([ends, np.zeros(width - 1, np.float32)])
    # A row for each start, a column for each further token of the span.
    scores = starts[:, None] * sliding_window_view(padded, width)
    # The best spans are in the rows whose best ones are best.
    first = _highest(scores.max(axis=1), kept)
    flat = scores[first].ravel()
    best = _highest(flat, kept)
    best = best[np.argsort(-flat[best], kind="stable")]
    spans = [
        (begin, begin + further, score)
        for begin, further, score in zip(
            first[best // width].tolist(),
            (best % width).tolist(),
            flat[best].tolist(),
            strict=True,
        )
    ]
    return [span for span in spans if span[1] < count], null


def _highest(scores: Values, count: int) -> NDArray[np.intp]:
    left = len(scores) - min(count, len(scores))
    return np.argpartition(scores, left)[left:]


def _place(windows: Windows, row: int, first: int, last: int, *, aligned: bool) -> tuple[int, int]:
    """First and behind the last character of a span, of whole words where the tokeniser has any."""
    offsets, words = windows.offsets[row], windows.words[row]
    if aligned and words[first] is not None and words[last] is not None:
        while first and words[first - 1] == words[first]:
            first -= 1
        while last + 1 < len(words) and words[last + 1] == words[last]:
            last += 1
    return offsets[first][0], offsets[last][1]


def _best(encoded: EncodedTexts, values: Values) -> list[AnswerSpan]:
    found = answers(encoded, values, handle_impossible_answer=True)
    return [of_text[0] for of_text in found]


def _class_of(found: AnswerSpan) -> str:
    characters = found.end - found.start
    if not characters:
        return NO_ANSWER
    return next((name for most, name in _LENGTHS.items() if characters <= most), _LONG)


def _options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: parameters[name] for name in _TAKEN if parameters.get(name) is not None}

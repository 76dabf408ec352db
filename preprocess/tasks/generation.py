"""Text generation: what a decoder writes after a prompt.

The engine answers token by token, so nothing is batched here and no dialect of texts gives an
answer. ``preprocess.written`` makes text of tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from contracts.events import TextRecord
from contracts.tasks import WRITTEN, Task
from preprocess.encoder import EncodedTexts
from preprocess.tasks.head import AnsweredTexts, Difference, Head, Output, SecondText, Side, Values

Finish = Literal["stop", "length"]
# Why a text ended: a token or a text that ends it, or as many tokens as were asked for.
STOP: Finish = "stop"
LENGTH: Finish = "length"
FINISHES: tuple[Finish, ...] = (STOP, LENGTH)


class TextGeneration(Head):
    """Values are float32 ``[tokens, 2]``: a token, and why the text ended with it.

    That is 0 for a text that goes on, and the place in ``FINISHES`` from 1.
    """

    task: ClassVar[Task] = Task.TEXT_GENERATION
    second_text: ClassVar[SecondText] = SecondText.NONE
    generates: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({WRITTEN})

    def records(
        self,
        encoded: EncodedTexts,
        values: Values,
        labels: tuple[str, ...],  # noqa: ARG002 - the same for every model
    ) -> list[TextRecord]:
        """Of one prompt, how many tokens were written after it, and why the text ended.

        A text that broke off has no label.
        """
        tokens, words, unk, truncated = encoded.statistics()[0]
        return [
            TextRecord(tokens, words, unk, truncated, label=_finish(values), generated=len(values))
        ]

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """The share of the longer text behind the first token that differs. Equal texts are."""
        a, b = ours.values[:, 0], theirs.values[:, 0]
        shorter, longer = sorted((len(a), len(b)))
        differing = np.flatnonzero(a[:shorter] != b[:shorter])
        same = int(differing[0]) if differing.size else shorter
        distance = 1 - same / longer if longer else 0.0
        finish = _finish(ours.values)
        labels: list[str] = [] if finish is None else [finish]
        return Difference(np.array([distance]), [distance == 0], labels, np.empty(0))

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401
        """Not of this task."""
        raise NotImplementedError

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """Not of this task."""
        raise NotImplementedError

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """Not of this task."""
        raise NotImplementedError


def values_of(tokens: Sequence[int], finish: Finish | None) -> Values:
    """The values of a text, float32 ``[tokens, 2]``; None for one that broke off."""
    values = np.zeros((len(tokens), 2), np.float32)
    values[:, 0] = tokens
    if finish is not None and len(values):
        values[-1, 1] = 1 + FINISHES.index(finish)
    return values


def _finish(values: Values) -> Finish | None:
    place = int(values[-1, 1]) if len(values) else 0
    return FINISHES[place - 1] if place else None

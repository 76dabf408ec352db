"""Answers as users' own code may change them: plain numbers in lists and dictionaries.

Only numbers change. Labels, dimensions and tokens stay the package's own, so that whatever comes
back can be rendered in every dialect, counted and compared as the model's own answer can.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

# Not needed where a worker imports this: tokenisers and all tasks take long to import.
if TYPE_CHECKING:
    from preprocess.encoder import EncodedTexts
    from preprocess.tasks.head import Head

Values = NDArray[np.float32]
_TOLERANCE = 1e-4  # of probabilities, which are clipped to 0 and 1


class EditError(ValueError):
    """What came back can't be an answer; the message names the text and what is wrong."""


class TokenRow(msgspec.Struct, frozen=True, array_like=True):
    """One window of a text: where its first token is in the values, and each token's characters."""

    text: int
    first: int
    places: list[tuple[int, int]]


class Form(msgspec.Struct, frozen=True):
    """What of values belongs to which answer.

    ``labels`` are in the order of the columns, none for vectors. ``probabilities``: they are from 0
    to 1. ``tokens``: of answers about tokens, the windows of all texts, in their order.
    """

    answers: int
    labels: list[str]
    probabilities: bool
    tokens: list[TokenRow] | None = None


def is_editable(head: "Head") -> bool:
    """Whether the answers of a task can be changed: of rows always, of tokens where it says so."""
    return head.rank == 2 or head.by_tokens


def form_of(head: "Head", labels: Sequence[str], encoded: "EncodedTexts") -> Form:
    """The form of answers.

    Raises:
        EditError: answers of this task can't be changed.
    """
    if not is_editable(head):
        raise EditError(f"answers of {head.task} can't be changed by postprocess")
    if not head.by_tokens:
        return Form(len(encoded), list(labels), head.probabilities)
    windows = encoded.windows
    if windows is None:
        raise EditError("answers about tokens need the windows of their texts")
    firsts = [0, *accumulate(encoded.tokens)][:-1]
    rows = [
        TokenRow(text, first + before, list(places))
        for text, first, before, places in zip(
            windows.text_of, firsts, windows.before, windows.offsets, strict=True
        )
    ]
    return Form(len(windows.texts), list(labels), head.probabilities, rows)


def shown(form: Form, values: Values) -> list[Any]:
    """The answers, one a text.

    With labels ``{label: number}``; without, the vector as a list of numbers. Of labels of tokens a
    list of ``{"start", "end", "scores": {label: number}}``, one for each token of the text; the
    tokens that two windows of a long text share are there twice.
    """
    if form.tokens is None:
        if not form.labels:
            return list(values.tolist())
        return [dict(zip(form.labels, row, strict=True)) for row in values.tolist()]
    found: list[list[dict[str, Any]]] = [[] for _ in range(form.answers)]
    for row in form.tokens:
        scored = values[row.first : row.first + len(row.places)].tolist()
        for (start, end), scores in zip(row.places, scored, strict=True):
            token = dict(zip(form.labels, scores, strict=True))
            found[row.text].append({"start": start, "end": end, "scores": token})
    return found


def taken(form: Form, items: Sequence[Any], values: Values) -> Values:
    """The values of changed answers, float32 of the shape of ``values``.

    Raises:
        EditError: another number of answers, other labels, another dimension, or what is no number.
    """
    expected, width = form.answers, values.shape[1]
    if not isinstance(items, Sequence) or isinstance(items, str | bytes) or len(items) != expected:
        got = f"{len(items)}" if isinstance(items, Sequence) else type(items).__name__
        raise EditError(f"postprocess must return as many answers as it got: {expected}, not {got}")
    if form.tokens is None:
        rows = [_row(item, width, form.labels, f"answer {at}") for at, item in enumerate(items)]
        return checked(form, np.array(rows, np.float64).reshape(values.shape))
    made = values.astype(np.float64)
    done = [0] * expected
    for row in form.tokens:
        tokens = _tokens(items[row.text], row.text)
        start = done[row.text]
        done[row.text] += len(row.places)
        for at, token in enumerate(tokens[start : done[row.text]]):
            where = f"answer {row.text}, token {start + at}"
            if not isinstance(token, Mapping):
                raise EditError(f"{where}: expected a dictionary with scores")
            made[row.first + at] = _row(token.get("scores"), width, form.labels, where)
    for text, item in enumerate(items):
        if len(_tokens(item, text)) != done[text]:
            raise EditError(
                f"answer {text}: postprocess must return as many tokens as it got: {done[text]}"
            )
    return checked(form, made)


def checked(form: Form, values: NDArray[np.floating]) -> Values:
    """Values as float32, probabilities within 0 and 1.

    Raises:
        EditError: they can't be those of answers.
    """
    if form.probabilities:
        if not ((values >= -_TOLERANCE) & (values <= 1 + _TOLERANCE)).all():
            raise EditError("postprocess must return probabilities, from 0 to 1")
        values = np.clip(values, 0.0, 1.0)
    with np.errstate(over="ignore"):
        made: Values = values.astype(np.float32)
    if not np.isfinite(made).all():
        raise EditError("postprocess returned NaN, infinity, or a number too large for float32")
    return made


def _tokens(item: Any, text: int) -> Sequence[Any]:  # noqa: ANN401 - whatever users return
    if not isinstance(item, Sequence) or isinstance(item, str):
        raise EditError(f"answer {text}: expected a list of tokens")
    return item


def _row(item: Any, width: int, labels: Sequence[str], where: str) -> list[float]:  # noqa: ANN401
    if labels:
        if not isinstance(item, Mapping):
            raise EditError(f"{where}: expected a dictionary from label to number")
        if len(item) != len(labels) or any(label not in item for label in labels):
            raise EditError(f"{where}: its labels must stay: {', '.join(labels)[:200]}")
        row = [item[label] for label in labels]
    else:
        if isinstance(item, str | bytes | Mapping) or not hasattr(item, "__len__"):
            raise EditError(f"{where}: expected a list of {width} numbers")
        if len(item) != width:
            raise EditError(f"{where}: expected {width} numbers, not {len(item)}")
        row = list(item)
    for number in row:
        if isinstance(number, bool) or not isinstance(number, int | float | np.number):
            raise EditError(f"{where}: {type(number).__name__} is no number")
    return row

"""Answers as users' own code may change them: plain numbers in lists and dictionaries.

Only numbers change. Labels, dimensions and tokens stay the package's own, so that whatever comes
back can be rendered in every dialect, counted and compared as the model's own answer can.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from preprocess.encoder import Encoded, Windows
from preprocess.tasks.head import Head, Values

_TOLERANCE = 1e-4  # of probabilities, which are clipped to 0 and 1


class EditError(ValueError):
    """What came back can't be an answer; the message names the text and what is wrong."""


def is_editable(head: Head) -> bool:
    """Whether the answers of a task can be changed: of rows always, of tokens where it says so."""
    return head.rank == 2 or head.by_tokens


def shown(head: Head, values: Values, labels: Sequence[str], encoded: Encoded) -> list[Any]:
    """The answers, one a text.

    With labels ``{label: number}``; without, the vector as a list of numbers. Of labels of tokens a
    list of ``{"start", "end", "scores": {label: number}}``, one for each token of the text; the
    tokens that two windows of a long text share are there twice.

    Args:
        head: of the task.
        values: as the head made them.
        labels: in the order of the columns; none for vectors.
        encoded: the rows that the values are of.

    Raises:
        EditError: answers of this task can't be changed.
    """
    if not is_editable(head):
        raise EditError(f"answers of {head.task} can't be changed by postprocess")
    if not head.by_tokens:
        if not labels:
            return list(values.tolist())
        return [dict(zip(labels, row, strict=True)) for row in values.tolist()]
    windows = _windows(encoded)
    found: list[list[dict[str, Any]]] = [[] for _ in windows.texts]
    for row, first in enumerate(_firsts(encoded)):
        places = windows.offsets[row]
        start = first + windows.before[row]
        for (begin, end), scores in zip(
            places, values[start : start + len(places)].tolist(), strict=True
        ):
            token: dict[str, Any] = {
                "start": begin,
                "end": end,
                "scores": dict(zip(labels, scores, strict=True)),
            }
            found[windows.text_of[row]].append(token)
    return found


def taken(
    head: Head,
    items: Sequence[Any],
    values: Values,
    labels: Sequence[str],
    encoded: Encoded,
) -> Values:
    """The values of changed answers, float32 of the shape of ``values``.

    Args:
        head: of the task.
        items: as ``shown`` gave them, with other numbers.
        values: what ``items`` was made of.
        labels: in the order of the columns; none for vectors.
        encoded: the rows that the values are of.

    Raises:
        EditError: another number of answers, other labels, another dimension, or what is no number.
    """
    expected = len(_windows(encoded).texts) if head.by_tokens else len(values)
    if not isinstance(items, Sequence) or isinstance(items, str | bytes) or len(items) != expected:
        found = f"{len(items)}" if isinstance(items, Sequence) else type(items).__name__
        raise EditError(
            f"postprocess must return as many answers as it got: {expected}, not {found}"
        )
    if not head.by_tokens:
        rows = [
            _row(item, values.shape[1], labels, f"answer {at}") for at, item in enumerate(items)
        ]
        return _checked(np.array(rows, np.float64), head)
    windows = _windows(encoded)
    made = values.astype(np.float64)
    at = [0] * expected
    for row, first in enumerate(_firsts(encoded)):
        text, count = windows.text_of[row], len(windows.offsets[row])
        tokens = _tokens(items[text], text)[at[text] : at[text] + count]
        at[text] += count
        if len(tokens) != count:
            raise EditError(f"answer {text}: postprocess must return as many tokens as it got")
        start = first + windows.before[row]
        for place, changed in enumerate(tokens):
            where = f"answer {text}, token {place}"
            if not isinstance(changed, Mapping):
                raise EditError(f"{where}: expected a dictionary with scores")
            made[start + place] = _row(changed.get("scores"), values.shape[1], labels, where)
    if any(len(_tokens(item, text)) != at[text] for text, item in enumerate(items)):
        raise EditError("postprocess must return as many tokens of each text as it got")
    return _checked(made, head)


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


def _checked(made: np.ndarray[Any, np.dtype[np.float64]], head: Head) -> Values:
    if head.probabilities:
        if not ((made >= -_TOLERANCE) & (made <= 1 + _TOLERANCE)).all():
            raise EditError("postprocess must return probabilities, from 0 to 1")
        made = np.clip(made, 0.0, 1.0)
    with np.errstate(over="ignore"):
        values: Values = made.astype(np.float32)
    if not np.isfinite(values).all():
        raise EditError("postprocess returned NaN, infinity, or a number too large for float32")
    return values


def _firsts(encoded: Encoded) -> list[int]:
    return [0, *accumulate(encoded.tokens)][:-1]


def _windows(encoded: Encoded) -> Windows:
    if encoded.windows is None:
        raise EditError("answers about tokens need the windows of their texts")
    return encoded.windows

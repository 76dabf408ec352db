"""Users' own preprocessing and postprocessing: what it is given, and what it may return.

A hook is an object with ``preprocess``, ``postprocess`` or both. It runs in the gateway where an
operator has installed it, and in a process of its own where a model version brings it. Both call it
through this module, so that it is given the same and held to the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

MOST_VALUES = 4096  # observed of one request
_MOST_CHARACTERS = 100  # of a name or a category
Observed = dict[str, list[float | str]]


@dataclass(slots=True)
class State:
    """One request, as a hook sees it. ``postprocess`` gets what ``preprocess`` has left in it.

    Attributes:
        endpoint: its name.
        request_id: as in the answer's headers.
        version: that answers; empty for a hook of the endpoint before it is known.
        labels: of the version, in the order of its answers; none for vectors.
        texts: as they came to the hook.
        pairs: the second texts of an endpoint that reads pairs, None if none was sent.
            ``preprocess`` may set as many others in their place.
        data: whatever ``preprocess`` leaves for ``postprocess``. Of a hook that a version brings,
            what JSON can hold.
        observed: values of statistics, by name.
    """

    endpoint: str
    request_id: str
    pairs: Sequence[str] | None = None
    version: str = ""
    labels: Sequence[str] = ()
    texts: Sequence[str] = ()
    data: dict[str, Any] = field(default_factory=dict)
    observed: Observed = field(default_factory=dict)
    _left: int = MOST_VALUES

    def observe(self, name: str, value: float | str) -> None:
        """Adds a value to a statistic: a number, or the name of a category.

        A statistic that the endpoint does not declare in ``statistics`` is counted and reported,
        but its values are not kept.

        Raises:
            TypeError: neither a number nor a string.
            ValueError: NaN, infinity, a string that is too long, or more than ``MOST_VALUES``
                values in one request.
        """
        if isinstance(value, str):
            kept: float | str = value
        else:
            kept = float(value)
            if not math.isfinite(kept):
                raise ValueError(f"{name}: {value} is not a finite number")
        if max(len(name), len(kept) if isinstance(kept, str) else 0) > _MOST_CHARACTERS:
            raise ValueError(f"{name[:40]}: more than {_MOST_CHARACTERS} characters")
        if self._left <= 0:
            raise ValueError(f"more than {MOST_VALUES} values in one request")
        self._left -= 1
        self.observed.setdefault(name, []).append(kept)

    def observe_all(self, observed: Mapping[str, Sequence[float | str]]) -> None:
        """Adds many values; raises as ``observe``."""
        for name, values in observed.items():
            for value in values:
                self.observe(name, value)

    def for_answer(self, version: str, labels: Sequence[str], observed: Observed | None) -> "State":
        """What ``postprocess`` gets of it: a copy, as a request may have several answers."""
        return replace(
            self,
            version=version,
            labels=labels,
            data=dict(self.data),
            observed={name: list(values) for name, values in (observed or {}).items()},
        )


class Preprocessor(Protocol):
    """What users implement, or ``Postprocessor``, or both. It is made without arguments."""

    def preprocess(self, texts: Sequence[str], state: State) -> Sequence[str] | None:
        """Returns the texts for the model, as many as it got, or None to leave them unchanged."""


class Postprocessor(Protocol):
    """What users implement to change answers."""

    def postprocess(self, answers: list[Any], state: State) -> list[Any] | None:
        """Returns the answers for the caller, as many as it got, or None to leave them unchanged.

        ``preprocess.edits.shown`` says what an answer is.
        """


Hook = Preprocessor | Postprocessor


def has_part(hook: object, name: str) -> bool:
    """Whether a hook has ``preprocess`` or ``postprocess``, whichever is named."""
    return callable(getattr(hook, name, None))


def run_preprocess(hook: object, state: State) -> tuple[list[str], list[str] | None]:
    """The texts for the model and their second texts, of the state's own.

    Raises:
        TypeError: it returned what are no strings.
        ValueError: it returned another number of texts.
        Exception: whatever the hook raises.
    """
    texts, pairs = state.texts, state.pairs
    returned = hook.preprocess(tuple(texts), state)  # type: ignore[attr-defined]
    changed = _texts(returned, texts)
    second = None if pairs is None else list(pairs)
    if state.pairs is not pairs:
        if pairs is None:
            raise ValueError("a preprocessor must not give second texts to a request without them")
        second = _texts(state.pairs, pairs)
    return changed, second


def _texts(texts: Sequence[str] | None, original: Sequence[str]) -> list[str]:
    if texts is None:
        return list(original)
    if isinstance(texts, str) or len(texts) != len(original):
        raise ValueError(f"a preprocessor must return as many texts as it got: {len(original)}")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a preprocessor must return strings")
    return list(texts)

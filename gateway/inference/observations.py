"""Users' own preprocessing hooks, and the statistics that they record.

A Python package that is installed beside the gateway names a class under the entry point group
``headrace.preprocessors``. The name of the entry point is the endpoint that the class is for. Entry
points are looked up once, at the start of the process. A hook that fails is counted, and logged
once for each class of error; its request continues with the original texts.

Hooks run on the event loop, after a request was admitted and before it is tokenised. They may
change the texts, must be fast and must not block.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

import msgspec

from gateway.calls import Call

log = logging.getLogger(__name__)

GROUP = "headrace.preprocessors"
MOST_VALUES = 4096  # observed of one request
_MOST_CHARACTERS = 100  # of a name or a category
Observed = dict[str, list[float | str]]


@dataclass(slots=True)
class State:
    """One request, as a hook sees it.

    ``pairs`` are the second texts of an endpoint that reads pairs, None where none was sent. A hook
    may set as many others in their place.
    """

    endpoint: str
    request_id: str
    pairs: Sequence[str] | None = None
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


class Preprocessor(Protocol):
    """What users implement. A gateway makes one instance of it, without arguments."""

    def preprocess(self, texts: Sequence[str], state: State) -> Sequence[str] | None:
        """Returns the texts for the model, as many as it got, or None to leave them unchanged."""
        ...


class HookMetrics(Protocol):
    """Counts hooks that failed."""

    def hook_failed(self, endpoint: str, reason: str) -> None:
        """One request whose hook failed; ``reason`` is the error's class."""
        ...


class Hooks:
    """The preprocessors of a process, by endpoint.

    Args:
        by_endpoint: the preprocessor of each endpoint that has one.
        metrics: counts failures.
    """

    def __init__(self, by_endpoint: Mapping[str, Preprocessor], metrics: HookMetrics) -> None:
        self._by_endpoint = dict(by_endpoint)
        self._metrics = metrics
        self._logged: set[tuple[str, str]] = set()

    def run(self, call: Call) -> Call:
        """The call with the texts and observations of its endpoint's hook, if it has one."""
        hook = self._by_endpoint.get(call.endpoint)
        if hook is None:
            return call
        original = None if call.pairs is None else tuple(call.pairs)
        state = State(call.endpoint, call.request_id, original)
        pairs = call.pairs
        try:
            texts = _checked(hook.preprocess(tuple(call.texts), state), call.texts)
            if state.pairs is not original:
                pairs = _checked_pairs(state.pairs, call.pairs)
        except Exception as error:  # the user's own code may raise anything
            texts, pairs = call.texts, call.pairs
            reason = type(error).__name__
            self._metrics.hook_failed(call.endpoint, reason)
            if (call.endpoint, reason) not in self._logged:
                self._logged.add((call.endpoint, reason))
                log.exception("a preprocessor failed", extra={"endpoint": call.endpoint})
        return msgspec.structs.replace(
            call, texts=texts, pairs=pairs, observed=state.observed or None
        )


def _checked(texts: Sequence[str] | None, original: list[str]) -> list[str]:
    if texts is None:
        return original
    if isinstance(texts, str) or len(texts) != len(original):
        raise ValueError(f"a preprocessor must return as many texts as it got: {len(original)}")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a preprocessor must return strings")
    return list(texts)


def _checked_pairs(pairs: Sequence[str] | None, original: list[str] | None) -> list[str] | None:
    if original is None:
        raise ValueError("a preprocessor must not give second texts to a request without them")
    return _checked(pairs, original)


def find_hooks(metrics: HookMetrics, found: Iterable[EntryPoint] | None = None) -> Hooks | None:
    """The installed hooks, None if there are none. One that can't be loaded is logged and skipped.

    Args:
        metrics: counts failures.
        found: the entry points; those of the group where None.
    """
    by_endpoint: dict[str, Preprocessor] = {}
    for point in entry_points(group=GROUP) if found is None else found:
        try:
            by_endpoint[point.name] = point.load()()
        except Exception:  # as above: its import may raise anything
            log.exception("a preprocessor can't be loaded", extra={"entry_point": point.value})
        else:
            log.info("preprocessor", extra={"endpoint": point.name, "entry_point": point.value})
    return Hooks(by_endpoint, metrics) if by_endpoint else None

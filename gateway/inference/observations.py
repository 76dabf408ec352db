"""Users' own hooks that an operator has installed: they run in this process and are trusted.

A Python package that is installed beside the gateway names a class under the entry point group
``headrace.preprocessors``. The name of the entry point is the endpoint that the class is for. Entry
points are looked up once, at the start of the process. A hook that fails is counted, and logged
once for each class of error; its request continues with the original texts and answers.

Hooks run on the event loop: ``preprocess`` after a request was admitted and before it is tokenised,
``postprocess`` once its answer is known. They must be fast and must not block.
"""

import logging
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.calls import Call
from gateway.inference.attempt import Attempt
from preprocess import edits
from preprocess.hooks import Hook, State, has_part, run_preprocess

log = logging.getLogger(__name__)

GROUP = "headrace.preprocessors"
_FAILED = "a preprocessor failed"


class HookMetrics(Protocol):
    """Counts hooks that failed."""

    def hook_failed(self, endpoint: str, reason: str) -> None:
        """One request whose hook failed; ``reason`` is the error's class."""


class Hooks:
    """The hooks of a process, by endpoint."""

    def __init__(self, by_endpoint: Mapping[str, Hook], metrics: HookMetrics) -> None:
        self._by_endpoint = dict(by_endpoint)
        self._metrics = metrics
        self._logged: set[tuple[str, str]] = set()

    def run(self, call: Call) -> Call:
        """The call with the texts and observations of its endpoint's hook, if it has one."""
        hook = self._by_endpoint.get(call.endpoint)
        if hook is None:
            return call
        original = None if call.pairs is None else tuple(call.pairs)
        state = State(call.endpoint, call.request_id, original, texts=tuple(call.texts))
        texts, pairs = call.texts, call.pairs
        if has_part(hook, "preprocess"):
            try:
                texts, pairs = run_preprocess(hook, state)
            except Exception as error:  # the user's own code may raise anything
                if self._is_new(call.endpoint, error):
                    log.exception(_FAILED, extra={"endpoint": call.endpoint})
        state.pairs = original
        return msgspec.structs.replace(
            call, texts=texts, pairs=pairs, observed=state.observed or None, hook_state=state
        )

    def finish(self, attempt: Attempt, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The values of an answer as the hook's ``postprocess`` leaves them.

        What it observes is left in the attempt.
        """
        call, model = attempt.call, attempt.target.model
        hook = self._by_endpoint.get(call.endpoint)
        if hook is None or call.hook_state is None or not has_part(hook, "postprocess"):
            return values
        manifest = model.manifest
        observed = attempt.observed or call.observed
        state = call.hook_state.for_answer(model.ref.version, manifest.labels, observed)
        try:
            form = edits.form_of(model.head, manifest.labels, attempt.encoded)
            changed = hook.postprocess(edits.shown(form, values), state)  # type: ignore[union-attr]
            if changed is not None:
                values = edits.taken(form, changed, values)
        except Exception as error:
            if self._is_new(call.endpoint, error):
                log.exception(_FAILED, extra={"endpoint": call.endpoint})
        attempt.observed = state.observed
        return values

    def _is_new(self, endpoint: str, error: Exception) -> bool:
        """Counts a failure; whether it is the first one of its class."""
        reason = type(error).__name__
        self._metrics.hook_failed(endpoint, reason)
        known = (endpoint, reason) in self._logged
        self._logged.add((endpoint, reason))
        return not known


def find_hooks(metrics: HookMetrics, found: Iterable[EntryPoint] | None = None) -> Hooks | None:
    """The installed hooks, None if there are none; one that can't be loaded is only logged."""
    by_endpoint: dict[str, Hook] = {}
    for point in entry_points(group=GROUP) if found is None else found:
        try:
            hook = point.load()()
            if not (has_part(hook, "preprocess") or has_part(hook, "postprocess")):
                raise TypeError(f"{point.value} has neither preprocess nor postprocess")
            by_endpoint[point.name] = hook
        except Exception:  # as above: its import may raise anything
            log.exception("a preprocessor can't be loaded", extra={"entry_point": point.value})
        else:
            log.info("preprocessor", extra={"endpoint": point.name, "entry_point": point.value})
    return Hooks(by_endpoint, metrics) if by_endpoint else None

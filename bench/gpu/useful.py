"""How much of the time a packed engine's device computes tokens of texts, by the engine's counts.

Triton's metrics are read while a load runs. The engine tells its counts four times a second, so
that the times at which they change bound a stretch within the load; what came before the first
change and after the last but one is left out, since the load begins and ends there.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
from prometheus_client.parser import text_string_to_metric_families

from contracts.triton_metrics import PADDING, SECONDS, TOKENS

_EVERY_SECONDS = 0.05
_LEAST_CHANGES = 4
_CLIENT = httpx.Client(trust_env=False)  # to make one takes longer than to ask


class Useful:
    """Counts of one Triton's packed engines, as they change."""

    def __init__(self) -> None:
        self._changes: list[tuple[float, float, float, float]] = []

    def read(self, now: float, seconds: float, tokens: float, padding: float) -> None:
        """Takes in the sums of all models at a moment."""
        if not self._changes or self._changes[-1][1:] != (seconds, tokens, padding):
            self._changes.append((now, seconds, tokens, padding))

    def share(self) -> float | None:
        """Of the time; None if too little was seen."""
        if len(self._changes) < _LEAST_CHANGES:
            return None
        first, last = self._changes[1], self._changes[-2]
        took, computed, tokens, padding = (b - a for a, b in zip(first, last, strict=True))
        if not took or not tokens:
            return None
        return computed / took * tokens / (tokens + padding)


def counts(page: str) -> tuple[float, float, float]:
    """Seconds, tokens and padding of all models, out of a page of metrics."""
    samples = [sample for each in text_string_to_metric_families(page) for sample in each.samples]
    seconds, tokens, padding = (
        sum(sample.value for sample in samples if sample.name == each.name)
        for each in (SECONDS, TOKENS, PADDING)
    )
    return seconds, tokens, padding


def _page(port: int) -> str:
    return _CLIENT.get(f"http://127.0.0.1:{port}/metrics").text


@contextmanager
def watched(port: int, page: Callable[[int], str] = _page) -> Iterator[Useful]:
    """What the packed engines of a Triton do until the block ends.

    Args:
        port: of its metrics; 0 if it has none: then nothing is ever seen.
        page: reads them.
    """
    useful, over = Useful(), threading.Event()

    def follow() -> None:
        while not over.wait(_EVERY_SECONDS):
            now = time.monotonic()
            useful.read(now, *counts(page(port)))

    reader = threading.Thread(target=follow, daemon=True)
    if port:
        reader.start()
    try:
        yield useful
    finally:
        over.set()
        if port:
            reader.join()

"""Counts what a packed engine does, and tells Triton now and then, for Triton's ``/metrics``.

Each message to Triton's process about a counter takes about as long as a small run's launch, so
runs add up here first. Names, labels and help are those of ``contracts/triton_metrics.py``: the
counters of all packed models are of the same families, told apart by ``model`` and ``version``.
Several instances of one model add to the same counters, and one that is loaded again goes on.
"""

import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Protocol

RUNS = "headrace_packed_runs_total"
MESSAGES = "headrace_packed_messages_total"
TOKENS = "headrace_packed_tokens_total"
PADDING = "headrace_packed_padding_tokens_total"
SECONDS = "headrace_packed_device_seconds_total"
REFUSED = "headrace_packed_refused_total"
RETRIED = "headrace_packed_retried_total"
COUNTERS: Mapping[str, str] = {
    RUNS: "Runs of a packed engine.",
    MESSAGES: "Requests that joined these runs.",
    TOKENS: "Tokens of texts in these runs.",
    PADDING: "Tokens that filled these runs up, and that nobody reads.",
    SECONDS: "Time in which the device computed these runs.",
    REFUSED: "Requests that were refused because too much was held.",
    RETRIED: "Requests that were tried again by themselves, since their run had failed.",
}
EVERY_SECONDS = 0.25


class MetricCounter(Protocol):
    """One of Triton's."""

    def increment(self, value: float) -> None:
        """Adds."""


class Counts:
    """Adds up what happens, for several threads; see ``packed_joining.Meter``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums = dict.fromkeys(COUNTERS, 0.0)

    def note_run(self, messages: int, tokens: int, computed: int, seconds: float) -> None:
        """A run is over: its messages, their tokens, all that were computed, and its time."""
        with self._lock:
            self._sums[RUNS] += 1
            self._sums[MESSAGES] += messages
            self._sums[TOKENS] += tokens
            self._sums[PADDING] += computed - tokens
            self._sums[SECONDS] += seconds

    def note_refusal(self) -> None:
        """A request found too much held."""
        with self._lock:
            self._sums[REFUSED] += 1

    def note_retry(self, messages: int) -> None:
        """Requests of a run that failed are tried again, each by itself."""
        with self._lock:
            self._sums[RETRIED] += messages

    def take(self) -> dict[str, float]:
        """What has been counted since it was last taken."""
        with self._lock:
            taken, self._sums = self._sums, dict.fromkeys(COUNTERS, 0.0)
        return taken


class Exporter(threading.Thread):
    """Tells Triton what was counted, until it is stopped.

    Args:
        counts: where it is taken from.
        counters: by name; with none of them nothing is told.
    """

    def __init__(self, counts: Counts, counters: Mapping[str, MetricCounter]) -> None:
        super().__init__(name="counts", daemon=True)
        self._counts = counts
        self._counters = counters
        self._stopped = threading.Event()

    def run(self) -> None:
        """Tells it every ``EVERY_SECONDS``, and once more at the end."""
        try:
            while not self._stopped.wait(EVERY_SECONDS):
                self._tell()
            self._tell()
        except Exception:  # noqa: BLE001 - Triton's errors have no common base; answers go on
            traceback.print_exc(file=sys.stderr)

    def stop(self) -> None:
        """Tells the rest, and ends."""
        self._stopped.set()
        self.join()

    def _tell(self) -> None:
        taken = self._counts.take()
        for name, counter in self._counters.items():
            if taken[name]:
                counter.increment(taken[name])

"""Metrics of our own that Triton exposes: those of its packed engines. No I/O.

``triton/packed_model/packed_counts.py`` counts them; it can import nothing of ours, so that a test
holds both to each other. Triton's own, ``nv_``, are in its documentation.
"""

from typing import Final

from contracts.metrics import counter

_LABELS: Final = ("model", "version")

RUNS: Final = counter("packed_runs", "Runs of a packed engine.", *_LABELS)
MESSAGES: Final = counter("packed_messages", "Requests that joined these runs.", *_LABELS)
TOKENS: Final = counter("packed_tokens", "Tokens of texts in these runs.", *_LABELS)
PADDING: Final = counter(
    "packed_padding_tokens", "Tokens that filled these runs up, and that nobody reads.", *_LABELS
)
SECONDS: Final = counter(
    "packed_device_seconds", "Time in which the device computed these runs.", *_LABELS
)
REFUSED: Final = counter(
    "packed_refused", "Requests that were refused because too much was held.", *_LABELS
)
RETRIED: Final = counter(
    "packed_retried",
    "Requests that were tried again by themselves, since their run had failed.",
    *_LABELS,
)
PACKED: Final = (RUNS, MESSAGES, TOKENS, PADDING, SECONDS, REFUSED, RETRIED)

"""How many random examples a test runs."""

from collections.abc import Callable

import hypothesis

# Where Hypothesis keeps what a test asks for: a profile does not change it.
_KEPT = "_hypothesis_internal_use_settings"


def limit_examples(test: Callable[..., object], most: int) -> None:
    """Gives a test no more random examples than this, whatever it asks for."""
    asked = getattr(test, _KEPT, None)
    if asked is not None and asked.max_examples > most:
        setattr(test, _KEPT, hypothesis.settings(asked, max_examples=most))

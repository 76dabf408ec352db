"""Points in time as people write them in options."""

import math
import time
from contextlib import suppress
from datetime import UTC, datetime

import typer


def moment(text: str, option: str) -> float:
    """Unix seconds of ``now``, ``15m`` (ago), ``2026-03-01T12:00:00Z`` or unix seconds.

    A date without a zone is of UTC, as everything that the services write.

    Args:
        text: what was written.
        option: where, for the message.

    Raises:
        typer.BadParameter: it is none of these.
    """
    if text == "now":
        return time.time()
    try:
        value = float(text)
    except ValueError:
        value = _written(text, option)
    if not math.isfinite(value) or value < 0:
        raise typer.BadParameter("it must lie after 1970", param_hint=option)
    return value


def _written(text: str, option: str) -> float:
    from contracts.durations import seconds

    with suppress(ValueError):  # else it is a date
        return time.time() - seconds(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            "a time is written as 15m (ago), now, 2026-03-01T12:00:00Z or in unix seconds",
            param_hint=option,
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()

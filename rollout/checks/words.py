"""How figures are written in the sentences of checks: 7,600 requests, 3.0 %, 2 points.

Sentences are for people in a hurry: counts, shares, and what follows.
"""

import math
import re

from contracts.rollout import ToleranceLine


def count(number: float) -> str:
    """A count with its thousands parted: ``7,600``."""
    return f"{number:,.0f}"


def percent(share: float) -> str:
    """A share: ``3.0 %``; with more digits if it is small."""
    digits = 1 if share == 0 or share >= 0.001 else 3
    return f"{100 * share:.{digits}f} %"


def share_of(events: float, requests: float) -> str:
    """``12 of 400 (3.0 %)``; ``none`` if nothing was seen."""
    if requests <= 0:
        return "none"
    return f"{count(events)} of {count(requests)} ({percent(events / requests)})"


def points(share: float) -> str:
    """A difference of shares: ``2 points``."""
    number = f"{100 * share:g}"
    return f"{number} point" if number == "1" else f"{number} points"


def by_more_than(line: ToleranceLine) -> str:
    """``by more than 1.25 times and 1 point``, or nothing for equality itself."""
    parts = [f"{line.relative:g} times"] if line.relative > 1 else []
    if line.absolute > 0:
        parts.append(points(line.absolute))
    return f" by more than {' and '.join(parts)}" if parts else ""


# Of evidence that would be enough, but not without some callers or windows.
RESTS_ON_FEW = "what speaks against it comes only from one group of callers, or one window"


def evidence(found: float, needed: float) -> str:
    """``evidence 143 against 80 needed``."""
    return f"evidence {_short(found)} against {_short(needed)} needed"


def still_needed(requests: int | None) -> str:
    """``about 800 more of the candidate's requests are needed``."""
    if requests is None:
        return "more of the candidate's requests are needed"
    return f"about {count(requests)} more of the candidate's requests are needed"


_NEEDED = re.compile(
    r"not yet known(.*?), (?:about [\d,]+ )?more of the candidate's requests are needed"
)


def conclude(reason: str) -> str:
    """A check's reason once its rollout has ended, when no request can be added any more."""
    return _NEEDED.sub(r"not known\1 when the rollout ended", reason)


def _short(value: float) -> str:
    if value >= 1e6:
        return f"1e{math.floor(math.log10(value))}"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"

"""How long to wait before a process that died is started again."""

FIRST_SECONDS = 0.2
LAST_SECONDS = 5.0
SETTLED_SECONDS = 30.0


def delay_seconds(failures: int) -> float:
    """The wait before the next start, after ``failures`` (>= 1) deaths in a row.

    Doubles from 0.2 s up to 5 s. A process that ran longer than ``SETTLED_SECONDS`` begins again
    at one.
    """
    return float(min(LAST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures - 1, 16)))


def failures_after(failures: int, ran_seconds: float) -> int:
    """The count of deaths in a row after one more, the last run having lasted ``ran_seconds``."""
    return 1 if ran_seconds >= SETTLED_SECONDS else failures + 1

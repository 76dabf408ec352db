"""The settings of the week say what they mean, or say what is wrong."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from measures.rhythm import Week
from stats.evaluate_main import week_of


def test_days_and_zone_make_a_week() -> None:
    assert week_of("UTC", "saturday,sunday") == Week(UTC, (5, 6))
    assert week_of("Europe/Berlin", " Friday, saturday ") == Week(ZoneInfo("Europe/Berlin"), (4, 5))
    assert week_of("UTC", "").kinds == 1


@pytest.mark.parametrize(("zone", "days"), [("Mars/Base", ""), ("UTC", "sonntag"), ("../x", "")])
def test_what_there_is_not_is_named(zone: str, days: str) -> None:
    with pytest.raises(ValueError, match=r"Mars/Base|sonntag|x"):
        week_of(zone, days)

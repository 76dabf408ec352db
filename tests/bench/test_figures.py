import math

from bench.figures import Better, Figure, Report, Target, table


def test_a_ratio_of_one_or_more_means_reached_whichever_side_is_better() -> None:
    assert Figure("rate", "1/s", [8000, 6000, 7000], Target(6000, Better.MORE)).ratio == 7000 / 6000
    assert Figure("p99", "ms", [4.0], Target(2.0, Better.LESS)).ratio == 0.5


def test_the_median_leaves_out_rounds_without_a_value() -> None:
    assert Figure("p99", "ms", [math.nan, 3.0, 1.0, 2.0]).median == 2.0
    assert math.isnan(Figure("p99", "ms", [math.nan]).median)


def test_a_figure_without_a_target_has_no_ratio() -> None:
    assert Figure("rate", "1/s", [1.0]).ratio is None


def test_the_table_shows_median_spread_target_and_ratio() -> None:
    report = Report("gateway", "alone")
    report.add("most", "texts/s", [5000, 6600, 6000], Target(6000, Better.MORE), "note")
    text = table(report)
    for part in ("6,000", "5,000 .. 6,600", "at least 6,000", "1.00", "most: note"):
        assert part in text

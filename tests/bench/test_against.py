"""Two commits compared in alternate rounds."""

from bench.against import compare, table


def test_figures_that_both_have_are_compared_round_by_round() -> None:
    other = [{"a": 100.0, "only other": 1.0}, {"a": 50.0}]
    this = [{"a": 110.0, "only this": 2.0}, {"a": 60.0}]
    compared = compare(other, this)
    assert compared == {"a": {"other": [100.0, 50.0], "this": [110.0, 60.0], "ratios": [1.1, 1.2]}}
    assert "| a | 75 | 85 | 1.15 (1.10 to 1.20) |" in table(compared)


def test_a_figure_that_was_zero_has_no_ratio() -> None:
    compared = compare([{"failed": 0.0}], [{"failed": 0.0}])
    assert compared["failed"]["ratios"] == []
    assert table(compared).endswith("| failed | 0 | 0 |  |")

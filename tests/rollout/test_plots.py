"""Plots as SVG: what is drawn, and what is not."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.plots import WIDTH, PlotLine, PlotMark, ceiling, clock, moments, number, plot


def drawn(*points: tuple[float, float | None], marks: tuple[PlotMark, ...] = ()) -> ET.Element:
    return ET.fromstring(plot("title", " %", [PlotLine("arm", "stable", points)], marks))


def path(root: ET.Element) -> str:
    """The path of the arm's line, the one after the legend's."""
    return root.findall("path[@class='line stable']")[-1].attrib["d"]


def test_a_line_goes_through_its_points_from_left_to_right() -> None:
    root = drawn((0.0, 0.0), (10.0, 8.0))
    assert path(root) == "M58.0 164.0L848.0 26.0"


def test_no_data_is_a_gap_and_never_a_zero() -> None:
    assert path(drawn((0.0, 1.0), (10.0, None), (20.0, 1.0))).count("M") == 2
    assert "no requests yet" in plot("title", "", [PlotLine("arm", "stable", [(0.0, None)])])


def test_few_points_are_dots_that_tell_their_value() -> None:
    titles = [item.text for item in drawn((0.0, 0.0), (10.0, 2.5)).iter("title")]
    assert titles == ["arm: 0 % at 00:00:00", "arm: 2.5 % at 00:00:10"]
    assert list(drawn(*((float(at), 1.0) for at in range(61))).iter("circle")) == []


def test_moments_outside_the_axis_are_left_out() -> None:
    marks = (PlotMark(5.0, "5 %"), PlotMark(50.0, "later"), PlotMark(-5.0, "earlier"))
    root = drawn((0.0, 1.0), (10.0, 1.0), marks=marks)
    assert [item.text for item in root.findall("text[@class='note']")] == ["5 %"]


@given(st.lists(st.tuples(st.floats(0, 10), st.text("abc %", max_size=40)), max_size=12))
def test_names_of_moments_never_overlap_or_leave_the_frame(
    found: list[tuple[float, str]],
) -> None:
    root = drawn((0.0, 1.0), (10.0, 1.0), marks=tuple(PlotMark(at, name) for at, name in found))
    assert len(root.findall("path[@class='mark']")) == len(found)
    rows: dict[str, float] = {}
    for note in root.findall("text[@class='note']"):
        left, row = float(note.attrib["x"]), note.attrib["y"]
        assert left >= rows.get(row, 0.0) - 0.1
        rows[row] = left + 6 * len(note.text or "")
        assert rows[row] <= WIDTH


def test_a_key_of_the_legend_stands_right_before_its_name() -> None:
    names = ("stable, version 1", "candidate, version 12")
    root = ET.fromstring(plot("t", "", [PlotLine(name, "stable", [(3.0, 2.0)]) for name in names]))
    keys = [path.attrib["d"] for path in root.findall("path[@class='line stable']")[:2]]
    lefts = [float(text.attrib["x"]) for text in root.findall("text[@class='legend']")]
    ends = [float(key[1:].split(" ")[0]) + float(key.split("h")[1]) for key in keys]
    assert [left - end for left, end in zip(lefts, ends, strict=True)] == [6.0, 6.0]


def test_one_point_and_names_with_markup_are_drawn_too() -> None:
    text = plot("<t>", "", [PlotLine("a & b", "stable", [(3.0, 2.0)])], [PlotMark(3.0, "<m>")])
    root = ET.fromstring(text)
    assert root.attrib["aria-label"] == "<t>"


@pytest.mark.parametrize(
    ("value", "top"), [(0.0, 1.0), (0.13, 0.2), (1.0, 1.0), (3.0, 4.0), (41.0, 80.0), (99.0, 100.0)]
)
def test_an_axis_ends_at_the_next_round_number(value: float, top: float) -> None:
    assert ceiling(value) == top


@given(st.floats(1e-6, 1e9))
def test_an_axis_holds_its_largest_value_without_much_room_above(value: float) -> None:
    assert value <= ceiling(value) * (1 + 1e-6)
    assert ceiling(value) <= 2.6 * value


@given(st.floats(1, 2e9), st.floats(1, 1e7))
def test_times_on_the_axis_are_few_and_within(start: float, span: float) -> None:
    found = moments(start, start + span)
    assert len(found) <= 7
    assert all(start <= at <= start + span for at in found)


def test_times_are_as_fine_as_their_span() -> None:
    assert clock(90061.0, 60) == "01:01:01"
    assert clock(90061.0, 7200) == "01:01"
    assert clock(90061.0, 1e6) == "02 Jan 01:01"


def test_figures_are_short() -> None:
    told = [number(value) for value in (0.0, 7.0, 0.123456, 1234567.8, 1.19e14, float("inf"))]
    assert told == ["0", "7", "0.1235", "1,234,568", "1.19e+14", "inf"]

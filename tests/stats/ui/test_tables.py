"""Windows become tables: no count is lost, none is made up."""

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.endpoint import Arm
from contracts.events import StatisticSpec
from contracts.statistics import Statistic
from contracts.windows import OwnCounts, WindowAggregate
from stats.evaluation.board import Series, Window
from stats.ui.columns import Span
from stats.ui.tables import Declaration, Table, add_tables, attempts, tables

START = 1_795_275_000


def series(
    *aggregates: WindowAggregate, seconds: int = 10, minutes: tuple[Window, ...] = ()
) -> Series:
    windows = tuple(Window.of(aggregate, seconds) for aggregate in aggregates)
    return Series("sentiment", "3", "p", Arm.STABLE, windows, minutes)


def aggregate(start: int, **counts: object) -> WindowAggregate:
    return WindowAggregate("sentiment", "3", "p", Arm.STABLE, start, **counts)  # type: ignore[arg-type]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 89), st.dictionaries(st.sampled_from([200, 429, 504]), st.integers(0, 9))
        ),
        max_size=20,
    )
)
def test_every_attempt_is_in_its_column_once(made: list[tuple[int, dict[int, int]]]) -> None:
    over = Span(START, 10, 90)
    aggregates = [aggregate(START + 10 * column, statuses=statuses) for column, statuses in made]
    every, failed = attempts([series(*aggregates)], over)
    assert every.sum() == sum(sum(statuses.values()) for _, statuses in made)
    assert failed.sum() == sum(statuses.get(504, 0) for _, statuses in made)
    if aggregates:
        table = tables([series(*aggregates)], over)["3", Arm.STABLE]
        assert (table.requests == every).all()
        assert (table.errors == failed).all()


def test_what_lies_outside_the_span_is_left_out() -> None:
    over = Span(START, 10, 6)
    found = tables([series(aggregate(START - 10, texts=5), aggregate(START + 60, texts=5))], over)
    assert found == {}


def test_minutes_serve_long_spans_and_the_windows_behind_them_complete_these() -> None:
    over = Span(START // 60 * 60, 60, 3)
    minute = Window.of(aggregate(over.start, statuses={200: 60}), 60)
    inside = aggregate(over.start + 10, statuses={200: 10})  # it is in the minute's sum already
    behind = aggregate(over.start + 60, statuses={200: 10})
    every, _ = attempts([series(inside, behind, minutes=(minute,))], over)
    assert every.tolist() == [60, 10, 0]


def test_a_table_holds_what_an_aggregate_says() -> None:
    over = Span(START, 10, 2)
    made = aggregate(
        START + 10,
        statuses={200: 7, 503: 1},
        texts=7,
        truncated=2,
        histograms={Statistic.TOKENS.value: {3: 7}, "unheard-of": {0: 1}},
        sums={"tokens": 21_000_000},
        labels={"positive": 7},
        label_scores={"positive": {19: 7}},
        feedback={"positive": {"positive": 3, "negative": 1}},
    )
    table = tables([series(made)], over)["3", Arm.STABLE]
    assert table.requests.tolist() == [0, 8]
    assert table.errors.tolist() == [0, 1]
    assert table.truncated.tolist() == [0, 2]
    assert table.histograms["tokens"][1, 3] == 7
    assert "unheard-of" not in table.histograms
    assert (table.right[1], table.with_feedback[1]) == (3, 4)


def test_tables_add_up_and_stay_as_they_were() -> None:
    over = Span(START, 10, 2)
    one = tables([series(aggregate(START, statuses={200: 2}, labels={"a": 2}))], over)[
        "3", Arm.STABLE
    ]
    other = tables([series(aggregate(START, statuses={200: 3}, labels={"b": 3}))], over)[
        "3", Arm.STABLE
    ]
    both = add_tables([one, other], 2)
    assert both.requests.tolist() == [5, 0]
    assert both.labels["a"].tolist() == [2, 0]
    assert both.labels["b"].tolist() == [3, 0]
    assert one.requests.tolist() == [2, 0]
    assert "b" not in one.labels
    assert add_tables([], 2).requests.tolist() == [0, 0]


def test_a_table_begins_empty() -> None:
    assert Table(3).requests.tolist() == [0, 0, 0]


def test_statistics_of_the_users_own_are_counted_by_their_declaration() -> None:
    language = OwnCounts(
        StatisticSpec("language", "category", [], ["en", "de"]), {"de": 4, "xx": 9}
    )
    length = OwnCounts(StatisticSpec("length", "histogram", [1.0, 2.0]), {"2": 3, "77": 1, "x": 1})
    links = OwnCounts(StatisticSpec("links", "counter"), sum_micro=5_000_000, unfit=2)
    table = Table(2)
    table.add(aggregate(START, own=[language, length, links], undeclared={"colour": 1}), 0)
    assert table.own[Declaration("language", "category", (), ("en", "de"))].tolist()[0] == [0, 4]
    assert table.own[Declaration("length", "histogram", (1.0, 2.0))].tolist()[0] == [0, 0, 3]
    assert table.own[Declaration("links", "counter")].tolist()[0] == [5_000_000]
    assert {name: int(counts.sum()) for name, counts in table.unfit.items()} == {
        "links": 2,
        "colour": 1,
    }

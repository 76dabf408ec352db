"""When a packed engine chooses its next run: late, and the device does not idle for it."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_files import packed

timetable = packed("packed_timetable")
TOKENS = 1000


def taught(seconds: float, tokens: int = TOKENS) -> Any:
    """One that has seen runs of so long, and none is on its way."""
    found = timetable.Timetable()
    for _ in range(20):
        found.choose(tokens, 0.0, has_waited=False)
        found.launch()
        found.end(seconds, seconds, was_awaited=True, waits_since=None)
    return found


def test_while_no_run_is_on_its_way_the_next_is_chosen_at_once() -> None:
    assert taught(0.01).due() == float("-inf")


def test_behind_a_run_of_a_size_that_was_never_seen_the_next_is_chosen_at_once() -> None:
    found = taught(0.01)
    found.choose(TOKENS // 4, 5.0, has_waited=False)
    assert found.due() <= 5.0


def test_the_next_run_is_chosen_shortly_before_those_on_their_way_are_over() -> None:
    found = taught(0.01)
    found.choose(TOKENS, 5.0, has_waited=False)
    assert found.due() == pytest.approx(5.01 - found.lead)
    found.choose(TOKENS, 5.009, has_waited=True)
    assert found.due() == pytest.approx(5.02 - found.lead)


def test_a_larger_run_than_was_seen_is_expected_to_take_no_less() -> None:
    assert taught(0.01).predict(4 * TOKENS) == pytest.approx(0.01)


def test_a_run_that_does_not_take_place_delays_nothing() -> None:
    found = taught(0.01)
    found.choose(TOKENS, 5.0, has_waited=False)
    before = found.due()
    found.choose(TOKENS, 5.0, has_waited=False)
    found.give_up()
    assert found.due() == pytest.approx(before)


def test_a_run_that_ends_early_makes_the_next_one_due_earlier() -> None:
    found = taught(0.01)
    found.choose(TOKENS, 5.0, has_waited=False)
    found.launch()
    found.choose(TOKENS, 5.001, has_waited=False)
    found.launch()
    found.end(5.004, 0.004, was_awaited=True, waits_since=None)
    assert found.due() == pytest.approx(5.014 - found.lead)


def test_the_lead_grows_if_the_device_idled_while_a_message_waited_not_for_a_late_one() -> None:
    waited, late = taught(0.01), taught(0.01)
    before = waited.lead
    for found, since in ((waited, 5.001), (late, 5.00999)):
        found.choose(TOKENS, 5.0, has_waited=False)
        found.launch()
        found.end(5.01, 0.01, was_awaited=True, waits_since=since)
    assert waited.lead > before
    assert late.lead == before


def saturated(found: Any, seconds: float, launch: float, noise: float) -> float:
    """Share of the time in which the device idles though there are always messages.

    Runs take ``seconds``, more or less; from a run's choice to its place on the device it takes
    ``launch``, more or less.
    """
    chance = random.Random(1)

    def about(length: float) -> float:
        return length * (1 + noise * (chance.random() - 0.5))

    now = idle = computed = 0.0
    free_at, running = 0.0, 0.0
    for number in range(600):
        chosen = max(now, found.due())
        # A run that ends meanwhile wakes whoever waits to choose.
        if running and chosen > free_at:
            found.end(free_at, running, was_awaited=True, waits_since=now)
            chosen, running = free_at, 0.0
        found.choose(TOKENS, chosen, has_waited=chosen > now)
        placed = chosen + about(launch)
        if running and placed > free_at:  # it ends while the next one is prepared
            found.end(free_at, running, was_awaited=True, waits_since=None)
            running = 0.0
        found.launch()
        if running:
            found.end(free_at, running, was_awaited=True, waits_since=None)
        begins = max(free_at, placed)
        running = about(seconds)
        if number >= 300:
            idle += begins - free_at
            computed += running
        now, free_at = begins, begins + running
    return idle / (idle + computed)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.0002, 0.1), st.floats(0.00002, 0.002), st.floats(0, 0.2))
def test_a_device_that_has_work_seldom_idles_however_long_runs_and_their_launch_take(
    seconds: float, launch: float, noise: float
) -> None:
    # Nothing helps if a launch takes longer than a run.
    unavoidable = max(0.0, 1 - seconds / launch)
    assert saturated(timetable.Timetable(), seconds, launch, noise) <= unavoidable + 0.05


@settings(max_examples=60, deadline=None)
@given(st.floats(0.0005, 0.1), st.floats(0.00002, 0.002), st.floats(0, 0.2))
def test_the_lead_comes_down_to_about_what_a_launch_takes(
    seconds: float, launch: float, noise: float
) -> None:
    found = timetable.Timetable()
    saturated(found, seconds, launch, noise)
    spread = noise * (launch + seconds)
    assert found.lead <= 2 * max(timetable.LEAST_LEAD_SECONDS, launch + spread)

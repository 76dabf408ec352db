"""When a model is idle, and when it may leave: by clocks and counts alone."""

import pytest
from registry_fakes import ref

from registry.loading.desired import Role, Want
from registry.loading.idling import IdleTimes

ONE, OTHER = ref("1", "a"), ref("2", "b")
NAMES = (ONE.triton_model, OTHER.triton_model)
HOUR = 3600.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def idling(clock: Clock) -> IdleTimes:
    found = IdleTimes(HOUR, 10.0, clock)
    found.note_held(NAMES)
    return found


def idle(idling: IdleTimes) -> list[bool]:
    return [idling.is_idle(name) for name in NAMES]


def sleeping(*refs: object) -> tuple[Want, ...]:
    return tuple(Want(each, Role.STABLE, asleep=each in refs) for each in (ONE, OTHER))


def test_what_is_seen_for_the_first_time_counts_as_asked_for(
    idling: IdleTimes, clock: Clock
) -> None:
    clock.now += HOUR - 1
    assert idle(idling) == [False, False]
    clock.now += 1
    assert idle(idling) == [True, True]


def test_a_count_that_grew_says_that_somebody_asked(idling: IdleTimes, clock: Clock) -> None:
    idling.note_counts(dict.fromkeys(NAMES, 7), NAMES)
    clock.now += HOUR
    idling.note_counts({NAMES[0]: 8, NAMES[1]: 7}, NAMES)
    assert idle(idling) == [False, True]


def test_a_count_that_begins_anew_says_nothing_until_it_grows(
    idling: IdleTimes, clock: Clock
) -> None:
    idling.note_counts(dict.fromkeys(NAMES, 7), NAMES)
    clock.now += HOUR
    idling.note_counts(dict.fromkeys(NAMES, 0), NAMES)
    assert idle(idling) == [True, True]
    idling.note_counts({NAMES[0]: 1, NAMES[1]: 0}, NAMES)
    assert idle(idling) == [False, True]


def test_what_can_not_be_counted_is_not_idle_and_what_can_not_be_told_is_as_before(
    idling: IdleTimes, clock: Clock
) -> None:
    clock.now += HOUR
    idling.note_counts({NAMES[0]: None}, NAMES)
    assert idle(idling) == [True, False]


def test_without_a_time_nothing_is_ever_idle(clock: Clock) -> None:
    never = IdleTimes(0.0, 10.0, clock)
    never.note_held(NAMES)
    clock.now += 1000 * HOUR
    assert idle(never) == [False, False]
    assert not never.look_due
    assert [want.asleep for want in never.resolve(sleeping(ONE, OTHER))] == [False, False]


def test_what_the_status_has_sleep_stays_while_it_is_asked_for_here(
    idling: IdleTimes, clock: Clock
) -> None:
    clock.now += HOUR
    idling.note_request(NAMES[0])
    assert [want.asleep for want in idling.resolve(sleeping(ONE, OTHER))] == [False, True]


def test_it_leaves_once_gateways_know_and_the_one_longest_without_a_caller_first(
    idling: IdleTimes, clock: Clock
) -> None:
    clock.now += 1
    idling.note_request(NAMES[0])
    clock.now += HOUR
    wants = idling.resolve(sleeping(ONE, OTHER))
    assert idling.find_leaving(wants, NAMES) is None
    clock.now += 10
    assert idling.find_leaving(idling.resolve(wants), NAMES) == wants[1]
    assert idling.find_leaving(idling.resolve(wants), NAMES[:1]) == wants[0]
    # The time begins anew where the status has had it wake in between.
    idling.resolve(sleeping())
    assert idling.find_leaving(idling.resolve(wants), NAMES) is None


def test_it_is_looked_ten_times_in_that_time_and_each_half_minute_at_least(
    clock: Clock,
) -> None:
    short, long = IdleTimes(60.0, 10.0, clock), IdleTimes(HOUR, 10.0, clock)
    for each, seconds in ((short, 6.0), (long, 30.0)):
        due = [each.look_due]
        each.note_counts({}, ())
        for step in (seconds - 0.1, 0.1):
            clock.now += step
            due.append(each.look_due)
        assert due == [True, False, True]

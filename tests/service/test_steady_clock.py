"""What a clock that jumps does to the time that a controller goes by."""

from dataclasses import dataclass
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.steady_clock import (
    DIFFER_SECONDS,
    JUMP_SECONDS,
    LASTS_SECONDS,
    DatedAnswers,
    SteadyClock,
)

DAY = 86400.0


@dataclass
class Machine:
    """A machine's clocks. The time of day is ahead by ``ahead``."""

    passed: float = 0.0
    ahead: float = 0.0

    def wall(self) -> float:
        return 1e9 + self.passed + self.ahead

    def steady(self) -> float:
        return 50.0 + self.passed

    def date(self, server_ahead: float = 0.0) -> str:
        """Of an answer that a server gives now, whose clock is ahead."""
        return formatdate(1e9 + self.passed + server_ahead, usegmt=True)


def clock_of(machine: Machine) -> SteadyClock:
    return SteadyClock(machine.wall, machine.steady)


def test_a_clock_that_is_right_is_followed() -> None:
    machine = Machine()
    clock = clock_of(machine)
    for machine.passed in (0.0, 0.25, 3600.0, DAY):
        assert clock() == machine.wall()


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_jump_for_one_look_changes_nothing(ahead: float) -> None:
    machine = Machine()
    clock = clock_of(machine)
    machine.passed, machine.ahead = 1.0, ahead
    assert clock() == 1e9 + 1.0
    machine.passed, machine.ahead = 2.0, 0.0
    assert clock() == 1e9 + 2.0


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_jump_that_lasts_is_believed(ahead: float) -> None:
    machine = Machine()
    clock = clock_of(machine)
    machine.ahead = ahead
    assert clock() == 1e9
    machine.passed = LASTS_SECONDS
    assert clock() == machine.wall()


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_jump_of_five_minutes_is_not_believed(ahead: float) -> None:
    machine = Machine()
    clock = clock_of(machine)
    machine.ahead = ahead
    for machine.passed in (0.0, 60.0, 300.0):
        assert clock() == 1e9 + machine.passed
    machine.passed, machine.ahead = 301.0, 0.0
    assert clock() == machine.wall()


def test_a_clock_that_jumps_to_and_fro_is_not_believed() -> None:
    machine = Machine()
    clock = clock_of(machine)
    for look in range(100):
        machine.passed, machine.ahead = look * 60.0, DAY * (look % 2)
        assert clock() == 1e9 + machine.passed


def test_slow_corrections_are_followed_however_far_they_go() -> None:
    machine = Machine()
    clock = clock_of(machine)
    for look in range(1000):
        machine.passed, machine.ahead = look * 60.0, look * JUMP_SECONDS / 2
        assert clock() == machine.wall()


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(-1e6, 1e6)), max_size=40))
def test_it_is_never_further_ahead_than_a_jump_that_lasted(
    looks: list[tuple[float, float]],
) -> None:
    machine = Machine()
    clock = clock_of(machine)
    believed = {0.0}
    for pause, machine.ahead in looks:
        machine.passed += pause
        believed.add(machine.ahead)
        seen = clock() - 1e9 - machine.passed
        assert any(abs(seen - ahead) < 1e-3 for ahead in believed)


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_clock_that_is_wrong_from_the_start_on_is_the_servers(ahead: float) -> None:
    machine = Machine(ahead=ahead)
    server = DatedAnswers(machine.steady)
    clock = SteadyClock(machine.wall, machine.steady, server)
    assert clock() == machine.wall()  # nobody knows better yet
    for machine.passed in (1.0, 2.0, 10 * LASTS_SECONDS):
        server.note(machine.date())
        server.note(machine.date())
        assert clock() == 1e9 + machine.passed
    machine.passed += LASTS_SECONDS  # no answer for long
    assert clock() == 1e9 + machine.passed


def test_a_clock_that_is_set_right_at_last_is_followed() -> None:
    machine = Machine(ahead=DAY)
    server = DatedAnswers(machine.steady)
    clock = SteadyClock(machine.wall, machine.steady, server)
    for _ in range(2):
        server.note(machine.date())
    assert clock() == 1e9
    machine.passed, machine.ahead = 10.25, 0.25
    server.note(machine.date())
    assert clock() == machine.wall()


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_server_whose_clock_jumps_for_a_while_changes_nothing(ahead: float) -> None:
    machine = Machine()
    server = DatedAnswers(machine.steady)
    clock = SteadyClock(machine.wall, machine.steady, server)
    for machine.passed in range(20):
        # Two servers answer in turn, now and then twice, and one of them is wrong.
        server.note(machine.date(ahead if machine.passed % 2 or machine.passed == 8 else 0.0))
        assert clock() == 1e9 + machine.passed


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_one_answer_of_a_server_whose_clock_is_wrong_changes_nothing(ahead: float) -> None:
    machine = Machine()
    server = DatedAnswers(machine.steady)
    clock = SteadyClock(machine.wall, machine.steady, server)
    server.note(machine.date(ahead))
    assert clock() == machine.wall()


@pytest.mark.parametrize("ahead", [DIFFER_SECONDS - 1.0, 1.0 - DIFFER_SECONDS])
def test_what_answers_take_on_their_way_moves_no_clock(ahead: float) -> None:
    machine = Machine()
    server = DatedAnswers(machine.steady)
    clock = SteadyClock(machine.wall, machine.steady, server)
    for _ in range(2):
        server.note(machine.date(ahead))
    assert clock() == machine.wall()


@pytest.mark.parametrize(
    "date", [None, "", "soon", "Tue, 99 Dec 2026 10:00:00 GMT", "1e999", "Mon, 01 Jan 0001"]
)
def test_a_date_that_is_none_says_nothing(date: str | None) -> None:
    machine = Machine()
    server = DatedAnswers(machine.steady)
    server.note(date)
    assert server.offset is None
    for _ in range(2):
        server.note(machine.date())
    server.note(date)
    assert server.offset == 1e9 - 50.0

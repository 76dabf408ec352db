"""What a clock that jumps does to the time that a controller goes by."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.steady_clock import JUMP_SECONDS, LASTS_SECONDS, SteadyClock

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

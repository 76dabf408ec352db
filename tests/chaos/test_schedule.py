"""The schedule of faults is the same for a seed, and meets everything that it can strike."""

from itertools import islice

import pytest
from chaos.schedule import (
    CARDS,
    LONGEST_GAP_SECONDS,
    LONGEST_HOLD_SECONDS,
    SHORTEST_HOLD_SECONDS,
    SICK,
    UP,
    Kind,
    Round,
    rounds,
)

TARGETS = {
    Kind.KILL: ("fold", "gateway", "gateway-2", "kafka", "triton", "triton-2"),
    Kind.PAUSE: ("fold", "gateway", "kafka", "triton-2"),
    Kind.RESTART: ("stack",),
    Kind.DEAF_PORT: ("kafka", "mlflow"),
    Kind.FULL_DISK: ("disk",),
    Kind.HUNG_STORE: ("store",),
    Kind.LOCKED_DATABASE: ("mlflow",),
    Kind.LOST_LOG: ("kafka", "headrace.predictions"),
    **dict.fromkeys(SICK, ("triton", "triton-2", "triton-3")),
}


def many(seed: int, count: int = 400) -> list[Round]:
    return list(islice(rounds(seed, TARGETS), count))


def test_a_seed_gives_the_same_rounds_again_and_another_seed_others() -> None:
    assert many(7) == many(7)
    assert many(7) != many(8)


@pytest.mark.parametrize("seed", range(5))
def test_every_target_of_every_kind_is_struck(seed: int) -> None:
    struck = {(fault.kind, fault.target) for each in many(seed) for fault in each.faults}
    assert struck == {(kind, target) for kind, names in TARGETS.items() for target in names}


@pytest.mark.parametrize("seed", range(5))
def test_a_short_run_meets_every_kind(seed: int) -> None:
    met = {fault.kind for each in many(seed, sum(CARDS.values())) for fault in each.faults}
    assert met == set(Kind)


def test_some_rounds_strike_twice_at_once_and_never_the_same_target_or_all_of_the_stack() -> None:
    pairs = [each.faults for each in many(3) if len(each.faults) == 2]
    assert 20 < len(pairs) < 120
    for first, second in pairs:
        assert first.target != second.target
        assert Kind.RESTART not in {first.kind, second.kind}


@pytest.mark.parametrize("seed", range(5))
def test_no_two_tritons_are_sick_at_once(seed: int) -> None:
    here = {kind: names for kind, names in TARGETS.items() if kind in SICK | {Kind.KILL}}
    pairs = [each.faults for each in islice(rounds(seed, here), 400) if len(each.faults) == 2]
    assert pairs
    assert not any({one.kind for one in pair} <= SICK for pair in pairs)


@pytest.mark.parametrize("seed", range(5))
def test_up_is_never_killed_while_it_could_not_start_again(seed: int) -> None:
    targets = {**TARGETS, Kind.KILL: (UP,)}
    pairs = [each.faults for each in islice(rounds(seed, targets), 400) if len(each.faults) == 2]
    with_up = [{one.kind for one in pair} for pair in pairs if UP in {one.target for one in pair}]
    assert with_up
    assert not any(kinds & {Kind.DEAF_PORT, Kind.FULL_DISK} for kinds in with_up)


def test_faults_that_last_do_so_within_their_bounds_and_others_are_over_at_once() -> None:
    for each in many(5):
        assert 0 <= each.gap_seconds <= LONGEST_GAP_SECONDS
        assert each.hold_seconds == max(fault.hold_seconds for fault in each.faults)
        for fault in each.faults:
            longest = LONGEST_HOLD_SECONDS.get(fault.kind)
            if longest is None:
                assert fault.hold_seconds == 0
            else:
                assert SHORTEST_HOLD_SECONDS <= fault.hold_seconds <= longest


def test_a_kind_without_a_target_is_left_out() -> None:
    here = {Kind.KILL: ("fold",), Kind.HUNG_STORE: ()}
    kinds = {fault.kind for each in islice(rounds(1, here), 50) for fault in each.faults}
    assert kinds == {Kind.KILL}


def test_without_any_target_there_is_no_schedule() -> None:
    with pytest.raises(ValueError, match="no target"):
        next(rounds(1, {Kind.KILL: ()}))

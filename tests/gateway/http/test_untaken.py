"""Which answers go that nobody takes, where they hold more than they may together."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.http.untaken import UntakenAnswers


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class Answer:
    left: int
    aborted: bool = False

    def untaken_bytes(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True


def test_those_that_are_taken_the_slowest_go() -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 10, clock)
    slow, fast, untouched = Answer(40), Answer(40), Answer(20)
    for each in (fast, slow, untouched):
        answers.hold(each, each.left)
    clock.now += 1.0
    slow.left, fast.left = 39, 30
    new = Answer(60)
    answers.hold(new, new.left)
    assert [each.aborted for each in (untouched, slow, fast, new)] == [True, True, False, False]


def test_one_that_has_just_begun_stays_whatever_is_held() -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 10, clock)
    first, second = Answer(90), Answer(90)
    answers.hold(first, 90)
    clock.now += 0.2
    answers.hold(second, 90)
    assert len(answers) == 2
    clock.now += 0.1
    answers.hold(Answer(1), 1)
    assert [first.aborted, second.aborted] == [True, False]


def test_what_was_taken_since_the_last_look_makes_room_by_itself() -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 10, clock)
    taken, other = Answer(90), Answer(50)
    answers.hold(taken, 90)
    clock.now += 1.0
    taken.left = 0
    answers.hold(other, 50)
    assert not taken.aborted
    assert not other.aborted
    assert len(answers) == 1


def test_too_many_go_however_small() -> None:
    clock = Clock()
    answers = UntakenAnswers(1000, 3, clock)
    small = [Answer(1) for _ in range(5)]
    for each in small:
        answers.hold(each, 1)
        clock.now += 1.0
    assert [each.aborted for each in small] == [True, True, False, False, False]


@given(
    st.lists(
        st.tuples(st.sampled_from(["hold", "take", "release", "wait"]), st.integers(0, 60)),
        max_size=60,
    )
)
def test_never_is_more_held_than_may_be_but_by_those_that_have_just_begun(
    steps: list[tuple[str, int]],
) -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 4, clock)
    begun: dict[Answer, float] = {}
    for step, size in steps:
        clock.now += 0.06  # nobody looks twice within less
        held = [each for each in begun if not each.aborted]
        if step == "wait":
            clock.now += size / 100
        elif step == "hold":
            one = Answer(size + 1)
            begun[one] = clock.now
            answers.hold(one, one.left)
        elif held and step == "take":
            one = held[size % len(held)]
            one.left = max(1, one.left - size)
            answers.hold(one, one.left)
        elif held:
            one = held[size % len(held)]
            del begun[one]
            answers.release(one)
        held = [each for each in begun if not each.aborted]
        assert len(answers) == len(held)
        if step in ("hold", "take"):
            old = [each for each in held if clock.now - begun[each] >= 0.25]
            full = sum(each.left for each in held) > 100 or len(held) > 4
            assert not (old and full)
    for each in [*begun]:
        answers.release(each)
    assert len(answers) == 0

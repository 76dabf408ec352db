"""Which answers go that nobody takes, where they hold more than they may together."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.http.untaken import AnswerBytes, UntakenAnswers


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class Answer:
    left: int
    taken: int = 0
    aborted: bool = False
    whole: int = 0  # what it holds of memory until all is taken; 0: what is left

    def answer_bytes(self) -> AnswerBytes:
        held = self.whole if self.left else 0
        return AnswerBytes(held or self.left, self.taken, self.taken + self.left)

    def take(self, size: int) -> None:
        self.left, self.taken = self.left - size, self.taken + size

    def abort(self) -> None:
        self.aborted = True


def test_those_that_are_taken_the_slowest_go() -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 10, clock)
    slow, fast, untouched = Answer(40), Answer(40), Answer(20)
    for each in (fast, slow, untouched):
        answers.hold(each)
    clock.now += 1.0
    slow.take(1)
    fast.take(10)
    new = Answer(60)
    answers.hold(new)
    assert [each.aborted for each in (untouched, slow, fast, new)] == [True, True, False, False]


def test_what_is_kept_whole_counts_whole_until_its_last_byte_is_taken() -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 10, clock)
    nearly = [Answer(40, whole=40) for _ in range(2)]
    for each in nearly:
        answers.hold(each)
        each.take(39)
    clock.now += 1.0
    answers.hold(Answer(40))
    assert [each.aborted for each in nearly] == [True, False]
    nearly[1].take(1)
    clock.now += 1.0
    answers.hold(Answer(60))
    assert len(answers) == 2


def test_one_that_has_just_begun_stays_whatever_is_held() -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 10, clock)
    first, second = Answer(90), Answer(90)
    answers.hold(first)
    clock.now += 0.2
    answers.hold(second)
    assert len(answers) == 2
    clock.now += 0.1
    answers.hold(Answer(1))
    assert [first.aborted, second.aborted] == [True, False]


def test_what_was_taken_since_the_last_look_makes_room_by_itself() -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 10, clock)
    taken, other = Answer(90), Answer(50)
    answers.hold(taken)
    clock.now += 1.0
    taken.take(90)
    answers.hold(other)
    assert not taken.aborted
    assert not other.aborted
    assert len(answers) == 1


def test_who_took_all_and_is_answered_again_has_just_begun() -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 10, clock)
    steady, slow = Answer(40), Answer(40)
    answers.hold(steady)
    answers.hold(slow)
    for _ in range(3):
        clock.now += 3.0
        slow.take(1)
        steady.take(40)
        steady.left = 80  # the next answer
        answers.hold(steady)
        assert not steady.aborted
    assert slow.aborted


def test_a_stream_that_is_read_goes_after_one_that_is_not() -> None:
    clock = Clock()
    answers = UntakenAnswers(100, 10, clock)
    read, unread = Answer(40), Answer(40)
    for each in (read, unread):
        answers.hold(each)
    for _ in range(30):
        clock.now += 0.1
        read.take(20)
        read.left += 20  # as much comes as goes
        answers.hold(read)
    answers.hold(Answer(40))
    assert [read.aborted, unread.aborted] == [False, True]


def test_too_many_go_however_small() -> None:
    clock = Clock()
    answers = UntakenAnswers(1000, 3, clock)
    small = [Answer(1) for _ in range(5)]
    for each in small:
        answers.hold(each)
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
            answers.hold(one)
        elif held and step == "take":
            one = held[size % len(held)]
            one.take(min(size, one.left - 1))
            answers.hold(one)
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

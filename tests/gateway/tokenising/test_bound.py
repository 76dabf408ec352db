"""Whatever comes, memory keeps to its bound, and what was asked last stays."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.tokenising.bound import Bound, State

KEYS = st.sampled_from("abcdef")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), KEYS, st.integers(0, 60), st.integers(0, 60)),
        st.tuples(st.just("ask"), KEYS, st.integers(0, 60), st.just(0)),
        st.tuples(st.just("need"), KEYS, st.integers(0, 1), st.just(0)),
        st.tuples(st.just("gone"), KEYS, st.just(0), st.just(0)),
    ),
    max_size=40,
)


def staying(bound: Bound) -> list[str]:
    return [key for key in "abcdef" if bound.state(key) in (State.OPEN, State.OPENING)]


def close(bound: Bound, keys: list[str]) -> None:
    for key in keys:
        assert bound.state(key) is State.OPEN
        bound.closing(key)


@given(STEPS)
def test_what_stays_open_fits_or_is_what_was_asked_for_just_now(
    steps: list[tuple[str, str, int, int]],
) -> None:
    bound = Bound(100)
    sizes: dict[str, int] = {}
    kept: frozenset[str] = frozenset()
    for now, (what, key, size, measured) in enumerate(steps):
        state = bound.state(key)
        if what == "open" and state is None:
            close(bound, bound.opening(key, size, now))
            assert bound.state(key) is State.OPENING
            sizes[key] = measured
            close(bound, bound.opened(key, measured, now))
        elif what == "ask" and state is State.OPEN:
            sizes[key] = size
            close(bound, bound.asked(key, size, now))
        elif what == "need":
            kept = bound.need({}, [{key: 0}] if size else [])
            assert kept == ({key} if size else set())
            continue
        elif what == "gone" and state is State.CLOSING:
            bound.gone(key)
            del sizes[key]
            continue
        else:
            continue
        assert bound.state(key) is State.OPEN
        left = staying(bound)
        assert sum(sizes[each] for each in left) <= 100 or set(left) <= kept | {key}
        assert bound.bytes == sum(sizes.values())


@given(st.permutations("abcde"))
def test_the_longest_unasked_is_closed_first(order: list[str]) -> None:
    bound = Bound(50)
    for key in "abcde":
        assert bound.opening(key, 10, 0) == []
        assert bound.opened(key, 10, 0) == []
    for now, key in enumerate(order):
        bound.asked(key, 10, now)
    assert bound.opening("f", 20, 9) == order[:2]


@given(st.permutations("abcde"), st.sets(KEYS, max_size=4))
def test_what_a_rollout_needs_is_not_closed(order: list[str], needed: set[str]) -> None:
    bound = Bound(50)
    for key in "abcde":
        bound.opening(key, 10, 0)
        bound.opened(key, 10, 0)
    for now, key in enumerate(order):
        bound.asked(key, 10, now)
    assert bound.need({}, [dict.fromkeys(needed, 10)]) == needed
    expected = [key for key in order if key not in needed]
    assert bound.opening("f", 10, 9) == expected[:1]


def test_rollouts_that_do_not_fit_together_take_turns() -> None:
    bound = Bound(30)
    first, second = {"a": 10, "b": 10}, {"c": 10, "d": 10}
    assert bound.need({}, [first, second]) == {"a", "b"}
    assert bound.need({}, [second, first]) == {"a", "b"}, "the one that has begun stays"
    assert bound.need({}, [second, {"e": 10}, first]) == {"a", "b", "e"}, "none is halved"
    assert bound.need({}, [second]) == {"c", "d"}


def test_a_rollout_alone_goes_on_however_little_room_there_is() -> None:
    bound = Bound(15)
    bound.opening("x", 10, 0)
    bound.opened("x", 10, 0)
    assert bound.need({}, [{"a": 10, "b": 10}]) == {"a", "b"}
    assert bound.opening("a", 10, 1) == ["x"]
    bound.closing("x")
    assert bound.opened("a", 10, 2) == []
    assert bound.opening("b", 10, 3) == []
    assert bound.opened("b", 12, 4) == []


def test_what_others_are_to_be_moved_to_is_kept_beside_rollouts_that_fill_the_room() -> None:
    bound = Bound(20)
    rollout = {"a": 10, "b": 10}
    assert bound.need({}, [rollout]) == {"a", "b"}
    assert bound.need({"c": 10, "d": 10}, [rollout]) == {"a", "b", "c"}
    assert bound.need({"d": 10}, [rollout]) == {"a", "b", "d"}


def test_a_rollout_goes_on_beside_what_others_are_to_be_moved_to() -> None:
    assert Bound(15).need({"c": 10}, [{"a": 10, "b": 10}]) == {"a", "b", "c"}


def test_room_that_was_missing_as_one_grew_is_made_later() -> None:
    bound = Bound(20)
    bound.opening("a", 10, 0)
    bound.opening("b", 10, 1)
    assert bound.opened("b", 15, 2) == []
    assert bound.opened("a", 10, 3) == ["b"]
    bound.closing("b")
    bound.gone("b")
    bound.opening("c", 5, 4)
    bound.need({}, [{"a": 10}, {"c": 5}])
    assert bound.opened("c", 15, 5) == []
    bound.need({}, [])
    assert bound.excess() == ["a"]


def test_what_is_being_opened_is_never_closed_for_another() -> None:
    bound = Bound(10)
    assert bound.opening("a", 10, 0) == []
    assert bound.opening("b", 10, 1) == []
    assert bound.opened("a", 10, 2) == []
    assert bound.opened("b", 10, 3) == ["a"]

"""Tenants take turns, whatever the others do; what is urgent goes first and starves nobody."""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from registry.reconcile.work_queue import WorkQueue

TENANTS = st.integers(0, 4).map(str)


def drained(queue: WorkQueue) -> list[str]:
    """All keys, each done before the next is taken."""
    keys = []
    while (key := queue.take()) is not None:
        queue.finish(key)
        keys.append(key)
    return keys


def test_a_tenant_with_one_endpoint_waits_for_one_of_each_other() -> None:
    queue = WorkQueue(1, 1)
    for number in range(900):
        queue.add(f"large-{number}", "large")
    queue.add("small-0", "small")
    assert drained(queue)[:3] == ["large-0", "small-0", "large-1"]


def test_endpoints_of_one_tenant_that_hang_leave_room_for_the_others() -> None:
    queue = WorkQueue(8, 4)
    for number in range(100):
        queue.add(f"hangs-{number}", "hangs", urgent=True)
    assert [queue.take() for _ in range(5)][4] is None
    queue.add("other", "other")
    assert queue.take() == "other"


def test_a_rollout_goes_before_a_thousand_settled_endpoints() -> None:
    queue = WorkQueue(8, 8)
    for number in range(1000):
        queue.add(str(number), str(number % 20))
    queue.add("rollout", "late", urgent=True)
    assert queue.take() == "rollout"


def test_what_is_not_urgent_gets_a_turn_however_much_is() -> None:
    queue = WorkQueue(1, 1)
    for number in range(20):
        queue.add(f"urgent-{number}", "a", urgent=True)
    queue.add("settled", "b")
    assert "settled" in drained(queue)[:4]


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), TENANTS, st.integers(0, 5), st.booleans()),
            st.tuples(st.just("take"), TENANTS, st.just(0), st.booleans()),
            st.tuples(st.just("done"), TENANTS, st.integers(0, 9), st.booleans()),
        ),
        max_size=120,
    ),
)
def test_after_any_calls_each_key_waits_once_and_shares_are_kept(
    most: int, most_of_tenant: int, calls: list[tuple[str, str, int, bool]]
) -> None:
    queue = WorkQueue(most, most_of_tenant)
    waiting: set[str] = set()
    running: list[str] = []
    for what, tenant, number, urgent in calls:
        if what == "add":
            key = f"{tenant}/{number}"
            queue.add(key, tenant, urgent=urgent)
            if key not in running:
                waiting.add(key)
        elif what == "take":
            key_or_none = queue.take()
            if key_or_none is None:
                shares = Counter(key[0] for key in running)
                assert len(running) == most or all(
                    shares[key[0]] >= most_of_tenant for key in waiting
                )
                continue
            assert key_or_none in waiting
            waiting.discard(key_or_none)
            running.append(key_or_none)
        elif running:
            queue.finish(running.pop(number % len(running)))
        assert queue.waiting == len(waiting)
        assert queue.running == frozenset(running)
        assert len(running) <= most
        assert max(Counter(key[0] for key in running).values(), default=0) <= most_of_tenant


@given(st.lists(st.tuples(TENANTS, st.integers(0, 9)), min_size=1, max_size=60), st.booleans())
def test_between_two_turns_of_a_tenant_every_other_that_waits_has_one(
    added: list[tuple[str, int]], urgent: bool
) -> None:
    queue = WorkQueue(1, 1)
    for tenant, number in added:
        queue.add(f"{tenant}/{number}", tenant, urgent=urgent)
    waiting = Counter(key[0] for key in {f"{tenant}/{number}" for tenant, number in added})
    order = [key[0] for key in drained(queue)]
    assert Counter(order) == waiting
    for tenant in waiting:
        turns = [place for place, taken in enumerate(order) if taken == tenant]
        for before, after in itertools.pairwise(turns):
            between = order[before + 1 : after]
            left = Counter(order[after:])
            assert all(between.count(other) == 1 for other in left if other != tenant)

"""A copy is what the events make of it, whatever this process learnt in between."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.cluster.listing import ObjectListing


def item(name: str, revision: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(revision)}}


def known(listing: ObjectListing) -> dict[str, int]:
    return {
        name: int(found["metadata"]["resourceVersion"]) for name, found in listing.items.items()
    }


Step = tuple[str, bool]


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30),
    learnt=st.sets(st.integers(0, 29)),
    early=st.integers(0, 5),
    lists=st.sets(st.integers(0, 29)),
)
def test_in_the_end_the_copy_holds_what_is_stored(
    steps: list[Step], learnt: set[int], early: int, lists: set[int]
) -> None:
    """What is learnt comes up to ``early`` events before its own."""
    stored: dict[str, int] = {}
    events = []
    for number, (name, removed) in enumerate(steps, 1):
        if removed and name in stored:
            del stored[name]
            events.append(("DELETED", item(name, number)))
        else:
            stored[name] = number
            events.append(("MODIFIED", item(name, number)))
    listing = ObjectListing()
    listing.replace([], "0")
    so_far: dict[str, int] = {}
    for index, (kind, event) in enumerate(events):
        ahead = index + early
        if ahead in learnt and ahead < len(events) and events[ahead][0] == "MODIFIED":
            listing.learn(events[ahead][1])
        listing.apply(kind, event)
        name = event["metadata"]["name"]
        so_far.pop(name, None)
        if kind == "MODIFIED":
            so_far[name] = index + 1
        if index in lists:
            listing.begin_again()
            listing.replace([item(*entry) for entry in so_far.items()], str(index + 1))
        assert listing.revision == str(index + 1)
    assert known(listing) == stored


def test_an_event_older_than_what_was_learnt_changes_nothing() -> None:
    listing = ObjectListing()
    listing.replace([item("a", 1)], "1")
    assert listing.learn(item("a", 3))
    assert not listing.apply("MODIFIED", item("a", 2))
    assert known(listing) == {"a": 3}


def test_what_was_deleted_does_not_come_back_by_being_learnt_late() -> None:
    listing = ObjectListing()
    listing.replace([item("a", 1)], "1")
    listing.apply("DELETED", item("a", 3))
    assert not listing.learn(item("a", 2))
    assert known(listing) == {}


def test_a_list_of_a_cluster_that_was_restored_replaces_everything() -> None:
    listing = ObjectListing()
    listing.replace([item("a", 900)], "900")
    listing.apply("MODIFIED", item("a", 901))
    assert listing.replace([item("b", 5)], "6")
    assert known(listing) == {"b": 5}


def test_a_bookmark_moves_the_revision_alone() -> None:
    listing = ObjectListing()
    listing.replace([item("a", 1)], "1")
    bookmark = {"metadata": {"resourceVersion": "50"}}
    assert not listing.apply("BOOKMARK", bookmark)
    assert listing.revision == "50"
    assert known(listing) == {"a": 1}

"""A copy stays current through every way in which watches end, and stays as it is in an outage."""

import json
import queue
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fake_kubernetes import NAMESPACE, Fake
from waiting import until

from contracts.backoff import Backoff
from service.cluster.collection import Collection, Reader
from service.cluster.watch import Watch, WatchPace

PACE = WatchPace(pauses=Backoff(0.01, 0.05), second_look_seconds=0.1)
LEASES = Collection("coordination.k8s.io/v1", "leases", NAMESPACE)

Seen = tuple[tuple[str, int], ...]


class Told:
    """What a watch told, oldest first; each as names and values."""

    def __init__(self) -> None:
        self.all: queue.Queue[Seen] = queue.Queue()

    def __call__(self, items: tuple[dict[str, Any], ...]) -> None:
        self.all.put(tuple((item["metadata"]["name"], item["value"]) for item in items))

    def until(self, expected: Seen) -> None:
        """Waits for a state; those before it are passed over."""
        while (seen := self.all.get(timeout=60)) != expected:
            assert seen is not None


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watch(reader: Reader, told: Told) -> Iterator[Watch]:
    made = Watch(reader, LEASES, told, PACE)
    yield made
    made.close()


def write(fake: Fake, name: str, value: int) -> None:
    fake.write(LEASES.path, {"metadata": {"name": name}, "value": value})


def lists(fake: Fake) -> int:
    """How often the collection was listed or watched."""
    return fake.world.asked.count(f"GET {LEASES.path}")


def listed_from(fake: Fake) -> list[str]:
    with fake.world.changed:
        queries = [dict(urllib.parse.parse_qsl(query)) for query in fake.world.queries]
    return [query.get("resourceVersion", "") for query in queries if "watch" not in query]


def watched_from(fake: Fake) -> set[str]:
    with fake.world.changed:
        return {str(revision) for revision in fake.world.watched_from}


def test_what_is_there_and_what_comes_changes_and_goes_is_told(
    fake: Fake, watch: Watch, told: Told
) -> None:
    write(fake, "a", 1)
    watch.start()
    told.until((("a", 1),))
    write(fake, "b", 1)
    told.until((("a", 1), ("b", 1)))
    write(fake, "a", 2)
    told.until((("a", 2), ("b", 1)))
    fake.remove(LEASES.path, "a")
    told.until((("b", 1),))


def test_that_nothing_is_there_is_told_once(fake: Fake, watch: Watch, told: Told) -> None:
    assert not watch.wait(0)
    watch.start()
    told.until(())
    assert watch.wait(60)
    write(fake, "a", 1)
    assert told.all.get(timeout=60) == (("a", 1),)


def test_a_watch_that_ends_goes_on_where_it_was(fake: Fake, watch: Watch, told: Told) -> None:
    write(fake, "a", 1)
    watch.start()
    told.until((("a", 1),))
    for value in (2, 3, 4):
        fake.break_watches()
        write(fake, "a", value)
        told.until((("a", value),))
    assert fake.world.watched_from == sorted(fake.world.watched_from)
    assert fake.world.watched_from[0] == 101  # the list's own revision
    assert fake.world.watched_from[-1] > 101


def test_an_outage_keeps_what_is_known_and_ends_by_itself(
    fake: Fake, watch: Watch, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    write(fake, "a", 1)
    watch.start()
    told.until((("a", 1),))
    fake.go_away()
    write(fake, "a", 2)
    before = lists(fake)
    while lists(fake) < before + 3:  # asked again and again
        assert watch.wait(0)
    assert told.all.empty()
    fake.come_back()
    told.until((("a", 2),))
    warnings = [record for record in caplog.records if "can't be watched" in record.message]
    assert len(warnings) == 1


def test_a_revision_that_expired_is_listed_again(fake: Fake, watch: Watch, told: Told) -> None:
    write(fake, "a", 1)
    write(fake, "gone", 1)
    watch.start()
    told.until((("a", 1), ("gone", 1)))
    fake.go_away()
    fake.remove(LEASES.path, "gone")
    write(fake, "b", 1)
    fake.expire()
    fake.come_back()
    told.until((("a", 1), ("b", 1)))


def test_lists_come_from_the_servers_cache_and_never_go_back(
    fake: Fake, watch: Watch, told: Told
) -> None:
    write(fake, "a", 1)
    watch.start()
    told.until((("a", 1),))
    write(fake, "b", 1)
    told.until((("a", 1), ("b", 1)))
    seen = fake.world.number
    fake.break_watches()
    while str(seen) not in watched_from(fake):  # it has seen all
        fake.break_watches()
    fake.go_away()
    write(fake, "c", 1)
    fake.expire()
    fake.come_back()
    told.until((("a", 1), ("b", 1), ("c", 1)))
    until("the second list", 60, lambda: len(listed_from(fake)) > 1)
    first, *later = listed_from(fake)
    assert first == "0"
    assert all(int(revision) >= seen for revision in later)


def test_after_etcd_came_back_from_a_backup_the_newest_is_listed(
    fake: Fake, watch: Watch, told: Told
) -> None:
    write(fake, "a", 1)
    watch.start()
    told.until((("a", 1),))
    fake.go_away()
    write(fake, "b", 1)
    fake.restore(50)
    fake.come_back()
    told.until((("a", 1), ("b", 1)))


def test_a_revision_that_expires_within_a_watch_is_listed_again(
    fake: Fake, watch: Watch, told: Told
) -> None:
    write(fake, "a", 1)
    watch.start()
    told.until((("a", 1),))
    fake.expire()
    write(fake, "a", 2)
    told.until((("a", 2),))


def test_an_api_server_that_refuses_is_asked_again(
    fake: Fake, watch: Watch, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    fake.refuse(f"GET {LEASES.path}", 403, "leases is forbidden")
    watch.start()
    while lists(fake) < 3:
        assert not watch.wait(0)
    fake.world.refusals.clear()
    told.until(())
    assert "leases is forbidden" in caplog.text


def test_what_this_process_wrote_is_known_before_the_event_comes(
    fake: Fake, watch: Watch, told: Told
) -> None:
    write(fake, "a", 1)
    watch.start()
    told.until((("a", 1),))
    assert watch.wait(60)
    watch.learn({"metadata": {"name": "a", "resourceVersion": "900"}, "value": 9})
    told.until((("a", 9),))


def test_what_was_written_before_the_first_list_is_not_forgotten_by_an_older_list(
    fake: Fake, watch: Watch, told: Told
) -> None:
    write(fake, "a", 1)
    watch.learn({"metadata": {"name": "b", "resourceVersion": "900"}, "value": 9})
    assert told.all.empty()
    watch.start()
    assert told.all.get(timeout=60) == (("a", 1), ("b", 9))


def test_whoever_is_told_may_fail_and_is_told_again(
    fake: Fake, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    faults = iter([None, ValueError("a bug of ours")])

    def failing(items: tuple[dict[str, Any], ...]) -> None:
        if fault := next(faults, None):
            raise fault
        told(items)

    write(fake, "a", 1)
    watch = Watch(reader, LEASES, failing, PACE)
    watch.start()
    told.until((("a", 1),))
    write(fake, "a", 2)
    told.until((("a", 2),))
    watch.close()
    assert "a bug of ours" in caplog.text


def test_a_watch_can_be_closed_at_any_moment(reader: Reader, told: Told) -> None:
    Watch(reader, LEASES, told, PACE).close()
    quick = Watch(reader, LEASES, told, PACE)
    quick.start()
    quick.close()
    long = Watch(reader, LEASES, told, PACE)
    long.start()
    told.until(())
    long.close()


def empty(fake: Fake) -> Callable[[str], tuple[int, bytes] | None]:
    """A server that lists nothing, in the words of the API server."""

    def answer(request: str) -> tuple[int, bytes] | None:
        if "watch=" in request:
            return None
        told = {"metadata": {"resourceVersion": str(fake.world.number)}, "items": []}
        return 200, json.dumps(told).encode()

    return answer


def test_what_one_list_lacks_stays_until_a_second_one_lacks_it(
    fake: Fake, reader: Reader, told: Told
) -> None:
    write(fake, "a", 1)
    write(fake, "b", 1)
    watch = Watch(reader, LEASES, told, replace(PACE, second_look_seconds=3600.0))
    watch.start()
    try:
        told.until((("a", 1), ("b", 1)))
        fake.world.script = empty(fake)
        before = lists(fake)
        fake.expire()
        while lists(fake) < before + 4:
            fake.break_watches()
        fake.remove(LEASES.path, "b")  # an event says so, and is believed
        told.until((("a", 1),))
        fake.world.script = lambda _: None
        write(fake, "a", 2)
        told.until((("a", 2),))
    finally:
        watch.close()


def test_what_a_list_of_a_moment_later_lacks_too_is_gone(
    fake: Fake, watch: Watch, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    write(fake, "a", 1)
    watch.start()
    told.until((("a", 1),))
    fake.world.script = empty(fake)
    fake.expire()
    while told.all.empty():
        fake.break_watches()
    assert told.all.get(timeout=60) == ()
    assert "lacks a" in caplog.text


@pytest.mark.parametrize(
    "said",
    [
        (404, b"<html>404</html>"),
        (502, b"<html>502</html>"),
        (200, b""),
        (200, b'{"items": [{"meta'),
        (200, b'{"status": "ok"}'),
        (200, b'{"items": [{"id": 1}], "metadata": {"resourceVersion": "1"}}'),
    ],
)
def test_what_others_answer_changes_nothing(
    fake: Fake, watch: Watch, told: Told, said: tuple[int, bytes]
) -> None:
    write(fake, "a", 1)
    watch.start()
    told.until((("a", 1),))
    fake.world.script = lambda _: said
    fake.expire()
    before = lists(fake)
    until("it is asked again and again", 60, lambda: lists(fake) > before + 3)
    assert watch.disconnected
    assert told.all.empty()
    fake.world.script = lambda _: None
    write(fake, "a", 2)
    told.until((("a", 2),))
    until("it is connected", 60, lambda: not watch.disconnected)

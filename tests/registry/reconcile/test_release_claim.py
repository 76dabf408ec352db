"""One release looks after a namespace's endpoints; a second one is told so, and does not start."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until

from contracts.controller import ControllerBeat
from registry.reconcile.heartbeats import HeartbeatWriter
from registry.reconcile.release_claim import ReleaseClaim
from registry.stores.heartbeats import FileHeartbeats, Heartbeats

OURS, NEWER, THEIRS = b"a" * 32, b"b" * 32, b"c" * 32


@pytest.fixture
def beats(tmp_path: Path) -> FileHeartbeats:
    return FileHeartbeats(tmp_path)


class HiddenHeartbeats:
    """Heartbeats that are there, and that can't be read while ``hidden``."""

    def __init__(self, beats: FileHeartbeats) -> None:
        self._beats = beats
        self.hidden = True
        self.asked = threading.Semaphore(0)

    def put(self, beat: ControllerBeat) -> None:
        self._beats.put(beat)

    def get(self) -> ControllerBeat | None:
        self.asked.release()
        if self.hidden:
            raise OSError("the API server does not answer")
        return self._beats.get()


def claim(beats: Heartbeats, *keys: bytes) -> ReleaseClaim:
    return ReleaseClaim(beats, keys, "the namespace models")


def beat(beats: FileHeartbeats, key: bytes, count: int = 1, at: float = 0.0) -> None:
    mark = claim(beats, key).mark
    beats.put(ControllerBeat(instance=key.decode(), count=count, at=at, release=mark))


def beating(beats: FileHeartbeats, key: bytes) -> Callable[[float], None]:
    """A pause in which another controller beats on."""
    counts = iter(range(2, 100))
    return lambda _: beat(beats, key, next(counts))


def no_pause(_: float) -> None:
    raise AssertionError("nobody is waited for")


def test_a_second_release_is_refused_in_words_while_the_first_ones_controller_beats(
    beats: FileHeartbeats,
) -> None:
    assert claim(beats, OURS).refusal(no_pause) == ""
    beat(beats, OURS)
    refused = claim(beats, THEIRS).refusal(beating(beats, OURS))
    assert refused.startswith("the namespace models is looked after by the controller of another")
    assert "a namespace of its own" in refused


def test_a_release_finds_its_own_heartbeat_and_starts_at_once_also_after_a_rotation(
    beats: FileHeartbeats,
) -> None:
    beat(beats, OURS)
    assert claim(beats, OURS).refusal(no_pause) == ""
    assert claim(beats, NEWER, OURS).refusal(no_pause) == ""


@pytest.mark.parametrize("at", [0.0, 9e9])
def test_what_a_release_left_that_is_gone_is_taken_over_whatever_its_clock_said(
    beats: FileHeartbeats, at: float
) -> None:
    beat(beats, OURS, at=at)
    waited: list[float] = []
    theirs = claim(beats, THEIRS)
    assert theirs.refusal(waited.append) == ""
    assert sum(waited) >= 30.0  # three heartbeats of the other
    assert theirs.explain_conflict() == ""
    beat(beats, OURS, 2)
    assert theirs.explain_conflict() != ""


def test_a_heartbeat_of_an_earlier_release_of_headrace_says_nothing(beats: FileHeartbeats) -> None:
    beats.put(ControllerBeat(instance="i", count=1, at=0.0))
    assert claim(beats, OURS).refusal(no_pause) == ""


async def test_of_two_that_started_at_once_each_stops_at_the_others_heartbeat(
    beats: FileHeartbeats,
) -> None:
    stopped = asyncio.Event()
    ours = claim(beats, OURS)
    writer = HeartbeatWriter(beats, claim=ours, every_seconds=0.0, on_taken=stopped.set)
    running = asyncio.create_task(writer.run())
    writer.pass_ended(())
    async with asyncio.timeout(60):
        found = await asyncio.to_thread(until, "the first heartbeat", 60, beats.get)
        assert found.release == ours.mark
        beat(beats, THEIRS)
        writer.pass_ended(())
        await stopped.wait()
    running.cancel()
    last = beats.get()
    assert last is not None
    assert last.release == claim(beats, THEIRS).mark


@pytest.mark.parametrize("key", [OURS, THEIRS], ids=["our own", "another release's"])
def test_a_heartbeat_that_can_not_be_read_is_waited_for(beats: FileHeartbeats, key: bytes) -> None:
    beat(beats, key)
    hidden, go_on = HiddenHeartbeats(beats), beating(beats, key)
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        go_on(seconds)
        hidden.hidden = len(waited) % 4 != 0

    assert bool(claim(hidden, OURS).refusal(pause)) is (key == THEIRS)
    assert len(waited) >= 4
    assert max(waited) <= 10.0


async def test_no_heartbeat_is_written_over_one_that_can_not_be_read(
    beats: FileHeartbeats,
) -> None:
    beat(beats, THEIRS)
    hidden, stopped = HiddenHeartbeats(beats), asyncio.Event()
    ours = claim(hidden, OURS)
    writer = HeartbeatWriter(hidden, claim=ours, every_seconds=0.0, on_taken=stopped.set)
    running = asyncio.create_task(writer.run())
    async with asyncio.timeout(60):
        for _ in range(3):
            writer.pass_ended(())
            await asyncio.to_thread(hidden.asked.acquire)
        hidden.hidden = False
        writer.pass_ended(())
        await stopped.wait()
    await running
    last = beats.get()
    assert last is not None
    assert last.release == claim(beats, THEIRS).mark

"""Which loaders count, whatever their clocks say, and that ours is given only while passes end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from registry_fakes import report

from contracts.controller import ControllerBeat
from registry.reconcile.heartbeats import HeartbeatTracker, HeartbeatWriter

NOW = 1000.0


@pytest.mark.parametrize("wrong", [-50.0, 0.0, 3600.0])
def test_a_loader_that_reports_counts_however_wrong_its_clock_is(wrong: float) -> None:
    tracker = HeartbeatTracker(15.0)
    for second in range(100):
        told = report(at=NOW + wrong + second)
        assert tracker.alive([told], NOW + second) == (told,)


@pytest.mark.parametrize("wrong", [-50.0, 0.0, 3600.0])
def test_a_loader_whose_report_stays_the_same_is_silent_in_the_end(wrong: float) -> None:
    tracker, told = HeartbeatTracker(15.0), report(at=NOW + wrong)
    assert tracker.alive([told], NOW) == (told,)
    assert tracker.alive([told], NOW + 15.0) == (told,)
    assert tracker.alive([told], NOW + 15.1) == ()
    again = report(at=NOW + wrong + 20.0)
    assert tracker.alive([again], NOW + 20.0) == (again,)


def test_what_a_loader_left_that_is_gone_does_not_count_until_it_changes() -> None:
    tracker = HeartbeatTracker(15.0)
    left, alive = report(at=NOW - 76.0, loader="gone"), report(at=NOW)
    assert tracker.alive([left, alive], NOW) == (alive,)
    assert tracker.alive([left, alive], NOW + 1.0) == (alive,)
    back = report(at=NOW - 70.0, loader="gone")
    assert tracker.alive([back, alive], NOW + 2.0) == (back, alive)


def test_a_report_that_was_removed_is_forgotten() -> None:
    tracker = HeartbeatTracker(15.0)
    tracker.alive([report(at=NOW)], NOW)
    tracker.alive([], NOW + 10.0)
    assert tracker.alive([report(at=NOW)], NOW + 80.0) == ()


def test_a_loader_that_fell_silent_is_expected_back_for_ten_minutes() -> None:
    tracker = HeartbeatTracker(15.0)
    here, away = report(at=NOW, loader="here"), report(at=NOW, loader="away")
    away = away.model_copy(update={"pool": "gpu"})
    tracker.alive([here, away], NOW)
    assert not tracker.absent()
    for second, left in ((20.0, [away]), (600.0, [])):  # its report is removed with its pod
        tracker.alive([report(at=NOW + second, loader="here"), *left], NOW + second)
        assert tracker.absent() == {"gpu": {"away"}}
    tracker.alive([report(at=NOW + 600.5, loader="here")], NOW + 600.5)
    assert not tracker.absent()


def test_a_triton_that_answers_its_loader_no_more_is_expected_back_as_long() -> None:
    tracker = HeartbeatTracker(15.0)
    tracker.alive([report(at=NOW)], NOW)
    for second, expected in ((180.0, {"l"}), (600.0, {"l"}), (601.0, set())):
        silent = report(at=NOW + second).model_copy(update={"silent": True})
        assert tracker.alive([silent], NOW + second) == (silent,)
        assert tracker.absent().get("default", frozenset()) == expected


def test_a_controller_that_starts_expects_those_back_that_were_alive_ten_minutes_ago() -> None:
    tracker, silent = HeartbeatTracker(15.0), report(at=NOW).model_copy(update={"silent": True})
    told = [report(at=NOW - ago, loader=f"{ago:.0f} s") for ago in (80.0, 590.0, 610.0)]
    for second, expected in ((0.0, {"80 s", "590 s", "l"}), (15.0, {"80 s", "l"})):
        tracker.alive([*told, silent], NOW + second)
        assert tracker.absent() == {"default": expected}


def test_time_in_which_no_report_could_reach_us_does_not_count() -> None:
    tracker = HeartbeatTracker(15.0)
    alive, gone = report(at=NOW, loader="alive"), report(at=NOW - 10.0, loader="gone")
    tracker.alive([gone], NOW - 10.0)
    assert tracker.alive([alive, gone], NOW) == (alive, gone)
    for second in range(1, 100):
        assert tracker.alive([alive, gone], NOW + second, disconnected=True) == (alive, gone)
    assert tracker.alive([alive, gone], NOW + 99.0 + 5.0) == (alive, gone)
    assert tracker.alive([alive, gone], NOW + 99.0 + 6.0) == (alive,)
    assert tracker.alive([alive, gone], NOW + 99.0 + 16.0) == ()


class Noted:
    """Keeps every sign, and takes none where it is told to."""

    def __init__(self) -> None:
        self.signs: asyncio.Queue[ControllerBeat] = asyncio.Queue()
        self.refusals: asyncio.Queue[None] = asyncio.Queue()
        self.refuses = False
        self._loop = asyncio.get_running_loop()

    def put(self, beat: ControllerBeat) -> None:
        if self.refuses:
            self._loop.call_soon_threadsafe(self.refusals.put_nowait, None)
            raise OSError("no space left")
        self._loop.call_soon_threadsafe(self.signs.put_nowait, beat)

    def get(self) -> ControllerBeat | None:
        return None


@asynccontextmanager
async def beating(heartbeat: HeartbeatWriter) -> AsyncIterator[None]:
    task = asyncio.create_task(heartbeat.run())
    try:
        async with asyncio.timeout(60):
            yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_first_sign_comes_with_the_first_pass_and_none_without() -> None:
    place = Noted()
    heartbeat = HeartbeatWriter(place, every_seconds=0.001, now=lambda: 7.0)
    async with beating(heartbeat):
        heartbeat.pass_ended(("lost", "found"))
        first = await place.signs.get()
        assert (first.count, first.at, first.unattended) == (1, 7.0, ("found", "lost"))
        second = asyncio.ensure_future(place.signs.get())
        done, _ = await asyncio.wait((second,), timeout=0.05)
        assert not done
        heartbeat.pass_ended(())
        assert ((await second).count, second.result().unattended) == (2, ())


async def test_each_start_of_a_controller_has_signs_of_its_own() -> None:
    place = Noted()
    given = []
    for _ in range(2):
        heartbeat = HeartbeatWriter(place, every_seconds=0.001)
        async with beating(heartbeat):
            heartbeat.pass_ended(())
            given.append(await place.signs.get())
    assert given[0].instance != given[1].instance


async def test_a_sign_that_can_not_be_written_is_told_once_and_the_next_one_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Noted()
    place.refuses = True
    heartbeat = HeartbeatWriter(place, every_seconds=0.001)
    async with beating(heartbeat):
        for _ in range(3):
            heartbeat.pass_ended(())
            await place.refusals.get()
        place.refuses = False
        heartbeat.pass_ended(())
        assert (await place.signs.get()).count == 4
    assert len([r for r in caplog.records if "heartbeat can't be written" in r.message]) == 1

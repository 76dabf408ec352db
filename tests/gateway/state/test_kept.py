"""What was told last is kept whole, by one process, and read again with its age."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from gateway_world import endpoint_of, model_of

from contracts.endpoint import ModelEndpoint
from contracts.loading import LoadedModel, LoaderReport
from gateway.state.kept import Keeper, KeeperPace

ONE, TWO = model_of("1").ref, model_of("2").ref
SOURCE = "kubernetes://models"
PACE = KeeperPace(wait_seconds=0.0, pause_seconds=3600.0)


def keeper_of(folder: Path, source: str = SOURCE, *, at: float = 1000.0) -> Keeper:
    return Keeper(folder / "cache" / "last-told.json", source, PACE, now=lambda: at)


def report_of(at: float = 1.0) -> LoaderReport:
    loaded = (LoadedModel(ref=ONE), LoadedModel(ref=TWO))
    return LoaderReport(loader="l", triton_grpc="t:1", at=at, ready=True, loaded=loaded)


@asynccontextmanager
async def running(keeper: Keeper) -> AsyncIterator[None]:
    task = asyncio.create_task(keeper.run())
    try:
        async with asyncio.timeout(60):
            yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a file says nothing
        await asyncio.sleep(0.005)


def kept_names(folder: Path) -> list[str] | None:
    kept = keeper_of(folder).read()
    return None if kept is None else [endpoint.name for endpoint in kept.endpoints]


async def test_what_is_noted_is_read_again_to_the_last_bit(tmp_path: Path) -> None:
    canary = endpoint_of(ONE, canary=TWO, weight=5, rollout="r")
    endpoints = (endpoint_of(ONE, name="another"), canary)
    keeper = keeper_of(tmp_path)
    async with running(keeper):
        keeper.note(endpoints, (report_of(),))
        await until(lambda: kept_names(tmp_path) is not None)
    kept = keeper_of(tmp_path).read()
    assert kept is not None
    assert (kept.endpoints, kept.reports, kept.kept_at) == (endpoints, (report_of(),), 1000.0)


async def test_endpoints_that_change_are_kept_at_once_and_reports_in_their_time(
    tmp_path: Path,
) -> None:
    keeper = keeper_of(tmp_path)
    async with running(keeper):
        first = (endpoint_of(ONE),)
        keeper.note(first, (report_of(1.0),))
        await until(lambda: kept_names(tmp_path) is not None)
        keeper.note(first, (report_of(2.0),))
        await asyncio.sleep(0.05)
        kept = keeper_of(tmp_path).read()
        assert kept is not None
        assert kept.reports == (report_of(1.0),)
        keeper.note((*first, endpoint_of(TWO, name="two")), (report_of(3.0),))
        await until(lambda: kept_names(tmp_path) == ["sentiment", "two"])
        kept = keeper_of(tmp_path).read()
        assert kept is not None
        assert kept.reports == (report_of(3.0),)


async def test_of_two_processes_one_writes_and_the_other_when_that_has_ended(
    tmp_path: Path,
) -> None:
    one, two = keeper_of(tmp_path), keeper_of(tmp_path)
    async with running(two):
        async with running(one):
            one.note((endpoint_of(ONE, name="of-one"),), ())
            await until(lambda: kept_names(tmp_path) == ["of-one"])
            two.note((endpoint_of(ONE, name="of-two"),), ())
            await asyncio.sleep(0.05)
            assert kept_names(tmp_path) == ["of-one"]
        two.note((endpoint_of(ONE, name="of-two-later"),), ())
        await until(lambda: kept_names(tmp_path) == ["of-two-later"])


def test_nothing_was_kept_before_the_first_time(tmp_path: Path) -> None:
    assert keeper_of(tmp_path).read() is None


@pytest.mark.parametrize("text", ["", "{", "null", '{"source": "kubernetes://models"}'])
def test_a_file_that_can_not_be_read_is_not_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "last-told.json").write_text(text)
    assert keeper_of(tmp_path).read() is None


async def test_what_another_source_said_is_not_used(tmp_path: Path) -> None:
    keeper = keeper_of(tmp_path, "kubernetes://others")
    async with running(keeper):
        keeper.note((endpoint_of(ONE),), ())
        file = tmp_path / "cache" / "last-told.json"
        await until(file.exists)
    assert keeper_of(tmp_path).read() is None


async def test_a_disk_that_takes_nothing_is_told_once_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("no folder")
    keeper = keeper_of(tmp_path)

    def complaints() -> int:
        return sum("can't be kept" in record.message for record in caplog.records)

    async with running(keeper):
        for name in ("one", "two", "three"):
            keeper.note((endpoint_of(ONE, name=name),), ())
            await until(lambda: complaints() > 0)
        (tmp_path / "cache").unlink()
        last: tuple[ModelEndpoint, ...] = (endpoint_of(ONE, name="four"),)
        keeper.note(last, ())
        await until(lambda: kept_names(tmp_path) == ["four"])
    assert complaints() == 1

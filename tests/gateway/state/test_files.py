"""A folder of objects is followed through every way in which files come, break and go."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from gateway_world import endpoint_of, model_of

from contracts.endpoint import ModelEndpoint
from gateway.state.sources import FolderSource


def write(folder: Path, endpoint: ModelEndpoint) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / ".aside"
    aside.write_text(endpoint.model_dump_json(by_alias=True))
    aside.rename(folder / f"{endpoint.name}.json")


def source_of(folder: Path) -> FolderSource[ModelEndpoint]:
    return FolderSource(folder, ModelEndpoint, poll_seconds=0.01)


def test_a_broken_file_keeps_its_last_good_object(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = source_of(tmp_path)
    endpoint = endpoint_of(None)
    write(tmp_path, endpoint)
    source.look()
    (tmp_path / "sentiment.json").write_text('{"half":')
    for _ in range(5):
        assert not source.look()
    assert source.objects() == (endpoint,)
    assert len([r for r in caplog.records if "can't be read" in r.message]) == 1
    newer = endpoint_of(model_of().ref)
    write(tmp_path, newer)
    assert source.look()
    assert source.objects() == (newer,)


@pytest.mark.parametrize("instead", ["nothing", "a file"])
def test_a_folder_that_is_away_keeps_everything(tmp_path: Path, instead: str) -> None:
    folder = tmp_path / "endpoints"
    endpoint = endpoint_of(None)
    write(folder, endpoint)
    source = source_of(folder)
    source.look()
    folder.rename(tmp_path / "elsewhere")
    if instead == "a file":
        folder.write_text("what a broken mount may show")
    assert not source.look()
    assert source.objects() == (endpoint,)


def test_a_file_that_goes_while_one_looks_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = endpoint_of(None)
    write(tmp_path, endpoint)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nothing")  # is listed, and is not there
    source = source_of(tmp_path)
    assert source.look()
    assert source.objects() == (endpoint,)
    assert not caplog.records


def test_half_written_files_of_others_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".sentiment.json.tmp.json").write_text("{")
    source = source_of(tmp_path)
    assert not source.look()


async def test_a_folder_that_was_never_there_tells_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    async with asyncio.timeout(60), aclosing(source_of(folder).watch()) as states:
        waiting = asyncio.ensure_future(anext(states))
        done, _ = await asyncio.wait((waiting,), timeout=0.05)
        assert not done
        endpoint = endpoint_of(None)
        write(folder, endpoint)
        assert await waiting in ((), (endpoint,))


async def test_a_folder_that_comes_empty_is_told_as_empty(tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    async with asyncio.timeout(60), aclosing(source_of(folder).watch()) as states:
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.wait((waiting,), timeout=0.05)
        folder.mkdir()
        assert await waiting == ()

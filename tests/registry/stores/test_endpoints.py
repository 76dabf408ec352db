"""The file store: whole objects, written only against the revision that was read."""

import threading
from pathlib import Path

import pytest
from registry_fakes import endpoint

from registry.errors import EndpointConflictError, EndpointUnreadableError
from registry.stores.endpoints import FileEndpointStore


@pytest.fixture
def store(tmp_path: Path) -> FileEndpointStore:
    return FileEndpointStore(tmp_path / "endpoints")


def test_of_many_writers_at_once_exactly_one_wins_each_revision(tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    FileEndpointStore(folder).put(endpoint())
    start, wins = threading.Barrier(8), []

    def write() -> None:
        store = FileEndpointStore(folder)
        start.wait(60)
        for _ in range(10):
            found = store.get("e")
            assert found is not None
            try:
                wins.append(store.put(found).metadata.revision)
            except EndpointConflictError:
                continue

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(int, wins)) == list(range(2, len(wins) + 2))


def test_a_file_that_holds_another_endpoint_is_not_taken_for_it(
    store: FileEndpointStore, tmp_path: Path
) -> None:
    store.put(endpoint())
    (tmp_path / "endpoints" / "e.json").rename(tmp_path / "endpoints" / "f.json")
    with pytest.raises(EndpointUnreadableError, match="holds the endpoint e"):
        store.get("f")


def test_no_file_is_ever_half_there(store: FileEndpointStore, tmp_path: Path) -> None:
    store.put(endpoint())
    assert [path.name for path in (tmp_path / "endpoints").glob("[!.]*")] == ["e.json"]
    assert not list((tmp_path / "endpoints").glob(".e.json*"))


def test_a_folder_that_is_not_there_is_an_error_and_not_an_empty_one(
    store: FileEndpointStore, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        store.list()
    assert store.get("e") is None
    made = store.put(endpoint())
    assert store.list() == (made,)
    (tmp_path / "endpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        store.list()
    (tmp_path / "elsewhere").rename(tmp_path / "endpoints")
    assert store.list() == (made,)
    assert store.unreadable == frozenset()


def test_a_folder_that_can_not_be_listed_is_an_error(
    store: FileEndpointStore, tmp_path: Path
) -> None:
    (tmp_path / "endpoints").write_text("what a broken mount may show")
    with pytest.raises(NotADirectoryError):
        store.list()

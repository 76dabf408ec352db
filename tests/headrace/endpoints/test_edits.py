from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.endpoint import EndpointSpec, EndpointStatus, Metadata, ModelEndpoint
from headrace.endpoints import edits
from headrace.errors import BrokenHomeError, RefusedError, RequestFailedError
from registry.stores.endpoints import FileEndpointStore


def wanted(model: str = "m", **metadata: object) -> ModelEndpoint:
    return ModelEndpoint(
        metadata=Metadata.model_validate({"name": "tone", **metadata}),
        spec=EndpointSpec(model=model),
    )


class BusyStore(FileEndpointStore):
    """A store in which someone else writes just before each of our first writes."""

    def __init__(self, folder: Path, times: int) -> None:
        super().__init__(folder)
        self.left = times

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        if self.left:
            self.left -= 1
            stored = self.get(endpoint.name)
            assert stored is not None
            grown = stored.status.generation + 1
            super().put(stored.model_copy(update={"status": EndpointStatus(generation=grown)}))
        return super().put(endpoint)


def with_model(model: str) -> Callable[[ModelEndpoint], ModelEndpoint]:
    return lambda stored: stored.model_copy(update={"spec": EndpointSpec(model=model)})


def test_a_new_endpoint_is_created_and_the_same_again_is_unchanged(tmp_path: Path) -> None:
    store = FileEndpointStore(tmp_path)
    assert edits.apply(store, wanted()).what == "created"
    revision = edits.find_existing(store, "tone").metadata.revision
    assert edits.apply(store, wanted()).what == "unchanged"
    assert edits.find_existing(store, "tone").metadata.revision == revision


def test_a_change_is_told_field_by_field_and_keeps_status_and_notes(tmp_path: Path) -> None:
    store = FileEndpointStore(tmp_path)
    status = EndpointStatus(generation=7)
    store.put(wanted(annotations={"team": "search"}).model_copy(update={"status": status}))
    applied = edits.apply(store, wanted("n", annotations={"since": "may"}))
    assert applied.what == "changed"
    assert list(map(str, applied.changes)) == [
        "spec.model: m -> n",
        "metadata.annotations.since: null -> may",
    ]
    stored = edits.find_existing(store, "tone")
    assert stored.status == status
    assert stored.metadata.annotations == {"team": "search", "since": "may"}


def test_a_status_written_in_the_meantime_is_not_lost(tmp_path: Path) -> None:
    FileEndpointStore(tmp_path).put(wanted())
    store = BusyStore(tmp_path, times=3)
    edits.apply(store, wanted("n"))
    stored = edits.find_existing(store, "tone")
    assert stored.spec.model == "n"
    assert stored.status.generation == 3


def test_an_edit_is_done_again_on_what_is_there_by_then(tmp_path: Path) -> None:
    FileEndpointStore(tmp_path).put(wanted())
    stored = edits.edit(BusyStore(tmp_path, times=2), "tone", with_model("n"))
    assert (stored.spec.model, stored.status.generation) == ("n", 2)


def test_a_store_that_never_rests_ends_with_a_sentence(tmp_path: Path) -> None:
    FileEndpointStore(tmp_path).put(wanted())
    with pytest.raises(RequestFailedError, match="too fast"):
        edits.edit(BusyStore(tmp_path, times=10**6), "tone", with_model("n"))


def test_a_document_for_an_older_revision_is_refused(tmp_path: Path) -> None:
    store = FileEndpointStore(tmp_path)
    store.put(wanted())
    edits.apply(store, wanted("n", revision="1"))
    with pytest.raises(RefusedError, match="revision 1"):
        edits.apply(store, wanted("o", revision="1"))
    assert edits.find_existing(store, "tone").spec.model == "n"


def test_what_can_not_be_read_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "tone.json").write_text("{")
    with pytest.raises(BrokenHomeError, match="headrace delete tone"):
        edits.apply(FileEndpointStore(tmp_path), wanted())
    assert (tmp_path / "tone.json").read_text() == "{"

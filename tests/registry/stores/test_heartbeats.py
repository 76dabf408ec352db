"""The controller's heartbeat: where it lies, in files and in a cluster."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes

from contracts.controller import ControllerBeat
from registry.stores.heartbeats import (
    FileHeartbeats,
    Heartbeats,
    KubernetesHeartbeats,
    show_beat,
)
from service.cluster import leases
from service.cluster.leases import Owner


def in_files(stack: ExitStack, folder: Path) -> Heartbeats:
    del stack
    return FileHeartbeats(folder)


def in_a_cluster(stack: ExitStack, folder: Path) -> Heartbeats:
    del folder
    return KubernetesHeartbeats(stack.enter_context(fake_kubernetes()).client(), NAMESPACE)


@pytest.fixture(params=[in_files, in_a_cluster], ids=["files", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Heartbeats]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path)


def sign(count: int, *unattended: str, instance: str = "a") -> ControllerBeat:
    return ControllerBeat(instance=instance, count=count, at=1.25, unattended=unattended)


def test_the_last_sign_is_there_and_no_other(place: Heartbeats) -> None:
    assert place.get() is None
    for given in (sign(1), sign(2, "one", "two"), sign(1, instance="b")):
        place.put(given)
        assert place.get() == given


def test_a_sign_that_a_newer_controller_wrote_is_still_one(tmp_path: Path) -> None:
    place = FileHeartbeats(tmp_path)
    place.put(sign(1))
    (file,) = (tmp_path / ".controller").iterdir()
    file.write_text(file.read_text().replace('"count":1', '"count":2,"of_tomorrow":{"a":1}'))
    assert place.get() == sign(2)


def test_a_folder_of_endpoints_that_is_away_does_not_come_back_empty(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileHeartbeats(tmp_path / "endpoints").put(sign(1))
    assert not (tmp_path / "endpoints").exists()


def test_one_that_can_not_be_read_is_an_error_and_for_people_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".controller" / "beat.json").mkdir(parents=True)
    (tmp_path / "other" / ".controller").mkdir(parents=True)
    (tmp_path / "other" / ".controller" / "beat.json").write_text("{")
    with fake_kubernetes() as fake:
        fake.client().put(leases.beats(NAMESPACE), {"metadata": {"name": leases.BEAT_NAME}})
        empty = KubernetesHeartbeats(fake.client(), NAMESPACE)
        client = fake.client()
        for place in (FileHeartbeats(tmp_path / "other"), empty):
            assert place.get() is None  # nobody's, whoever wrote it
    folder = FileHeartbeats(tmp_path)
    with pytest.raises(OSError, match=r"."):
        folder.get()
    assert show_beat(folder) is None
    away = KubernetesHeartbeats(client, NAMESPACE)
    with pytest.raises(OSError, match=r"."):
        away.get()
    assert show_beat(away) is None
    assert caplog.text.count("the controller's heartbeat can't be read") == 2


def test_an_uninstall_leaves_no_lease_for_its_pod_owns_it_and_the_next_pod_after_it() -> None:
    with fake_kubernetes() as fake:
        for pod in (Owner("controller-1", "uid-1"), Owner("controller-2", "uid-2")):
            KubernetesHeartbeats(fake.client(), NAMESPACE, owner=pod).put(sign(1))
            (lease,) = fake.all("leases")
            assert lease["metadata"]["ownerReferences"] == pod.references()


def test_gateways_watch_the_lease_by_its_label() -> None:
    with fake_kubernetes() as fake:
        KubernetesHeartbeats(fake.client(), NAMESPACE).put(sign(3, "one"))
        collection = leases.beats(NAMESPACE)
        items, _ = fake.client().list(collection)
        (item,) = items
        assert leases.read_beat(item) == sign(3, "one")
        assert item["metadata"]["labels"] == {"headrace.dev/beat": "controller"}
        with pytest.raises(ValueError, match="JSON"):
            leases.read_beat({"metadata": {"name": "another"}})

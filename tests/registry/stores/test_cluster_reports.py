"""A report's Lease belongs to its pod, and a loader at its start needs no API server."""

import json
from collections.abc import Iterator

import pytest
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes

from contracts.loading import LoadedModel, LoaderReport
from contracts.model import ModelRef
from registry.stores.cluster_reports import KubernetesReports, Owner
from service.cluster import leases
from service.cluster.watch import WatchPace

REPORT = LoaderReport(loader="triton-0", triton_grpc="10.0.0.1:8001", at=1.5, ready=True)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_kubernetes() as server:
        yield server


def of_pod(fake: Fake, uid: str) -> KubernetesReports:
    return KubernetesReports(fake.client(), NAMESPACE, owner=Owner("triton-0", uid))


def test_a_lease_is_collected_with_its_pod_and_shows_signs_of_life(fake: Fake) -> None:
    of_pod(fake, "u1").put(REPORT)
    (found,) = fake.all("leases")
    assert found["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert found["spec"]["renewTime"] == "1970-01-01T00:00:01.000000Z"
    assert found["metadata"]["labels"] == {leases.REPORT: leases.REPORT_LABEL}


def test_a_new_pod_of_the_same_name_takes_the_lease_over(fake: Fake) -> None:
    of_pod(fake, "u1").put(REPORT)
    of_pod(fake, "u2").put(REPORT)
    (found,) = fake.all("leases")
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == ["u2"]


def test_copies_and_threads_lie_beside_the_report_which_readers_of_earlier_releases_still_read(
    fake: Fake,
) -> None:
    refs = [ModelRef(model="m", version=str(n), package=f"{n}" * 64) for n in (1, 2)]
    loaded = tuple(
        LoadedModel(ref=ref, instances=n, threads=8 - n) for n, ref in enumerate(refs, start=3)
    )
    report = REPORT.model_copy(update={"loaded": loaded})
    reports = of_pod(fake, "u1")
    reports.put(report)
    assert reports.get(REPORT.loader) == report
    (found,) = fake.all("leases")
    told = json.loads(found["metadata"]["annotations"][leases.REPORT])
    assert [set(model) for model in told["loaded"]] == [{"ref", "costs"}] * 2
    for beside in (leases.INSTANCES, leases.THREADS):  # as a loader of an earlier release
        del found["metadata"]["annotations"][beside]
    assert all(model.instances == model.threads == 0 for model in leases.read_report(found).loaded)


def test_a_lease_that_was_collected_meanwhile_is_made_anew(fake: Fake) -> None:
    reports = of_pod(fake, "u1")
    reports.put(REPORT)
    reports.leave(REPORT.loader)
    assert fake.all("leases") == []
    reports.put(REPORT)
    assert reports.get(REPORT.loader) == REPORT


def test_an_own_report_that_can_not_be_had_is_none(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    reports = of_pod(fake, "u1")
    reports.put(REPORT)
    fake.go_away()
    assert reports.get(REPORT.loader) is None
    assert "does not answer" in caplog.text


def test_leases_of_others_are_not_looked_at(fake: Fake) -> None:
    path = leases.reports(NAMESPACE).path
    fake.write(path, {"metadata": {"name": "leader-election"}, "spec": {}})
    reports = of_pod(fake, "u1")
    reports.put(REPORT)
    while not (found := reports.list()):
        pass
    assert found == (REPORT,)
    reports.close()


def test_an_api_server_that_is_away_disconnects_until_it_is_back(fake: Fake) -> None:
    pace = WatchPace(first_pause_seconds=0.01, longest_pause_seconds=0.01)
    reports = KubernetesReports(fake.client(), NAMESPACE, pace=pace)
    assert reports.list() == ()
    until_disconnected(reports, False)
    fake.go_away()
    until_disconnected(reports, True)
    fake.come_back()
    until_disconnected(reports, False)
    reports.close()


def until_disconnected(reports: KubernetesReports, disconnected: bool) -> None:
    while reports.disconnected is not disconnected:
        pass

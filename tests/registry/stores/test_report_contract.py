"""The contract of ``Reports``: a folder of files and Leases in a cluster pass the same tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes
from registry_fakes import ref

from contracts.backoff import Backoff
from contracts.loading import CostPoint, LoadedModel, LoaderReport, LoadFailure, Trouble
from registry.stores.cluster_reports import KubernetesReports
from registry.stores.reports import FileReports, Reports
from service.cluster.leases import Owner
from service.cluster.watch import WatchPace

PACE = WatchPace(pauses=Backoff(0.01, 0.05))


def in_files(stack: ExitStack, folder: Path) -> Reports:
    del stack
    folder.mkdir()
    return FileReports(folder)


def in_a_cluster(stack: ExitStack, folder: Path) -> Reports:
    del folder
    fake = stack.enter_context(fake_kubernetes())
    reports = KubernetesReports(fake.client(), NAMESPACE, owner=Owner("pod", "uid"), pace=PACE)
    stack.callback(reports.close)
    return reports


def in_a_real_cluster(stack: ExitStack, folder: Path) -> Reports:
    from real_api_server import real_api_server

    del folder
    api = stack.enter_context(real_api_server())
    reports = KubernetesReports(api.client, api.namespace)
    stack.callback(reports.close)
    return reports


@pytest.fixture(
    params=[
        pytest.param(in_files, id="files"),
        pytest.param(in_a_cluster, id="cluster"),
        pytest.param(in_a_real_cluster, marks=[pytest.mark.cluster, pytest.mark.walk], id="real"),
    ]
)
def reports(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reports]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path / "reports")


def report(loader: str, at: float = 1.25) -> LoaderReport:
    costs = (CostPoint(bucket=16, batch=8, milliseconds=1.1),)
    return LoaderReport(
        loader=loader,
        triton_grpc="10.0.0.1:8001",
        at=at,
        ready=True,
        loaded=(LoadedModel(ref=ref(), costs=costs),),
        failed=(LoadFailure(ref=ref("2"), reason="it said “no”", by_version=True),),
        troubles=(Trouble(ref=ref(), reason="its code was stopped"),),
    )


def listed(reports: Reports, expected: tuple[LoaderReport, ...]) -> None:
    """Waits until all are listed; a watch may take a moment."""
    while reports.list() != expected:
        assert len(reports.list()) <= 2


def test_each_loader_has_its_own_last_report(reports: Reports) -> None:
    assert reports.list() == ()
    for item in (report("a"), report("b"), report("a", 2.0)):
        reports.put(item)
    listed(reports, (report("a", 2.0), report("b")))
    assert reports.get("a") == report("a", 2.0)
    assert reports.get("nobody") is None


def test_a_loader_that_leaves_takes_no_other_along(reports: Reports) -> None:
    reports.put(report("a"))
    reports.put(report("b"))
    reports.leave("a")
    reports.leave("nobody")
    assert reports.get("b") == report("b")
    reports.put(report("a", 3.0))
    listed(reports, (report("a", 3.0), report("b")))

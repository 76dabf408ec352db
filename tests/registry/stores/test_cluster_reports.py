"""A report's Leases: what lies in which, who owns them, and what readers of any release see.

Reports are divided among Leases that are written when they change. Whatever happens on the way, a
reader sees in the end what the loader put.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_fakes import ref

from contracts.backoff import Backoff
from contracts.loading import (
    CostPoint,
    FailureCause,
    LoadedModel,
    LoaderReport,
    LoadFailure,
    WitnessAnswer,
)
from contracts.model import ModelRef
from registry.stores.cluster_reports import KubernetesReports
from service.cluster import reports as format_
from service.cluster.collection import Collection, Object
from service.cluster.errors import ApiUnavailableError, ConflictError, MissingError
from service.cluster.leases import Owner
from service.cluster.watch import WatchPace

REPORT = LoaderReport(loader="triton-0", triton_grpc="10.0.0.1:8001", at=1.5, ready=True)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_kubernetes() as server:
        yield server


def of_pod(fake: Fake, uid: str = "u1", **options: Any) -> KubernetesReports:
    return KubernetesReports(fake.client(), NAMESPACE, owner=Owner("triton-0", uid), **options)


def model(number: int, costs: int = 36, instances: int = 2) -> LoadedModel:
    return LoadedModel(
        ref=ModelRef(model=f"team-{number % 20}-model", version="1", package=f"{number:064x}"),
        costs=tuple(
            CostPoint(bucket=16 << (n % 6), batch=1 + n, milliseconds=(1 + number + n) / 7)
            for n in range(costs)
        ),
        instances=instances,
        threads=1,
    )


def with_models(number: int, at: float = 1.5) -> LoaderReport:
    return REPORT.model_copy(
        update={"loaded": tuple(model(each) for each in range(number)), "at": at}
    )


def kinds(fake: Fake) -> list[str]:
    return sorted(item["metadata"]["labels"][format_.KIND] for item in fake.all("leases"))


def writes(fake: Fake) -> list[str]:
    """The requests that wrote since the last call, by method and kind."""
    with fake.world.changed:
        asked, fake.world.asked[:] = list(fake.world.asked), []
    made = []
    for request in asked:
        method, _, path = request.partition(" ")
        if method != "GET":
            name = path.rsplit("/", 1)[-1]
            made.append(f"{method} {name.removeprefix('headrace-').split('-')[0]}")
    return made


def test_a_lease_is_collected_with_its_pod_and_shows_signs_of_life(fake: Fake) -> None:
    reports = of_pod(fake)
    reports.put(with_models(1))
    reports.beat(with_models(1, at=2.5))
    found = [item for item in fake.all("leases") if format_.KIND in item["metadata"]["labels"]]
    assert [item["metadata"]["ownerReferences"][0]["uid"] for item in found] == ["u1"] * 3
    heartbeat, report, _ = found
    assert report["spec"]["renewTime"] == "1970-01-01T00:00:01.000000Z"
    assert heartbeat["spec"]["renewTime"] == "1970-01-01T00:00:02.000000Z"


def test_a_new_pod_of_the_same_name_takes_the_lease_over_and_the_other_ones_parts_go(
    fake: Fake,
) -> None:
    of_pod(fake, "u1").put(with_models(1))
    second = of_pod(fake, "u2")
    assert second.get(REPORT.loader) == with_models(1)
    second.put(with_models(1, at=9.0))
    found = fake.all("leases")
    assert [item["metadata"]["ownerReferences"][0]["uid"] for item in found] == ["u2", "u2"]
    assert second.get(REPORT.loader) == with_models(1, at=9.0)


def forge(fake: Fake, name: str, change: dict[str, Any]) -> None:
    """Stores another Lease: one that is there, with some of its metadata and spec changed."""
    (item,) = [each for each in fake.all("leases") if each["metadata"]["name"] == name]
    collection = format_.collection(NAMESPACE, heartbeats=True)
    for key in ("resourceVersion", "uid", "creationTimestamp"):
        item["metadata"].pop(key, None)
    metadata = {**item["metadata"], **change.get("metadata", {})}
    spec = {**item["spec"], **change.get("spec", {})}
    fake.client().put(collection, {**item, "metadata": metadata, "spec": spec})


def test_a_lease_that_reports_of_another_loader_than_its_name_says_is_no_report(
    fake: Fake,
) -> None:
    reports = of_pod(fake)
    reports.put(with_models(1))
    name = f"{format_.REPORT_PREFIX}{REPORT.loader}"
    forge(fake, name, {"metadata": {"name": f"{format_.REPORT_PREFIX}triton-1"}})
    with closing(reports):
        assert reports.list() == (with_models(1),)


def test_a_part_that_another_loader_wrote_first_is_not_believed(fake: Fake) -> None:
    other = of_pod(fake)
    other.put(with_models(1))
    (part,) = [
        item["metadata"]["name"]
        for item in fake.all("leases")
        if item["metadata"]["name"].startswith(format_.PART_PREFIX)
    ]
    costs = format_.leases(
        with_models(0).model_copy(update={"loaded": (model(0, costs=3),)}), "i", "u1"
    )
    (forged,) = costs.parts.values()
    forge(fake, part, {"metadata": {"annotations": forged["metadata"]["annotations"]}})
    reports = of_pod(fake)
    with closing(reports):
        (found,) = reports.list()
    assert [each.ref for each in found.loaded] == [model(0).ref]
    assert found.loaded[0].costs == ()


def test_a_heartbeat_under_another_loaders_name_keeps_nobody_alive(fake: Fake) -> None:
    reports = of_pod(fake)
    reports.put(with_models(1))
    reports.beat(with_models(1))
    name = f"{format_.HEARTBEAT_PREFIX}{REPORT.loader}"
    (beat,) = [each for each in fake.all("leases") if each["metadata"]["name"] == name]
    said = json.loads(beat["metadata"]["annotations"][format_.KIND])
    told = {format_.KIND: json.dumps({**said, "at": 99.0})}
    other = f"{format_.HEARTBEAT_PREFIX}triton-1"
    forge(fake, name, {"metadata": {"name": other, "annotations": told}})
    with closing(reports):
        (found,) = reports.list()
    assert found.at == 1.5


def test_a_report_that_stands_costs_one_small_lease_at_a_time(fake: Fake) -> None:
    reports = of_pod(fake)
    reports.put(with_models(200))
    writes(fake)
    for second in range(2, 12):
        reports.beat(with_models(200, at=float(second)))
    assert set(writes(fake)) <= {"PATCH heartbeat", "POST leases"}
    (heartbeat,) = [
        item
        for item in fake.all("leases")
        if item["metadata"]["labels"].get(format_.KIND) == format_.HEARTBEAT
    ]
    assert len(json.dumps(heartbeat)) < 1000


def test_a_change_of_one_model_writes_its_part_and_the_report(fake: Fake) -> None:
    reports = of_pod(fake)
    before = with_models(200)
    reports.put(before)
    assert len(kinds(fake)) > 3
    writes(fake)
    loaded = (model(0, instances=3), *before.loaded[1:])
    reports.put(before.model_copy(update={"loaded": loaded, "at": 2.0}))
    assert writes(fake) == ["POST leases", "PATCH loader", "DELETE report"]


def report_leases(fake: Fake) -> list[Object]:
    collection = Collection(
        "coordination.k8s.io/v1", "leases", NAMESPACE, "headrace.dev/report=loader"
    )
    return fake.client().list(collection)[0]


def test_fields_that_a_newer_loader_adds_make_its_report_no_less_readable(fake: Fake) -> None:
    reports = of_pod(fake)
    report = with_models(2)
    failed = (LoadFailure(ref=ref("2"), reason="no", by_version=True),)
    reports.put(report.model_copy(update={"failed": failed}))
    (found,) = report_leases(fake)
    annotations = found["metadata"]["annotations"]
    stored = json.loads(annotations[format_.KIND])
    told = stored["report"]
    for place in (stored, told, told["failed"][0], *told["loaded"]):
        place["of_tomorrow"] = {"a": 1}
    annotations[format_.KIND] = json.dumps(stored)
    fake.write(format_.collection(NAMESPACE).path, found)
    assert reports.get(REPORT.loader) == report.model_copy(update={"failed": failed})
    cost = {"bucket": 1, "batch": 2, "milliseconds": 3.0, "of_tomorrow": 1}
    assert CostPoint.model_validate(cost) == CostPoint(bucket=1, batch=2, milliseconds=3.0)


def test_models_that_no_lease_can_hold_are_told_by_parts_alone(fake: Fake) -> None:
    report = with_models(1500)
    reports = of_pod(fake)
    reports.put(report)
    found = reports.get(REPORT.loader)
    assert found is not None
    assert sorted(found.loaded, key=lambda each: each.ref.package) == list(report.loaded)
    assert max(annotated(item) for item in fake.all("leases")) <= 256 << 10


def annotated(item: Object) -> int:
    return sum(
        len(key) + len(text.encode()) for key, text in item["metadata"]["annotations"].items()
    )


@pytest.mark.parametrize("number", [200, 1500])
def test_a_reader_that_needs_no_costs_sees_what_is_loaded_all_the_same(
    fake: Fake, number: int
) -> None:
    of_pod(fake).put(with_models(number))
    reader = KubernetesReports(fake.client(), NAMESPACE, costs=False)
    while not (found := reader.list()):
        pass
    loaded = {each.ref: (each.instances, each.threads) for each in found[0].loaded}
    wanted = with_models(number).loaded
    assert loaded == {each.ref: (each.instances, each.threads) for each in wanted}
    reader.close()


def test_a_report_with_long_failures_keeps_each_with_the_beginning_of_its_reason(
    fake: Fake,
) -> None:
    failed = tuple(
        LoadFailure(ref=model(n).ref, reason=f"{n} " + "é" * 4000, by_version=True)
        for n in range(300)
    )
    report = with_models(200).model_copy(update={"failed": failed})
    reports = of_pod(fake)
    reports.put(report)
    found = reports.get(REPORT.loader)
    assert found is not None
    assert [each.ref for each in found.failed] == [each.ref for each in failed]
    assert all(
        told.reason[:40] == full.reason[:40]
        for told, full in zip(found.failed, failed, strict=True)
    )
    assert max(annotated(item) for item in fake.all("leases")) <= 256 << 10


def test_a_report_that_fits_in_no_way_is_refused_with_the_reason_and_nothing_is_written(
    fake: Fake,
) -> None:
    failed = tuple(
        LoadFailure(ref=model(n).ref, reason="x" * 100, by_version=True) for n in range(5000)
    )
    with pytest.raises(format_.ReportTooLargeError, match=r"5000 failures.*more than one Triton"):
        of_pod(fake).put(REPORT.model_copy(update={"failed": failed}))
    assert fake.all("leases") == []


def test_a_lease_that_was_collected_meanwhile_is_made_anew(fake: Fake) -> None:
    reports = of_pod(fake)
    reports.put(with_models(3))
    reports.beat(with_models(3, at=2.0))
    reports.leave(REPORT.loader)
    assert fake.all("leases") == []
    reports.put(with_models(3))
    assert reports.get(REPORT.loader) == with_models(3)


def test_an_own_report_that_can_not_be_had_is_none(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    reports = of_pod(fake)
    reports.put(REPORT)
    fake.go_away()
    assert reports.get(REPORT.loader) is None
    assert "does not answer" in caplog.text


def test_leases_of_others_are_not_looked_at(fake: Fake) -> None:
    path = format_.collection(NAMESPACE).path
    fake.write(path, {"metadata": {"name": "leader-election"}, "spec": {}})
    reports = of_pod(fake)
    reports.put(REPORT)
    while not (found := reports.list()):
        pass
    assert found == (REPORT,)
    reports.close()


def test_an_api_server_that_is_away_disconnects_until_it_is_back(fake: Fake) -> None:
    pace = WatchPace(pauses=Backoff(0.01, 0.01))
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


class LossyStore:
    """Leases in memory, with a ``ClusterClient``'s methods; calls are lost as it is told.

    A call that is lost was done all the same, or was not: the caller can't tell.
    """

    def __init__(self) -> None:
        self.items: dict[str, Object] = {}
        self.losses: list[str] = []  # of the next calls that write: "", "before" or "after"
        self.order: list[str] = []

    def _lost(self, moment: str) -> None:
        if self.losses and self.losses[0] == moment:
            self.losses.pop(0)
            raise ApiUnavailableError("the call was lost")
        if moment == "after" and self.losses and not self.losses[0]:
            self.losses.pop(0)

    def get(self, collection: Collection, name: str) -> Object:
        if name not in self.items:
            raise MissingError(name, 404)
        return self.items[name]

    def create(self, collection: Collection, body: Object) -> Object:
        self._lost("before")
        name = body["metadata"]["name"]
        if name in self.items:
            raise ConflictError(name, 409)
        self.items[name] = json.loads(json.dumps(body))
        self._lost("after")
        return body

    def put(self, collection: Collection, body: Object) -> None:
        self._lost("before")
        name = body["metadata"]["name"]
        before = self.items.get(name, {"metadata": {"annotations": {}}})
        merged = json.loads(json.dumps(body))
        merged["metadata"]["annotations"] = {
            **before["metadata"]["annotations"],
            **merged["metadata"]["annotations"],
        }
        self.items[name] = merged
        self._lost("after")

    def delete(self, collection: Collection, name: str) -> None:
        self._lost("before")
        if name not in self.items:
            raise MissingError(name, 404)
        del self.items[name]
        self._lost("after")

    def seen(self) -> LoaderReport | None:
        """What a reader joins of all that is stored."""
        found = [format_.read(item) for item in self.items.values() if format_.KIND in labels(item)]
        parts = {each.name: each for each in found if isinstance(each, format_.PartLease)}
        of = [each for each in found if isinstance(each, format_.ReportLease)]
        return format_.join_parts(of[0], parts) if of else None


def labels(item: Object) -> dict[str, str]:
    found: dict[str, str] = item["metadata"].get("labels") or {}
    return found


LOSSES = st.lists(st.sampled_from(["", "", "before", "after"]), max_size=6)
LOADED = st.lists(
    st.builds(model, st.integers(0, 12), st.integers(0, 3), st.integers(1, 3)),
    max_size=8,
    unique_by=lambda each: each.ref.package,
)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "crash", "beat", "restart", "new pod"]), LOADED, LOSSES),
        min_size=1,
        max_size=12,
    ),
    LOADED,
)
def test_after_any_writes_losses_and_restarts_a_reader_sees_what_was_put_last(
    events: list[tuple[str, list[LoadedModel], list[str]]], last: list[LoadedModel]
) -> None:
    store, clock = LossyStore(), count(1)
    uid = 0
    loader = KubernetesReports(store, NAMESPACE, owner=Owner("triton-0", "0"))  # type: ignore[arg-type]
    put: LoaderReport | None = None  # the last that was put without an error
    for what, loaded, losses in events:
        store.losses = list(losses)
        told = REPORT.model_copy(update={"loaded": tuple(loaded), "at": float(next(clock))})
        try:
            if what in ("put", "crash"):
                put = None
                loader.put(told)
                put = told
            elif what == "beat" and put is not None:
                told = put.model_copy(update={"at": told.at})
                loader.beat(told)
        except ApiUnavailableError:
            if what == "put":  # a loader tries again what failed
                store.losses = []
                loader.put(told)
                put = told
        if what in ("crash", "restart", "new pod"):
            if what == "new pod":  # the old one's are collected in time, or are there still
                uid += 1
                gone = [n for n, item in store.items.items() if losses and owner(item) < str(uid)]
                for name in gone:
                    del store.items[name]
                put = None if gone else put
            loader = KubernetesReports(store, NAMESPACE, owner=Owner("triton-0", str(uid)))  # type: ignore[arg-type]
            loader.get(REPORT.loader)
        seen = store.seen()
        assert put is None or (seen is not None and seen.loaded == put.loaded)
    store.losses = []
    told = REPORT.model_copy(update={"loaded": tuple(last), "at": float(next(clock))})
    loader.put(told)
    assert store.seen() == told


def owner(item: Object) -> str:
    return str((item["metadata"].get("ownerReferences") or [{"uid": "9"}])[0]["uid"])


def test_what_proves_a_failure_arrives(fake: Fake) -> None:
    failure = LoadFailure(
        ref=ref("2"),
        reason="no",
        by_version=False,
        cause=FailureCause.REFUSED,
        witness=WitnessAnswer.REFUSED,
        persists=True,
    )
    report = with_models(1).model_copy(update={"failed": (failure,), "cordoned": True})
    reports = of_pod(fake)
    reports.put(report)
    (found,) = reports.list()
    assert found.failed == (failure,)
    assert found.cordoned

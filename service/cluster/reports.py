"""How a loader's report lies in a cluster: in Leases that are each written when they change.

* The *report* is one Lease for each loader, with what Triton holds and refused, without cost
  tables. It is written when that changes.
* Its *parts* hold the loaded models with their cost tables, compressed, some kilobytes in each. A
  part is named by the digest of what it holds and never changes. The report names its parts, and
  is written after them, so that one watch shows a reader the parts first.
* The *heartbeat* is a small Lease with a time, only for the controller. It counts for the report
  of the same start of a loader.

Only ``ReportMirror`` has a state: the last objects of a watch.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel, ConfigDict, TypeAdapter

from contracts.loading import (
    CostPoint,
    LoadedModel,
    LoaderReport,
    LoadFailure,
)
from contracts.model import ModelRef
from service.cluster.collection import Collection, Object, Reader
from service.cluster.leases import VERSION, build_lease
from service.cluster.mirror import CollectionMirror
from service.cluster.watch import WatchPace

KIND = "headrace.dev/report"  # a label of the Leases, and the annotation that holds a report
REPORT, PART, HEARTBEAT = "loader", "part", "heartbeat"  # its values
REPORT_PREFIX, PART_PREFIX = "headrace-loader-", "headrace-report-part-"
HEARTBEAT_PREFIX = "headrace-heartbeat-"

LEASE_SECONDS = 15
PART_BYTES = 16 << 10  # that a part should have at most: a change writes these again
# An API server takes 256 KiB of annotations in all.
MOST_BYTES = 200 << 10
_MOST_TROUBLES = 50  # of some hundred characters each
_LEAST_REASON = 80  # characters of a failure's reason that stay when there are many

# model, version, package, space, instances, threads; bucket, batch and milliseconds of each cost
_Row = tuple[str, str, str, str, int, int, list[tuple[int, int, float]]]
_ROWS: TypeAdapter[list[_Row]] = TypeAdapter(list[_Row])


class ReportTooLargeError(OSError):
    """A report that no Lease can hold, and that nobody would see cut."""


@dataclass(frozen=True, slots=True)
class ReportLeases:
    """All Leases of a report but its heartbeat: ``parts`` by name, to be written first."""

    report: Object
    parts: Mapping[str, Object]

    @property
    def bytes(self) -> int:
        """Of all their annotations."""
        return sum(_size(lease) for lease in (self.report, *self.parts.values()))


class ReportLease(BaseModel):
    """A report without what its parts say, as a Lease holds it.

    ``in_parts`` says that the models that are loaded are told only by the parts, because the
    report would be too large with them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    report: LoaderReport
    instance: str  # of the loader that wrote it
    parts: tuple[str, ...] = ()
    in_parts: bool = False


@dataclass(frozen=True)
class PartLease:
    """A part as it was read."""

    name: str
    text: str

    @cached_property
    def models(self) -> Mapping[str, LoadedModel]:
        """Loaded models by package; raises ``ValueError``."""
        return _unpack(self.text)


@dataclass(frozen=True, slots=True)
class HeartbeatLease:
    """A heartbeat as it was read."""

    loader: str
    instance: str
    at: float


Found = ReportLease | PartLease | HeartbeatLease


def collection(namespace: str, *, heartbeats: bool = False) -> Collection:
    """The Leases of a namespace that hold reports and their parts, and heartbeats if asked for."""
    kinds = (HEARTBEAT, REPORT, PART) if heartbeats else (REPORT, PART)
    return Collection(VERSION, "leases", namespace, f"{KIND} in ({','.join(kinds)})")


# Writing


def leases(report: LoaderReport, instance: str, owner: str = "") -> ReportLeases:
    """The Leases of a report.

    Args:
        report: the whole report.
        instance: another one with each start of a loader.
        owner: the object that the Leases are collected with. Parts of two owners differ, so that
            none goes with the other's.

    Raises:
        ReportTooLargeError: it has no room, however it is divided.
    """
    parts = _parts(report, owner)
    bare = report.model_copy(
        update={
            "loaded": tuple(model.model_copy(update={"costs": ()}) for model in report.loaded),
            "failed": _with_short_reasons(report.failed, MOST_BYTES),
            "troubles": report.troubles[:_MOST_TROUBLES],
        }
    )
    found = ReportLease(report=bare, instance=instance, parts=tuple(parts))
    lease = _report_lease(found)
    if _size(lease) > MOST_BYTES:
        failed = _with_short_reasons(report.failed, MOST_BYTES // 2)
        bare = bare.model_copy(update={"loaded": (), "failed": failed})
        lease = _report_lease(found.model_copy(update={"report": bare, "in_parts": True}))
    for each in (lease, *parts.values()):
        if _size(each) > MOST_BYTES:
            raise ReportTooLargeError(
                f"the report of {report.loader} has {len(report.loaded)} loaded models and "
                f"{len(report.failed)} failures: its {_size(each)} bytes are more than the "
                f"{MOST_BYTES} that fit into a Lease; give its models to more than one Triton"
            )
    return ReportLeases(lease, parts)


def heartbeat(report: LoaderReport, instance: str) -> Object:
    """The Lease that says that a loader lives, at the time of the report."""
    return build_lease(
        f"{HEARTBEAT_PREFIX}{report.loader}",
        {KIND: HEARTBEAT},
        {KIND: json.dumps({"instance": instance, "at": report.at})},
        holder=report.loader,
        seconds=LEASE_SECONDS,
        at=report.at,
    )


def _report_lease(found: ReportLease) -> Object:
    return build_lease(
        f"{REPORT_PREFIX}{found.report.loader}",
        {KIND: REPORT},
        {KIND: found.model_dump_json(exclude_defaults=True)},
        holder=found.report.loader,
        seconds=LEASE_SECONDS,
        at=found.report.at,
    )


def _parts(report: LoaderReport, owner: str) -> dict[str, Object]:
    """Parts by name. Which models share one follows from their packages, however many there are."""
    rows = [_row(model) for model in report.loaded]
    number = 1
    while True:
        divided: dict[int, list[_Row]] = {}
        for row in rows:
            divided.setdefault(zlib.crc32(row[2].encode()) % number, []).append(row)
        texts = [_pack(divided[place]) for place in sorted(divided)]
        if all(len(text) <= PART_BYTES for text in texts) or number >= len(rows):
            break
        number *= 2
    return dict(_part_lease(report, text, owner) for text in texts)


def _part_lease(report: LoaderReport, text: str, owner: str) -> tuple[str, Object]:
    name = _part_name(owner, report.loader, text)
    lease = build_lease(
        name,
        {KIND: PART},
        {KIND: text},
        holder=report.loader,
        seconds=LEASE_SECONDS,
        at=0.0,
    )
    return name, lease


def _part_name(owner: str, loader: str, text: str) -> str:
    digest = hashlib.sha256("\n".join((owner, loader, text)).encode()).hexdigest()[:40]
    return f"{PART_PREFIX}{digest}"


def _row(model: LoadedModel) -> _Row:
    ref = model.ref
    costs = [(cost.bucket, cost.batch, cost.milliseconds) for cost in model.costs]
    return ref.model, ref.version, ref.package, ref.space, model.instances, model.threads, costs


def _pack(rows: list[_Row]) -> str:
    data = json.dumps(sorted(rows), separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(data)).decode()


def _with_short_reasons(failed: tuple[LoadFailure, ...], most: int) -> tuple[LoadFailure, ...]:
    """With reasons in ``most`` bytes altogether, if they can be."""
    if sum(len(failure.reason.encode()) for failure in failed) <= most // 2:
        return failed
    each = max(_LEAST_REASON, most // (8 * len(failed)))
    return tuple(
        failure
        if len(failure.reason) <= each
        else failure.model_copy(update={"reason": f"{failure.reason[:each]}…"})
        for failure in failed
    )


def _size(lease: Object) -> int:
    return sum(len(key) + len(text.encode()) for key, text in _annotations(lease).items())


# Reading


def read(item: Object) -> Found:
    """What a Lease holds of a report; raises ``ValueError``.

    What says that it is of another loader than the Lease's name does is refused: an API server
    with the chart's policy lets a loader write only Leases of its own name.
    """
    kind = (item["metadata"].get("labels") or {}).get(KIND)
    if kind == PART:
        return read_part(item)
    if kind == HEARTBEAT:
        return _read_heartbeat(item)
    return read_report(item)


def read_report(item: Object) -> ReportLease:
    """The report that a Lease holds; raises ``ValueError``."""
    found = ReportLease.model_validate_json(_annotations(item).get(KIND, ""))
    if (name := item["metadata"]["name"]) != f"{REPORT_PREFIX}{found.report.loader}":
        raise ValueError(f"{name} holds a report of {found.report.loader}")
    return found


def read_part(item: Object) -> PartLease:
    """The part that a Lease holds; raises ``ValueError``."""
    part = _packed_part(item)
    _ = part.models
    return part


def _read_packed(item: Object) -> Found:
    """As ``read``, but a part is not looked into."""
    kind = (item["metadata"].get("labels") or {}).get(KIND)
    return _packed_part(item) if kind == PART else read(item)


def _packed_part(item: Object) -> PartLease:
    name, text = str(item["metadata"]["name"]), _annotations(item).get(KIND, "")
    owners = item["metadata"].get("ownerReferences") or ({"uid": ""},)
    loader = (item.get("spec") or {}).get("holderIdentity") or ""
    # Another loader could take the name before its owner does, and can't make what it stands for.
    if name != _part_name(owners[0]["uid"], loader, text):
        raise ValueError(f"{name} does not hold what its name stands for")
    return PartLease(name, text)


def _unpack(text: str) -> dict[str, LoadedModel]:
    try:
        data = zlib.decompress(base64.b64decode(text))
    except zlib.error as error:
        raise ValueError(f"a part that can't be unpacked: {error}") from error
    models = {}
    for model, version, package, space, instances, threads, costs in _ROWS.validate_json(data):
        models[package] = LoadedModel(
            ref=ModelRef(model=model, version=version, package=package, space=space),
            costs=tuple(
                CostPoint(bucket=bucket, batch=batch, milliseconds=milliseconds)
                for bucket, batch, milliseconds in costs
            ),
            instances=instances,
            threads=threads,
        )
    return models


def _read_heartbeat(item: Object) -> HeartbeatLease:
    told = json.loads(_annotations(item).get(KIND, ""))
    loader = item["metadata"]["name"].removeprefix(HEARTBEAT_PREFIX)
    try:
        return HeartbeatLease(loader, str(told["instance"]), float(told["at"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no heartbeat: {error!r}") from error


def _annotations(item: Object) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def join_parts(found: ReportLease, parts: Mapping[str, PartLease]) -> LoaderReport:
    """The whole report. A part that is not there yet leaves its models without costs."""
    models: dict[str, LoadedModel] = {}
    for name in found.parts:
        if (part := parts.get(name)) is not None:
            models |= part.models
    if found.in_parts:
        return found.report.model_copy(update={"loaded": tuple(models.values())})
    loaded = tuple(models.get(model.ref.package, model) for model in found.report.loaded)
    return found.report.model_copy(update={"loaded": loaded})


class ReportMirror:
    """The reports of a namespace, kept current; what did not change is the same object.

    Without ``costs`` parts are not unpacked, which is most of the memory of many reports, unless a
    report's models are told only by its parts.
    """

    def __init__(
        self,
        reader: Reader,
        namespace: str,
        pace: WatchPace | None = None,
        *,
        heartbeats: bool = False,
        costs: bool = True,
    ) -> None:
        found = collection(namespace, heartbeats=heartbeats)
        self._mirror: CollectionMirror[Found] = CollectionMirror(
            reader, found, read if costs else _read_packed, pace
        )
        self._costs = costs
        # by loader: what a report was made of, and the report
        self._made: dict[str, tuple[ReportLease, tuple[PartLease | None, ...], LoaderReport]] = {}

    def start(self) -> None:
        """Begins to watch; ``close`` ends it."""
        self._mirror.start()

    def close(self) -> None:
        """Stops; what was known stays."""
        self._mirror.close()

    def wait(self, seconds: float) -> bool:
        """Whether the reports were listed once, waiting for it at most ``seconds``."""
        return self._mirror.wait(seconds)

    @property
    def disconnected(self) -> bool:
        """Whether the API server is away."""
        return self._mirror.disconnected

    def listen(self, listener: Callable[[], None]) -> None:
        """Has a function called after each change, from the watch's thread."""
        self._mirror.listen(listener)

    def values(self) -> tuple[LoaderReport, ...]:
        """The last report of each loader, by the loaders' names."""
        found = self._mirror.values()
        parts = {item.name: item for item in found if isinstance(item, PartLease)}
        beats = {
            (item.loader, item.instance): item.at
            for item in found
            if isinstance(item, HeartbeatLease)
        }
        made, reports = {}, []
        for item in found:
            if isinstance(item, ReportLease):
                entry = made[item.report.loader] = self._join(item, parts)
                reports.append(_with_heartbeat(entry[2], item.instance, beats))
        self._made = made
        return tuple(reports)

    def _join(
        self, item: ReportLease, parts: Mapping[str, PartLease]
    ) -> tuple[ReportLease, tuple[PartLease | None, ...], LoaderReport]:
        known = self._made.get(item.report.loader)
        if not self._costs and not item.in_parts:
            return item, (), item.report
        of = tuple(parts.get(name) for name in item.parts)
        if known is not None and known[0] is item and _are_same(known[1], of):
            return known
        return item, of, join_parts(item, parts)


def _are_same(one: Iterable[object], other: Iterable[object]) -> bool:
    return [id(item) for item in one] == [id(item) for item in other]


def _with_heartbeat(
    report: LoaderReport, instance: str, beats: Mapping[tuple[str, str], float]
) -> LoaderReport:
    at = beats.get((report.loader, instance), report.at)
    return report if at <= report.at else report.model_copy(update={"at": at})

"""A range's record counted again from the raw messages, and every number in which two differ.

What an older fold did not count yet is compared in neither.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from contracts.windows import COUNTED_SINCE, OwnCounts, WindowAggregate, WindowRecord
from measures.own_statistics import declaration_of
from measures.ranges import PartitionFold

_COMPARED = ("newest", "events", "through", "skipped", "copies", "mistimed")


@dataclass(frozen=True, slots=True)
class RawMessage:
    """One message of ``headrace.predictions``. ``time`` as Kafka keeps it, unix seconds."""

    offset: int
    time: float
    value: bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """A number that is not what the raw events say. What is absent is 0."""

    where: str  # "sentiment 1 stable 1700000000 statuses 500"
    written: float
    counted: float


def recounted(record: WindowRecord, messages: Iterable[RawMessage]) -> WindowRecord:
    """The record that the range's messages make.

    Args:
        record: says which range, up to which offset, in windows of what length.
        messages: of its partition, in order; those of the range, and the ``LOOKBACK_MESSAGES``
            before it. Others are left out.
    """
    fold = PartitionFold(
        record.topic_id,
        record.partition,
        first=record.start,
        window_seconds=record.window_seconds,
    )
    complete: list[WindowRecord] = []
    for message in messages:
        if message.offset < record.end:
            complete += fold.take(message.offset, message.time, message.value)
    found = complete[0] if complete else fold.growing()
    if found is None:
        found = msgspec.structs.replace(
            record,
            newest=0.0,
            events=0,
            through=0.0,
            skipped=0,
            copies=0,
            mistimed=0,
            aggregates=[],
            refusals={},
        )
    return msgspec.structs.replace(found, revision=record.revision)


def differences(written: WindowRecord, counted: WindowRecord) -> tuple[Difference, ...]:
    """Every number in which two records of one range differ, sorted by where it stands."""
    return differing(dict(_numbers(written)), dict(_numbers(counted)))


def differing(written: Mapping[str, float], counted: Mapping[str, float]) -> tuple[Difference, ...]:
    """Every number in which the two differ, sorted by where it stands; what is absent is 0."""
    return tuple(
        Difference(where, written.get(where, 0), counted.get(where, 0))
        for where in sorted(written.keys() | counted.keys())
        if written.get(where, 0) != counted.get(where, 0)
    )


def numbers(record: WindowRecord) -> int:
    """How many numbers a record holds."""
    return sum(1 for _ in _numbers(record))


def _numbers(record: WindowRecord) -> Iterator[tuple[str, float]]:
    for name in _COMPARED:
        yield name, getattr(record, name)
    yield from nested("refusals", record.refusals)
    for aggregate in record.aggregates:
        yield from _of_aggregate(aggregate, record.revision)


def _of_aggregate(aggregate: WindowAggregate, revision: int) -> Iterator[tuple[str, float]]:
    of = aggregate
    path = f"{of.endpoint} {of.version} {of.package[:12]} {of.arm.value} {of.start}"
    told = msgspec.structs.asdict(aggregate)
    for name in ("endpoint", "version", "package", "arm", "start", "own", "evidence", "unk_words"):
        del told[name]
    yield from nested(path, told)
    judged = {
        name: counts
        for name, counts in msgspec.structs.asdict(aggregate.evidence).items()
        if COUNTED_SINCE.get(name, 0) <= revision
    }
    yield from nested(f"{path} judged", judged)
    yield from nested(f"{path} unk_words", msgspec.structs.asdict(aggregate.unk_words))
    for own in aggregate.own:
        yield from own_numbers(path, own)


def own_numbers(path: str, own: OwnCounts) -> Iterator[tuple[str, float]]:
    """The counts of a statistic of the users' own, by where they stand."""
    name = f"{path} own {own.spec.name} {declaration_of(own.spec)[1:]}"
    yield f"{name} sum_micro", own.sum_micro
    yield f"{name} unfit", own.unfit
    yield from nested(name, own.counts)


def nested(path: str, value: Any) -> Iterator[tuple[str, float]]:  # noqa: ANN401 - nested counts
    """Counts at any depth of mappings, by their keys from the outermost on."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from nested(f"{path} {key}", inner)
    else:
        yield path, value

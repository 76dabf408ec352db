"""A record is a function of the log: whoever folds a range, from wherever, writes the same."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prediction_batches import batch_of

from contracts.endpoint import Arm
from contracts.events import EventBatch, EventLosses, Feedback, encode
from contracts.windows import LOOKBACK_MESSAGES, RANGE_MESSAGES, Sender, WindowRecord
from contracts.windows import decode as decode_record
from contracts.windows import encode as encode_record
from measures.ranges import OutOfOrderError, PartitionFold, range_start, read_from
from measures.recounting import RawMessage, differences, recount_record
from measures.sequences import GatewaySequences


def log_of(seed: int, messages: int, *, copies: float = 0.1) -> list[bytes]:
    """A partition's messages, a few of them written twice."""
    rng = random.Random(seed)
    log: list[bytes] = []
    while len(log) < messages:
        if log and rng.random() < copies:
            log.append(rng.choice(log[-50:]))
        else:
            log.append(encode(batch_of(rng, sequence=len(log), events=1, time=1e6 + len(log))))
    return log


def fold_of(log: list[bytes], *, first: int = 0, end: int | None = None) -> list[WindowRecord]:
    """All records from ``first`` on, that of the open range last; copied as through Kafka."""
    fold = PartitionFold("t", 3, first=first, window_seconds=10)
    records: list[WindowRecord] = []
    for offset in range(read_from(first), len(log) if end is None else end):
        records += fold.take(offset, 1e6 + offset, log[offset])
    growing = fold.growing()
    if growing is not None:
        records.append(growing)
    return [decode_record(encode_record(record)) for record in records]


def test_ranges_lie_side_by_side_at_multiples() -> None:
    records = fold_of(log_of(1, 150))
    assert [(r.start, r.end) for r in records] == [(0, 64), (64, 128), (128, 150)]
    assert [r.through for r in records] == [1e6 + 63, 1e6 + 127, 1e6 + 149]
    assert {(r.topic_id, r.partition) for r in records} == {("t", 3)}


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 500), data=st.data())
def test_a_new_owner_writes_the_same_records(seed: int, length: int, data: st.DataObject) -> None:
    log = log_of(seed, length)
    whole = fold_of(log)
    first = range_start(data.draw(st.integers(0, length - 1)))
    assert fold_of(log, first=first) == [record for record in whole if record.start >= first]


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), end=st.integers(1, 200))
def test_a_grown_record_begins_as_a_smaller_one_did(seed: int, end: int) -> None:
    log = log_of(seed, 200)
    (small, *_), (large, *_) = fold_of(log, end=end)[::-1], fold_of(log)[::-1]
    if small.start == large.start:
        assert small.end <= large.end
        assert small.events <= large.events
        assert small.newest <= large.newest


def test_a_copy_counts_once_even_across_ranges() -> None:
    one = encode(batch_of(random.Random(1), sequence=7, events=3))
    other = [encode(EventBatch("h", number)) for number in range(RANGE_MESSAGES)]
    records = fold_of([one, one, *other, one])
    assert [record.events for record in records] == [3, 0]
    assert [record.copies for record in records] == [1, 1]


def test_copies_of_another_start_of_the_gateway_are_no_copies() -> None:
    batches = [batch_of(random.Random(1), gateway=g, sequence=7, events=3) for g in ("a", "b")]
    (record,) = fold_of([encode(batch) for batch in batches])
    assert (record.events, record.copies) == (6, 0)


def test_a_copy_is_told_however_far_away_the_first_one_is() -> None:
    one = encode(batch_of(random.Random(1), sequence=7, events=3))
    between = [encode(EventBatch("h", number)) for number in range(3 * LOOKBACK_MESSAGES)]
    records = fold_of([one, *between, one])
    assert [record.events for record in records] == [3, *[0] * (len(records) - 1)]
    assert records[-1].copies == 1


def test_a_new_owner_knows_by_the_checkpoint_what_it_has_not_read() -> None:
    one = encode(batch_of(random.Random(1), sequence=7, events=3))
    log = [one, *(encode(EventBatch("h", number)) for number in range(600)), one]
    before = PartitionFold("t", 3, first=0, window_seconds=10)
    for offset, message in enumerate(log[:600]):
        before.take(offset, 1e6 + offset, message)
    kept = before.checkpoint
    assert kept.offset == range_start(600)
    after = PartitionFold(
        "t", 3, first=kept.offset, window_seconds=10, known=GatewaySequences.decode(kept.sequences)
    )
    for offset in range(kept.offset, len(log)):
        after.take(offset, 1e6 + offset, log[offset])
    record = after.growing()
    assert record is not None
    assert (record.events, record.copies) == (0, 1)
    assert [record] == [one for one in fold_of(log) if one.start == record.start]


def told_by(gateway: str, sequence: int, truth: str, *, text: int = 0, at: float = 5.0) -> bytes:
    told = Feedback(1e6, "r", "e", "1", "p", Arm.STABLE, "a", truth, text=text, answered_at=at)
    return encode(EventBatch(gateway, sequence, feedback=[told]))


def truths(records: list[WindowRecord]) -> list[dict[str, dict[str, int]]]:
    return [aggregate.feedback for record in records for aggregate in record.aggregates]


def test_a_truth_that_two_gateways_were_told_counts_once_and_the_first_one_counts() -> None:
    records = fold_of([told_by("g", 0, "b"), told_by("h", 0, "a"), told_by("g", 1, "b")])
    assert truths(records) == [{"a": {"b": 1}}]
    assert records[0].feedback_repeated == 2


def test_another_text_and_another_answer_of_the_same_id_have_truths_of_their_own() -> None:
    records = fold_of(
        [told_by("g", 0, "b"), told_by("h", 0, "b", text=1), told_by("h", 1, "b", at=6.0)]
    )
    assert truths(records) == [{"a": {"b": 3}}]
    assert records[0].feedback_repeated == 0


@pytest.mark.parametrize(("between", "counted"), [(250, 1), (LOOKBACK_MESSAGES + 64, 2)])
def test_a_truth_is_remembered_for_the_messages_of_the_look_back(
    between: int, counted: int
) -> None:
    idle = [encode(EventBatch("i", number)) for number in range(between)]
    log = [told_by("g", 0, "b"), *idle, told_by("h", 0, "b")]
    records = fold_of(log)
    assert sum(of["a"]["b"] for of in truths(records)) == counted


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 900), data=st.data())
def test_truths_count_the_same_for_a_new_owner_and_in_a_recount(
    seed: int, length: int, data: st.DataObject
) -> None:
    """Any gateway may be told anything again, messages are copied, and owners change."""
    rng, numbers = random.Random(seed), [0, 0, 0]
    log: list[bytes] = []
    for _ in range(length):
        if log and rng.random() < 0.1:
            log.append(rng.choice(log[-50:]))
            continue
        which = rng.randrange(3)
        if rng.random() < 0.1:
            log.append(told_by(f"g{which}", numbers[which], "b", text=rng.randrange(12)))
        else:
            log.append(encode(EventBatch(f"g{which}", numbers[which])))
        numbers[which] += 1
    whole = fold_of(log)
    first = range_start(data.draw(st.integers(0, length - 1)))
    before = PartitionFold("t", 3, first=0, window_seconds=10)
    for offset in range(first):
        before.take(offset, 1e6 + offset, log[offset])
    known = GatewaySequences.decode(before.checkpoint.sequences)
    after = PartitionFold("t", 3, first=first, window_seconds=10, known=known)
    again: list[WindowRecord] = []
    for offset in range(read_from(first), length):
        again += after.take(offset, 1e6 + offset, log[offset])
    growing = after.growing()
    again += [growing] if growing is not None else []
    assert again == [record for record in whole if record.start >= first]
    raw = [RawMessage(offset, 1e6 + offset, message) for offset, message in enumerate(log)]
    for record in whole:
        assert differences(record, recount_record(record, raw)) == ()


def test_a_record_tells_who_sent_which_messages_and_what_they_lost() -> None:
    lost = [
        EventLosses("sentiment", 200, "buffer_full", 3),
        EventLosses("sentiment", 503, "too_large", 1),
    ]
    more = [EventLosses("sentiment", 200, "buffer_full", 5)]
    log = [
        EventBatch("g", 4, dropped=lost),
        EventBatch("h", 0),
        EventBatch("g", 5, dropped=more, last=True),
        EventBatch("g", 5, dropped=more, last=True),
    ]
    (record,) = fold_of([encode(batch) for batch in log])
    assert record.senders == {
        "g": Sender([4, 5], {"sentiment": {"buffer_full": 5}}, ended=True),
        "h": Sender([0]),
    }


def test_messages_that_are_no_batches_are_counted_and_passed() -> None:
    batch = batch_of(random.Random(1), sequence=9, events=3)
    strange = [b"", b"{}", b'{"schema_version": 99, "gateway": "g", "sequence": 8}', b"\xff"]
    (record,) = fold_of([*strange, encode(batch)])
    assert (record.skipped, record.events, record.end) == (4, 3, 5)


@pytest.mark.slow
@settings(max_examples=200)
@given(data=st.data())
def test_whatever_is_in_a_message_folding_goes_on(data: st.DataObject) -> None:
    """A message of a program with a mistake in it, or of somebody else's."""
    message = bytearray(encode(batch_of(random.Random(1), sequence=1, events=2)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(message) - 1))
        other = data.draw(
            st.sampled_from(['"', "{", "}", "[", "]", ",", ":", "-", "9" * 400, "e9"])
        )
        message[at : at + 1] = data.draw(st.sampled_from([other.encode(), b"\xff", b"\x00"]))
    after = encode(batch_of(random.Random(2), gateway="h", sequence=2, events=3))
    (record,) = fold_of([bytes(message), after])
    assert record.events >= 3
    assert record.end == 2


def test_messages_of_a_clock_that_is_off_are_counted_and_kept() -> None:
    rng = random.Random(1)
    times = [1e6, 1e6 + 3600, 1e6 - 3600, 1e6 + 200]
    fold = PartitionFold("t", 0, first=0, window_seconds=10)
    for offset, time in enumerate(times):
        fold.take(offset, 1e6, encode(batch_of(rng, sequence=offset, time=time, events=2)))
    record = fold.growing()
    assert record is not None
    assert (record.mistimed, record.events, record.through) == (2, 8, 1e6)
    starts = {aggregate.start // 3600 for aggregate in record.aggregates}
    assert starts == {1e6 // 3600 - 1, 1e6 // 3600, 1e6 // 3600 + 1}


def test_a_hole_in_the_log_is_counted_and_ends_its_range() -> None:
    fold = PartitionFold("t", 0, first=64, window_seconds=10)
    message = [encode(EventBatch("g", number)) for number in range(4)]
    assert fold.take(70, 0.0, message[0]) == []
    assert fold.missing == 0
    assert fold.take(72, 0.0, message[1]) == []
    assert fold.missing == 1
    (left,) = fold.take(200, 0.0, message[2])
    assert (left.start, left.end) == (64, 73)
    records = fold.take(319, 0.0, message[3])
    assert [(record.start, record.end) for record in records] == [(192, 201), (256, 320)]
    assert fold.growing() is None


def test_an_offset_that_comes_again_is_an_error() -> None:
    fold = PartitionFold("t", 0, first=0, window_seconds=10)
    fold.take(0, 0.0, b"")
    with pytest.raises(OutOfOrderError, match="offset 0"):
        fold.take(0, 0.0, b"")

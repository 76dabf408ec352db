"""Event messages survive the wire, and an unknown schema is told apart from rubbish."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import Arm
from contracts.events import (
    SCHEMA_VERSION,
    EventBatch,
    EventLosses,
    Latency,
    Pairing,
    PredictionEvent,
    Refusals,
    TextRecord,
    UnknownSchemaError,
    decode,
    encode,
    encode_around,
    encode_event,
)

seconds = st.floats(min_value=0, max_value=600, allow_nan=False)
counts = st.integers(min_value=0, max_value=2**31)
statuses = st.integers(min_value=100, max_value=599)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
text_records = st.builds(
    TextRecord,
    tokens=counts,
    words=counts,
    unk=counts,
    truncated=st.booleans(),
    label=st.none() | words,
    score=st.none() | st.floats(0, 1),
    norm=st.none() | st.floats(0, 1e6),
    non_zeros=st.none() | counts,
)
pairings = st.builds(
    Pairing,
    version=words,
    seconds=seconds,
    equal=st.lists(st.booleans(), max_size=3),
    distance=st.lists(st.floats(0, 1), max_size=3),
    labels=st.lists(words, max_size=3),
    scores=st.lists(st.floats(0, 1), max_size=3),
)
events = st.builds(
    PredictionEvent,
    request_id=words,
    time=seconds,
    endpoint=words,
    version=words,
    package=words,
    arm=st.sampled_from(Arm),
    status=statuses,
    answered=st.booleans(),
    latency=st.builds(
        Latency, queue=seconds, tokenise=seconds, wait=seconds, infer=seconds, total=seconds
    ),
    texts=st.lists(text_records, max_size=3),
    observations=st.dictionaries(words, st.lists(words | st.floats(0, 1), max_size=2), max_size=2),
    pairing=st.none() | pairings,
    space=st.sampled_from(["", "0123456789ab"]),
)
batches = st.builds(
    EventBatch,
    gateway=words,
    sequence=counts,
    events=st.lists(events, max_size=3),
    refusals=st.lists(st.builds(Refusals, words, statuses, words, counts), max_size=2),
    dropped=st.lists(st.builds(EventLosses, words, statuses, words, counts), max_size=2),
)


@given(batches)
def test_what_is_encoded_is_what_is_decoded(batch: EventBatch) -> None:
    assert decode(encode(batch)) == batch


@given(batches)
def test_a_message_is_the_same_whether_its_events_are_encoded_together_or_apart(
    batch: EventBatch,
) -> None:
    without = msgspec.structs.replace(batch, events=[])
    assert encode_around(without, [encode_event(each) for each in batch.events]) == encode(batch)


def test_a_message_of_an_unknown_schema_is_told_apart() -> None:
    message = json.loads(encode(EventBatch(gateway="g", sequence=0)))
    message["schema_version"] = SCHEMA_VERSION + 1
    message["events"] = "a form that this program has never seen"
    with pytest.raises(UnknownSchemaError, match=str(SCHEMA_VERSION + 1)):
        decode(json.dumps(message).encode())


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"{}",
        b'{"schema_version": "one"}',
        b'{"schema_version": 1, "gateway": "\xff", "sequence": 1}',
        b'{"schema_version": 1, "x": ' + b"[" * 100_000,
        b'{"schema_version": 1, "gateway": "g", "sequence": 1, "refusals": [["e", 503, "r", -1]]}',
    ],
    ids=lambda rubbish: str(rubbish[:40]),
)
def test_rubbish_is_a_decode_error(rubbish: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(rubbish)


def test_a_message_can_be_read_by_any_json_reader() -> None:
    record = TextRecord(tokens=5, words=3, unk=1, truncated=False, label="positive", score=0.75)
    event = PredictionEvent(
        request_id="r-1",
        time=1.5,
        endpoint="sentiment",
        version="3",
        package="ab" * 32,
        arm=Arm.STABLE,
        status=200,
        answered=True,
        latency=Latency(0, 0.001, 0.002, 0.003, 0.006),
        texts=[record],
    )
    message = json.loads(encode(EventBatch(gateway="g", sequence=7, events=[event])))
    assert message["sequence"] == 7
    assert message["events"][0]["arm"] == "stable"
    nothing_else = [None] * 4
    assert message["events"][0]["texts"] == [[5, 3, 1, False, "positive", 0.75, *nothing_else]]


def test_pairings_of_older_and_of_newer_gateways_are_read() -> None:
    pairing = Pairing("1", 0.25, [True], [0.5], ["positive"], [0.75])
    assert json.loads(msgspec.json.encode(pairing)) == [
        "1", 0.25, [True], [0.5], ["positive"], [0.75], 0, [], [],
    ]  # fmt: skip
    older = msgspec.json.decode(b'["1",0.25,[true],[0.5]]', type=Pairing)
    assert older == Pairing("1", 0.25, [True], [0.5])
    assert (older.labels, older.scores, older.status, older.norms) == ([], [], 0, [])
    assert older.neighbours == []
    newer = msgspec.json.decode(
        b'["1",0.25,[true],[0.5],["positive"],[0.75],200,[1.5],[7],["what is not known yet"]]',
        type=Pairing,
    )
    assert newer == msgspec.structs.replace(pairing, status=200, norms=[1.5], neighbours=[7])

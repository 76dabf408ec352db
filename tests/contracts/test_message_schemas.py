"""Messages fit their published schema, and what read the first ones reads the later ones."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from contracts import message_schemas
from contracts.endpoint import Arm
from contracts.events import EventBatch, Latency, PredictionEvent, TextRecord, encode
from contracts.message_schemas import Messages, message_schema
from contracts.windows import WindowAggregate, WindowRecord
from contracts.windows import encode as encode_record

PUBLISHED = Path(message_schemas.__file__).parent / "schemas"
Schema = dict[str, Any]


def breaks(old: Schema, new: Schema) -> list[str]:
    """What a reader of the old schema meets in messages of the new one, or misses there."""
    found = []
    for name, was in old["$defs"].items():
        now = new["$defs"].get(name, {})
        keys = ("type", "enum", "required")
        found += [f"{name}: {key}" for key in keys if now.get(key) != was.get(key)]
        if now.get("minItems") != was.get("minItems"):
            found.append(f"{name}: items that are needed")
        places = now.get("prefixItems", [])
        if places[: len(was.get("prefixItems", []))] != was.get("prefixItems", []):
            found.append(f"{name}: items")
        for field, wanted in was.get("properties", {}).items():
            if now.get("properties", {}).get(field) != wanted:
                found.append(f"{name}.{field}")
    return found


@pytest.mark.parametrize("of", Messages)
def test_a_reader_of_the_published_schema_reads_what_is_written_today(of: Messages) -> None:
    schema = message_schema(of)
    version = schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"]["schema_version"]
    path = PUBLISHED / f"{of}.v{version['const']}.json"
    assert breaks(json.loads(path.read_text(encoding="utf-8")), schema) == [], (
        f"raise SCHEMA_VERSION; before a release of it: headrace schema {of} > {path}"
    )


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda defs: defs["EventBatch"]["properties"].pop("made"), "EventBatch.made"),
        (lambda defs: defs["Latency"]["prefixItems"].reverse(), "Latency: items"),
        (lambda defs: defs["Arm"]["enum"].append("other"), "Arm: enum"),
        (
            lambda defs: defs["PredictionEvent"]["required"].append("more"),
            "PredictionEvent: required",
        ),
        (lambda defs: defs["TextRecord"].update(minItems=5), "TextRecord: items that are needed"),
        (lambda defs: defs.pop("Pairing"), "Pairing: type"),
    ],
)
def test_what_a_reader_would_trip_over_is_told(spoil: Any, told: str) -> None:
    old = message_schema(Messages.EVENTS)
    new = copy.deepcopy(old)
    spoil(new["$defs"])
    assert told in breaks(old, new)


def test_what_is_new_trips_nobody() -> None:
    old = message_schema(Messages.EVENTS)
    new = copy.deepcopy(old)
    new["$defs"]["EventBatch"]["properties"]["more"] = {"type": "string"}
    new["$defs"]["TextRecord"]["prefixItems"].append({"type": "integer", "title": "more"})
    assert breaks(old, new) == []


def test_an_event_fits_its_schema() -> None:
    event = PredictionEvent(
        request_id="r", time=1.0, endpoint="e", version="1", package="p", arm=Arm.STABLE,
        status=200, answered=True, latency=Latency(0.0, 0.1, 0.2, 0.3, 0.6),
        texts=[TextRecord(5, 3, 0, False, label="positive", score=0.9)],
        observations={"own": ["a", 1.0]},
    )  # fmt: skip
    fits(Messages.EVENTS, encode(EventBatch(gateway="g", sequence=0, events=[event])))


def test_a_window_record_fits_its_schema() -> None:
    aggregate = WindowAggregate(
        endpoint="e", version="1", package="p", arm=Arm.STABLE, start=10, statuses={200: 3}
    )
    record = WindowRecord(
        topic_id="t", partition=0, start=0, end=3, newest=1.0, events=3, aggregates=[aggregate]
    )
    fits(Messages.WINDOWS, encode_record(record))


def fits(of: Messages, message: bytes) -> None:
    jsonschema_rs.validator_for(message_schema(of)).validate(json.loads(message))


def test_what_is_none_does_not_fit() -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        fits(Messages.EVENTS, b'{"gateway": "g"}')


def test_items_of_an_array_have_the_names_of_fields() -> None:
    latency = message_schema(Messages.EVENTS)["$defs"]["Latency"]["prefixItems"]
    assert [item["title"] for item in latency] == ["queue", "tokenise", "wait", "infer", "total"]

"""The JSON schemas of what Kafka's topics hold, for engines and programs of the users' own.

``headrace schema`` prints them, and ``contracts/schemas`` holds that of each schema version as its
first messages were: later ones may have more, and lack nothing of it. Pure.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

from contracts import events, windows


class Messages(StrEnum):
    """Whose messages."""

    EVENTS = "events"
    WINDOWS = "windows"


def message_schema(of: Messages) -> dict[str, Any]:
    """The schema of one message, draft 2020-12."""
    message, topic, version = _TYPES[of]
    schema = msgspec.json.schema(message)
    structs = {**vars(events), **vars(windows)}
    for struct, node in schema["$defs"].items():
        # An array's items are told apart by their place alone: who reads them needs their names.
        for number, item in enumerate(node.get("prefixItems", ())):
            item["title"] = structs[struct].__struct_fields__[number]
    whole = schema["$defs"][message.__name__]
    whole["properties"]["schema_version"] = {"const": version}
    whole["required"].append("schema_version")
    title = f"A message of {topic}"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


_TYPES: Final[dict[Messages, tuple[type[msgspec.Struct], str, int]]] = {
    Messages.EVENTS: (events.EventBatch, events.TOPIC, events.SCHEMA_VERSION),
    Messages.WINDOWS: (windows.WindowRecord, windows.TOPIC, windows.SCHEMA_VERSION),
}

"""The JSON schemas of what the dialects take and give, for ``described``.

Those of requests come from the structs that read them, so they can't say something else than the
code does.
"""

import msgspec

from contracts.tasks import PUBLIC_OUTPUTS
from gateway.dialects.feedback import FeedbackRequest
from gateway.dialects.huggingface import HuggingFaceRequest
from gateway.dialects.kserve_v1 import KServeRequest
from gateway.dialects.oip_http import InferRequest
from gateway.dialects.openai import EmbeddingsRequest
from gateway.http.openapi import Schema

_REF = "#/components/schemas/{name}"
STRING: Schema = {"type": "string"}
_STRINGS: Schema = {"type": "array", "items": STRING}
_NUMBER: Schema = {"type": "number"}
_VECTOR: Schema = {"type": "array", "items": _NUMBER}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}


def object_of(properties: dict[str, Schema], *optional: str) -> Schema:
    """An object that has these properties, all but the optional ones always."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


def list_of(items: Schema) -> Schema:
    """A list of any length."""
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """Refers to one of ``schemas``."""
    return {"$ref": _REF.format(name=name)}


_LABEL_SCORE = object_of({"label": STRING, "score": _NUMBER})
_LABELS = list_of(ref("LabelScore"))
_OPENAI_MODEL = object_of({"id": STRING, "object": STRING, "created": INTEGER, "owned_by": STRING})
_RESPONSES: dict[str, Schema] = {
    "Endpoint": object_of(
        {
            "name": STRING,
            "task": {"enum": [task.value for task in PUBLIC_OUTPUTS]},
            "ready": BOOLEAN,
            "versions": {**_STRINGS, "description": "stable first"},
            "labels": _STRINGS,
            "dimension": {"type": ["integer", "null"], "description": "of a vector"},
            "max_tokens": {**INTEGER, "description": "of a text; longer ones are cut"},
            "max_texts": {**INTEGER, "description": "of a request"},
            "timeout_seconds": _NUMBER,
            "metadata": {"type": "object", "additionalProperties": STRING},
        }
    ),
    "LabelScore": _LABEL_SCORE,
    "HuggingFaceResponse": {
        "description": "By task, and by whether one text was sent or a list.",
        "anyOf": [_LABELS, list_of(_LABELS), _VECTOR, list_of(_VECTOR)],
    },
    "KServeResponse": object_of(
        {
            "predictions": list_of(
                {
                    "anyOf": [
                        object_of(
                            {
                                "label": STRING,
                                "score": _NUMBER,
                                "scores": {"type": "object", "additionalProperties": _NUMBER},
                            }
                        ),
                        _VECTOR,
                    ]
                }
            )
        }
    ),
    "EmbeddingsResponse": object_of(
        {
            "object": {"const": "list"},
            "data": list_of(
                object_of(
                    {
                        "object": {"const": "embedding"},
                        "index": INTEGER,
                        "embedding": {"anyOf": [_VECTOR, STRING]},
                    }
                )
            ),
            "model": STRING,
            "usage": object_of({"prompt_tokens": INTEGER, "total_tokens": INTEGER}),
        }
    ),
    "Models": object_of(
        {"models": _STRINGS, "object": {"const": "list"}, "data": list_of(_OPENAI_MODEL)}
    ),
    "Model": {
        **_OPENAI_MODEL,
        "properties": {**_OPENAI_MODEL["properties"], "name": STRING, "ready": BOOLEAN},
    },
    "InferResponse": object_of(
        {
            "model_name": STRING,
            "model_version": STRING,
            "id": STRING,
            "parameters": {"type": "object"},
            "outputs": list_of(
                object_of(
                    {
                        "name": STRING,
                        "datatype": STRING,
                        "shape": list_of(INTEGER),
                        "data": {"type": "array"},
                        "parameters": {"type": "object"},
                    },
                    "data",
                    "parameters",
                )
            ),
        },
        "id",
        "parameters",
    ),
}


def schemas() -> dict[str, Schema]:
    """All schemas that the operations refer to."""
    _, requests = msgspec.json.schema_components(
        [HuggingFaceRequest, KServeRequest, EmbeddingsRequest, InferRequest, FeedbackRequest],
        ref_template=_REF,
    )
    # These two are read as anything, to be refused with a sentence of our own.
    text_or_row = {"anyOf": [STRING, {**_STRINGS, "minItems": 1, "maxItems": 1}]}
    requests["InputTensor"]["properties"]["data"] = list_of(text_or_row)
    timeout = {"type": ["integer", "null"], "minimum": 0, "maximum": 600_000_000}
    requests["InferRequest"]["properties"]["parameters"]["properties"] = {
        "timeout": {**timeout, "description": "microseconds; 0 for the endpoint's own"},
        "binary_data_output": BOOLEAN,
    }
    requests["EmbeddingsRequest"]["properties"]["input"] = {
        "anyOf": [STRING, {**_STRINGS, "minItems": 1}]
    }
    return {**requests, **_RESPONSES}

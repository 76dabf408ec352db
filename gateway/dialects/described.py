"""What each route takes and gives, for ``/openapi.json`` and ``/docs``.

A test holds this list against the routes: all are here but those that are refused with a sentence
whatever is sent.
"""

from dataclasses import replace
from http import HTTPStatus

from contracts.model import ENDPOINT_NAME
from contracts.tasks import TEXT
from gateway.dialects.schemas import BOOLEAN, INTEGER, STRING, list_of, object_of, ref
from gateway.http.openapi import Operation, Schema
from gateway.http.router import ErrorForm

_ENDPOINT: Schema = {
    "name": "endpoint",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{ENDPOINT_NAME.pattern}$"},
    "description": "the endpoint's name, as in GET /endpoints",
}
_VERSION: Schema = {
    "name": "version",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9]+$"},
    "description": "forces this version; the rollout's checks don't count it",
}


_SECONDS: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 600}


def _header(name: str, description: str, schema: Schema) -> Schema:
    place = {"name": name, "in": "header", "required": False}
    return {**place, "schema": schema, "description": description}


_ASKING = (
    _header("x-request-id", "taken over, where it is 1 to 128 letters, digits and ._:-", STRING),
    _header("traceparent", "W3C trace context", STRING),
)
_PREDICTING = (
    *_ASKING,
    _header("x-headrace-key", "whom to keep on one version during a rollout", STRING),
    _header("x-headrace-version", "forces a version", STRING),
    _header("x-request-timeout", "seconds; the endpoint's own limit is the most", _SECONDS),
)
_ANSWERED = {
    "x-headrace-version": {**STRING, "description": "the version that answered"},
    "x-headrace-arm": {"enum": ["stable", "canary", "control", "forced"]},
    "x-headrace-receipt": {**STRING, "description": "for POST /feedback, where that is on"},
    "x-headrace-truncated": {**STRING, "description": "indices of the texts that were cut: 0,7"},
}
_KEY_ERRORS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_READ_ERRORS = (
    HTTPStatus.BAD_REQUEST,
    *_KEY_ERRORS,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_PREDICT_ERRORS = (
    *_READ_ERRORS,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.NOT_IMPLEMENTED,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_BOUNDS = (
    "Answered whole and in order, or refused whole. Texts longer than the model takes are cut, and "
    "x-headrace-truncated says which. The body may be compressed (content-encoding: gzip, deflate)."
)


_OIP = "Open Inference Protocol"
_OIP_EXAMPLE = {"inputs": [{"name": TEXT, "shape": [1], "datatype": "BYTES", "data": ["A film."]}]}
_OIP_BOUNDS = (
    f"{_BOUNDS} The binary tensor data extension is offered both ways, as Triton has it "
    "(Inference-Header-Content-Length); such bodies and answers are application/octet-stream."
)
_ANYTHING: Schema = {"type": "object"}
_LIVE = object_of({"live": BOOLEAN})
_READY = object_of({"ready": BOOLEAN})
_READY_WITH_NOTES = object_of({"ready": BOOLEAN, "notes": list_of(STRING)})


def _of_path(path: str) -> tuple[Schema, ...]:
    return tuple(one for one in (_ENDPOINT, _VERSION) if "{" + one["name"] + "}" in path)


def _predict(path: str, tag: str, request: str, response: str) -> Operation:
    """A POST of texts; ``request`` and ``response`` name schemas."""
    return Operation(
        "POST",
        path,
        tag,
        "Classify or embed texts",
        ref(response),
        request=ref(request),
        description=_BOUNDS,
        parameters=(*_of_path(path), *_PREDICTING),
        headers=_ANSWERED,
        errors=_PREDICT_ERRORS,
    )


def _read(path: str, tag: str, summary: str, response: Schema) -> Operation:
    """A GET of what is known of endpoints."""
    parameters = (*_of_path(path), *_ASKING)
    return Operation(
        "GET", path, tag, summary, response, parameters=parameters, errors=_READ_ERRORS
    )


def _ready(path: str, tag: str, summary: str, response: Schema) -> Operation:
    """A GET that answers 503 in the same form while the endpoint is not ready."""
    return replace(_read(path, tag, summary, response), unready=True, errors=_READ_ERRORS[:-1])


def _probe(path: str, tag: str, summary: str, response: Schema) -> Operation:
    """A GET that takes no key."""
    return Operation("GET", path, tag, summary, response, open_to_all=True)


def _embeddings() -> Operation:
    operation = _predict("/v1/embeddings", "OpenAI", "EmbeddingsRequest", "EmbeddingsResponse")
    examples = {"one text": {"model": "minilm", "input": "A film."}}
    return replace(operation, summary="Embed texts", examples=examples)


def _hugging_face() -> list[Operation]:
    path, listing = "/endpoints/{endpoint}", object_of({"endpoints": list_of(ref("Endpoint"))})
    predict = _predict(path, "Hugging Face", "HuggingFaceRequest", "HuggingFaceResponse")
    many = {"inputs": ["Dull.", "Great."], "parameters": {"top_k": None}}
    examples = {
        "one text": {"inputs": "A film that stays with you."},
        "many texts, all labels": many,
        "a pair": {"inputs": {"text": "Is it good?", "text_pair": "It is."}},
    }
    return [
        replace(predict, examples=examples),
        _read("/endpoints", "Endpoints", "All endpoints", listing),
        _read(path, "Endpoints", "One endpoint", ref("Endpoint")),
    ]


def _kserve_v1() -> list[Operation]:
    path = "/v1/models/{endpoint}"
    predict = _predict(f"{path}:predict", "KServe v1", "KServeRequest", "KServeResponse")
    return [
        replace(predict, examples={"two texts": {"instances": ["Dull.", "Great."]}}),
        _read(
            "/v1/models",
            "OpenAI",
            "All endpoints, for OpenAI's and KServe's clients",
            ref("Models"),
        ),
        _ready(path, "OpenAI", "One endpoint", ref("Model")),
    ]


def _feedback() -> Operation:
    counts = object_of(dict.fromkeys(("accepted", "repeated", "unknown"), INTEGER))
    receipt = "AZmpc2VudGltZW50..."
    return Operation(
        "POST",
        "/feedback",
        "Feedback",
        "Tell the true labels of an answer",
        counts,
        request=ref("FeedbackRequest"),
        description=(
            "With the receipt that came with the answer in x-headrace-receipt. One label a text, "
            "null where it is not known; repeated says how many had been told before. Off (501) "
            "without a --receipt-key-file."
        ),
        examples={
            "one text": {"receipt": receipt, "label": "positive"},
            "as a list": {"receipt": receipt, "labels": ["positive"]},
        },
        parameters=_ASKING,
        errors=(
            *_READ_ERRORS,
            HTTPStatus.REQUEST_TIMEOUT,
            HTTPStatus.GONE,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            HTTPStatus.UNPROCESSABLE_ENTITY,
            HTTPStatus.NOT_IMPLEMENTED,
        ),
        success=HTTPStatus.ACCEPTED,
    )


def _open_inference() -> list[Operation]:
    model = "/v2/models/{endpoint}"
    ready = object_of({"name": STRING, "ready": BOOLEAN})
    operations = [
        _probe("/v2", _OIP, "Name, version and extensions", _ANYTHING),
        _probe("/v2/health/live", _OIP, "Alive", _LIVE),
        replace(_probe("/v2/health/ready", _OIP, "Ready for traffic", _READY), unready=True),
    ]
    for base in (model, f"{model}/versions/{{version}}"):
        infer = _predict(f"{base}/infer", _OIP, "InferRequest", "InferResponse")
        operations += [
            replace(
                infer,
                description=_OIP_BOUNDS,
                examples={"one text": _OIP_EXAMPLE},
                content_types=("application/json", "application/octet-stream"),
            ),
            _read(base, _OIP, "Inputs, outputs and versions", _ANYTHING),
            _ready(f"{base}/ready", _OIP, "Ready", ready),
            _read(f"{base}/config", _OIP, "Triton's model configuration", _ANYTHING),
        ]
    return [replace(operation, form=ErrorForm.SENTENCE) for operation in operations]


def operations() -> list[Operation]:
    """All operations, in the order in which they are shown."""
    tag = "Operations"
    metrics = _probe("/metrics", tag, "Prometheus metrics", STRING)
    docs = _probe("/docs", tag, "This document for people", STRING)
    return [
        *_hugging_face(),
        _embeddings(),
        *_kserve_v1(),
        *_open_inference(),
        _feedback(),
        _probe("/livez", tag, "Alive", _LIVE),
        replace(_probe("/readyz", tag, "Ready for traffic", _READY_WITH_NOTES), unready=True),
        replace(metrics, content_types=("text/plain",)),
        _probe("/openapi.json", tag, "This document", _ANYTHING),
        replace(docs, content_types=("text/html",)),
    ]

"""OpenAPI descriptions that several dialects share: parameters, errors, headers of answers.

Each dialect builds the ``Operation`` of its routes from these, beside its handlers.
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec

from contracts.model import ENDPOINT_NAME
from gateway.http.openapi import Operation, Schema

STRING: Schema = {"type": "string"}
_SECONDS: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 600}
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


def _header(name: str, description: str, schema: Schema) -> Schema:
    place = {"name": name, "in": "header", "required": False}
    return {**place, "schema": schema, "description": description}


ASKING = (
    _header("x-request-id", "taken over if it is 1 to 128 letters, digits and ._:-", STRING),
    _header("traceparent", "W3C trace context", STRING),
)
_PREDICTING = (
    *ASKING,
    _header("x-headrace-key", "whom to keep on one version during a rollout", STRING),
    _header("x-headrace-version", "forces a version", STRING),
    _header("x-headrace-space", "only vectors of this space, or of the next one: next", STRING),
    _header("x-headrace-class", "bulk takes idle capacity only", {"enum": ["interactive", "bulk"]}),
    _header("x-headrace-strict", "refuse fields that mean nothing here", {"enum": ["true"]}),
    _header("x-request-timeout", "seconds; the endpoint's own limit is the most", _SECONDS),
)
_ANSWERED = {
    "x-headrace-version": {**STRING, "description": "the version that answered"},
    "x-headrace-arm": {"enum": ["stable", "canary", "control", "forced"]},
    "x-headrace-space": {**STRING, "description": "of vectors: only those of one may be compared"},
    "x-headrace-space-next": {
        **STRING,
        "description": "to a caller who named no space: the one that waits for its cutover",
    },
    "x-headrace-receipt": {**STRING, "description": "for POST /feedback, if that is on"},
    "x-headrace-truncated": {**STRING, "description": "indices of the texts that were cut: 0,7"},
    "x-headrace-ignored": {
        **STRING,
        "description": "fields that mean nothing here: parameters.stride",
    },
}
READ_ERRORS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_PREDICT_ERRORS = (
    *READ_ERRORS,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.NOT_IMPLEMENTED,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.GATEWAY_TIMEOUT,
)
BOUNDS = (
    "Answered whole and in order, or refused whole. Texts longer than the model takes are cut, and "
    "x-headrace-truncated says which. The body may be compressed (content-encoding: gzip, deflate)."
)


def _of_path(path: str) -> tuple[Schema, ...]:
    return tuple(one for one in (_ENDPOINT, _VERSION) if "{" + one["name"] + "}" in path)


def prediction_operation(
    path: str,
    tag: str,
    request: type[msgspec.Struct],
    response: object,
    examples: Mapping[str, object],
    *,
    summary: str = "Classify or embed texts",
    description: str = BOUNDS,
    binary: bool = False,
    headers: Mapping[str, Schema] = MappingProxyType({}),
) -> Operation:
    """The OpenAPI operation of a route that predicts for texts.

    ``headers`` are those that no other dialect has.
    """
    return Operation(
        tag,
        summary,
        response,
        description=description,
        request=request,
        examples=examples,
        parameters=(*_of_path(path), *_PREDICTING),
        headers={**_ANSWERED, **headers},
        errors=_PREDICT_ERRORS,
        binary=binary,
    )


def reading(
    path: str, tag: str, summary: str, response: object, *, unready: bool = False
) -> Operation:
    """A GET of metadata of endpoints; ``unready``: 503 has the form of the answer."""
    return Operation(
        tag,
        summary,
        response,
        parameters=(*_of_path(path), *ASKING),
        errors=READ_ERRORS[:-1] if unready else READ_ERRORS,
        unready=unready,
    )


def probing(tag: str, summary: str, response: object, **more: Any) -> Operation:  # noqa: ANN401
    """A GET that takes no key."""
    return Operation(tag, summary, response, open_to_all=True, **more)

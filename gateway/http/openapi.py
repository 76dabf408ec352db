"""The OpenAPI description of routes, and the document and the HTML page that are made of it.

Each dialect's routes carry an ``Operation``. FastAPI's own generator makes the document of them:
requests come from the structs that read them, answers from the types that their handlers return.
It takes a tenth of a second, once. The page needs no script and nothing from another host, so that
it can be read on a machine without a network.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute

from gateway.http.error_replies import ERRORS, ErrorForm

Schema = dict[str, Any]
_REF = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True)
class Operation:
    """The description of a route, besides its method and path.

    ``request`` is the struct that reads the body, ``examples`` are valid bodies by name.
    ``response`` is the type of the answer. ``errors`` are the statuses beside the success that a
    caller may see. ``parameters`` are OpenAPI's, the path's included. ``unready``: the same body
    may come with 503, because for a probe "not ready" is an answer and no error.
    """

    tag: str
    summary: str
    response: object
    description: str = ""
    request: type[msgspec.Struct] | None = None
    examples: Mapping[str, object] = field(default_factory=dict)
    parameters: Sequence[Schema] = ()
    headers: Mapping[str, Schema] = field(default_factory=dict)
    errors: Sequence[HTTPStatus] = ()
    unready: bool = False
    binary: bool = False  # the answer may be bytes too
    upload: bool = False  # the body is a form with a file
    response_class: type[Response] = JSONResponse
    success: HTTPStatus = HTTPStatus.OK
    open_to_all: bool = False


_REQUEST_ID = {"x-request-id": {"schema": {"type": "string"}, "required": True}}
_RETRY_AFTER = {"retry-after": {"schema": {"type": "integer"}, "description": "seconds"}}


class RouteDescription(NamedTuple):
    """A route's operation, where it is found and how it writes its errors."""

    method: str
    path: str
    form: ErrorForm
    operation: Operation


_UPLOAD: Schema = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file", "purpose"],
                "properties": {
                    "purpose": {"enum": ["batch"]},
                    "file": {"type": "string", "format": "binary"},
                },
            },
            "examples": {},
        }
    },
}


def document(described: Sequence[RouteDescription], *, title: str, version: str) -> Schema:
    """The OpenAPI document of these routes, for a gateway of a version."""
    made = get_openapi(
        title=title,
        version=version,
        routes=[
            APIRoute(one.path, _unserved, methods=[one.method], **_options(one))
            for one in described
        ],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    structs: dict[str, type[msgspec.Struct]] = {}
    for one in described:
        request = one.operation.request
        if one.operation.upload:
            made["paths"][one.path][one.method.lower()]["requestBody"] = _UPLOAD
        if request is None:
            continue
        structs[request.__name__] = request
        media = {
            "schema": {"$ref": _REF.format(name=request.__name__)},
            # Put in here and not by FastAPI, which leaves out what is null.
            "examples": {name: {"value": body} for name, body in one.operation.examples.items()},
        }
        made["paths"][one.path][one.method.lower()]["requestBody"] = {
            "required": True,
            "content": {"application/json": media},
        }
    _, requests = msgspec.json.schema_components(structs.values(), ref_template=_REF)
    made["components"]["schemas"] |= requests
    made["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    # Keys are off unless the operator has a file of them.
    made["security"] = [{}, {"bearer": []}, {"apiKey": []}]
    return made


def _unserved() -> None:
    """A placeholder: the routes made here only describe, and serve nothing."""


def _options(described: RouteDescription) -> dict[str, Any]:
    """What FastAPI is told of a route."""
    operation = described.operation
    headers = _REQUEST_ID | {
        name: {"schema": schema, "required": False} for name, schema in operation.headers.items()
    }
    responses: dict[int, dict[str, Any]] = {int(operation.success): {"headers": headers}}
    if operation.binary:
        responses[int(operation.success)]["content"] = {"application/octet-stream": {}}
    if operation.unready:
        responses[int(HTTPStatus.SERVICE_UNAVAILABLE)] = {
            "description": "Not ready.",
            "headers": headers,
            "model": operation.response,
        }
    for status in operation.errors:
        later = status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
        responses[int(status)] = {
            "description": f"{status.phrase}{', or not ready' if operation.unready else ''}.",
            "headers": _REQUEST_ID | (_RETRY_AFTER if later else {}),
            "model": ERRORS[described.form],
        }
    # A name made of method and path, as OpenAPI's tools want one.
    words = "".join(c if c.isalnum() else " " for c in described.path).split()
    words += ["slash"] * described.path.endswith("/")
    return {
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "operation_id": "_".join([described.method.lower(), *words]),
        "status_code": int(operation.success),
        "response_description": "The answer.",
        "response_class": operation.response_class,
        "response_model": operation.response,
        "responses": responses,
        # What FastAPI can't know, for the handlers read their requests themselves.
        "openapi_extra": {
            "description": operation.description,
            "parameters": [*operation.parameters],
            **({"security": []} if operation.open_to_all else {}),
        },
    }


_STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
summary { cursor: pointer; padding: .3rem 0; }
code, pre { background: #8882; padding: .1rem .3rem; }
pre { overflow-x: auto; padding: .6rem; } .m { display: inline-block; width: 3.5rem; }
"""


def page(document: Mapping[str, Any]) -> str:
    """The document as HTML: every operation with its examples, schemas and statuses."""
    info = document["info"]
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{info["title"]}</title>',
        f"<style>{_STYLE}</style>",
        f"<h1>{html.escape(info['title'])} {html.escape(info['version'])}</h1>",
        '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_section(method, path, operation))
    for tag, sections in by_tag.items():
        parts += [f"<h2>{html.escape(tag)}</h2>", *sections]
    schemas = document["components"]["schemas"]
    parts += ["<h2>Schemas</h2>", *(_details(name, body) for name, body in schemas.items())]
    return "\n".join(parts)


def _section(method: str, path: str, operation: Mapping[str, Any]) -> str:
    head = f'<span class="m">{method.upper()}</span> <code>{html.escape(path)}</code> '
    inside = [f"<p>{html.escape(operation['description'])}</p>"]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        for name, example in media["examples"].items():
            inside.append(f"<p>{html.escape(name)}</p>{_json(example['value'])}")
        inside.append(_details("request", media["schema"]))
    if operation["parameters"]:
        inside.append(_details("parameters", operation["parameters"]))
    inside += [
        _details(f"{status} {answer['description']}", answer.get("content", {}))
        for status, answer in operation["responses"].items()
    ]
    summary = f"<summary>{head}{html.escape(operation['summary'])}</summary>"
    return f"<details>{summary}{''.join(inside)}</details>"


def _details(name: str, value: object) -> str:
    return f"<details><summary>{html.escape(name)}</summary>{_json(value)}</details>"


def _json(value: object) -> str:
    return f"<pre>{html.escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"

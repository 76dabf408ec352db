"""The OpenAPI document of the HTTP front, and the same as a page for people.

``gateway.dialects.described`` says what each route takes and gives; here that becomes OpenAPI 3.1.
Pure functions, called once at start. The page needs no script and nothing from another host, so it
is there on a machine without a network too.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from gateway.http.router import ErrorForm

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    ``examples`` are request bodies by name, each a valid one. ``errors`` are the statuses beside
    the success that a caller may see. ``parameters`` are OpenAPI's, the path's included.
    """

    method: str
    path: str
    tag: str
    summary: str
    response: Schema
    description: str = ""
    request: Schema | None = None
    examples: Mapping[str, object] = field(default_factory=dict)
    parameters: Sequence[Schema] = ()
    headers: Mapping[str, Schema] = field(default_factory=dict)
    errors: Sequence[HTTPStatus] = ()
    # The same body with 503: a probe's "no" is an answer, not an error.
    unready: bool = False
    content_types: Sequence[str] = ("application/json",)
    form: ErrorForm = ErrorForm.OBJECT
    success: HTTPStatus = HTTPStatus.OK
    open_to_all: bool = False


_ERROR_DETAIL: Schema = {
    "code": {"type": "string", "description": "stable, for programs"},
    "request_id": {"type": "string", "description": "as in x-request-id and in the log"},
}
_ERRORS: dict[ErrorForm, tuple[str, Schema]] = {
    ErrorForm.OBJECT: (
        "Error",
        {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": ["code", "message", "request_id"],
                    "properties": {
                        "message": {"type": "string", "description": "a sentence for people"},
                        **_ERROR_DETAIL,
                    },
                }
            },
        },
    ),
    ErrorForm.SENTENCE: (
        "OpenInferenceError",
        {
            "type": "object",
            "required": ["error", "code", "request_id"],
            "properties": {
                "error": {"type": "string", "description": "a sentence for people"},
                **_ERROR_DETAIL,
            },
        },
    ),
}
_BYTES = "application/octet-stream"
_REQUEST_ID = {"x-request-id": {"schema": {"type": "string"}, "required": True}}
_RETRY_AFTER = {"retry-after": {"schema": {"type": "integer"}, "description": "seconds"}}


def document(
    operations: Sequence[Operation], schemas: Mapping[str, Schema], *, title: str, version: str
) -> dict[str, Any]:
    """The whole document; ``schemas`` are what the operations refer to."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**dict(_ERRORS.values()), **schemas},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        # Keys are off unless the operator has a file of them.
        "security": [{}, {"bearer": []}, {"apiKey": []}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    headers = _REQUEST_ID | {
        name: {"schema": schema, "required": False} for name, schema in operation.headers.items()
    }
    content = {
        name: {"schema": operation.response if name != _BYTES else {}}
        for name in operation.content_types
    }
    responses: dict[str, Any] = {
        str(operation.success.value): {
            "description": "The answer.",
            "headers": headers,
            "content": content,
        }
    }
    if operation.unready:
        responses["503"] = {"description": "Not ready.", "headers": headers, "content": content}
    for status in operation.errors:
        responses[str(status.value)] = _error(status, operation.form, unready=operation.unready)
    body: dict[str, Any] = {}
    if operation.request is not None:
        examples = {name: {"value": value} for name, value in operation.examples.items()}
        media = {"schema": operation.request, "examples": examples}
        body["requestBody"] = {"required": True, "content": {"application/json": media}}
    if operation.open_to_all:
        body["security"] = []
    return {
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "operationId": operation_id(operation),
        "parameters": list(operation.parameters),
        **body,
        "responses": responses,
    }


def operation_id(operation: Operation) -> str:
    """A name made of method and path, as OpenAPI's tools want one."""
    words = "".join(c if c.isalnum() else " " for c in operation.path).split()
    return "_".join([operation.method.lower(), *words])


def _error(status: HTTPStatus, form: ErrorForm, *, unready: bool) -> dict[str, Any]:
    name, _ = _ERRORS[form]
    schema: Schema = {"$ref": f"#/components/schemas/{name}"}
    later = status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
    description = status.phrase + ("." if not unready else ", or not ready.")
    return {
        "description": description,
        "headers": _REQUEST_ID | (_RETRY_AFTER if later else {}),
        "content": {"application/json": {"schema": schema}},
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

"""Reads endpoints from YAML and writes them as YAML, as people do.

Pure: text in, objects out. It never reads a status from a document, and never lets a document
through that could not be read again.
"""

from collections.abc import Hashable
from typing import Any

import yaml
from pydantic import ValidationError

from contracts.endpoint import ModelEndpoint
from contracts.rollout import COMMAND_BY_PREFIX, COMMAND_PREFIX
from contracts.validation_errors import FieldError, validation_errors, whole_numbers
from headrace.errors import BadDocumentError

_ERRORS_SHOWN = 10
_DOMAIN = "headrace.dev"


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a field that is written twice is an error, not the last one's."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: ANN401, FBT001, FBT002 - as in yaml
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {name} is written twice", key.start_mark
                )
            seen.add(name)
        made: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return made


def read(text: str, source: str) -> tuple[ModelEndpoint, ...]:
    """The endpoints of a YAML text, all of them right.

    A ``status`` in a document is left aside: only Headrace writes it.

    Raises:
        BadDocumentError: the text is no YAML, or a document is no endpoint; says which and where.
    """
    try:
        documents = [item for item in yaml.load_all(text, _Loader) if item is not None]
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that there is not
        raise BadDocumentError(f"{source} is no YAML: {error}") from None
    if not documents:
        raise BadDocumentError(f"{source} holds no document.")
    several = len(documents) > 1
    found: dict[str, ModelEndpoint] = {}
    for number, document in enumerate(documents, 1):
        where = f"{source}, document {number}" if several else source
        endpoint = check_endpoint(document, where)
        if endpoint.name in found:
            raise BadDocumentError(f"{where}: the endpoint {endpoint.name} was in it before.")
        found[endpoint.name] = endpoint
    return tuple(found.values())


def check_endpoint(document: object, where: str) -> ModelEndpoint:
    """The endpoint of one document.

    Raises:
        BadDocumentError: it is none; says ``where``.
    """
    if not isinstance(document, dict):
        raise BadDocumentError(f"{where}: an endpoint begins with apiVersion, kind and metadata.")
    given = {name: value for name, value in document.items() if name != "status"}
    try:
        endpoint = ModelEndpoint.model_validate(given)
    except ValidationError as error:
        raise _build_refusal(where, validation_errors(given, error)) from None
    found = _further_errors(given, endpoint)
    if found:
        raise _build_refusal(where, found)
    return endpoint


def _further_errors(given: dict[Any, Any], endpoint: ModelEndpoint) -> tuple[FieldError, ...]:
    """What the models let pass, and yet can't be meant."""
    found = [
        FieldError((name,), "is needed") for name in ("apiVersion", "kind") if name not in given
    ]
    found += [
        FieldError(("metadata", "annotations", key), "is written only by headrace rollout")
        for key in endpoint.metadata.annotations
        if key.startswith((COMMAND_PREFIX, COMMAND_BY_PREFIX))
    ]
    declared = {statistic.name for statistic in endpoint.spec.statistics}
    if len(declared) < len(endpoint.spec.statistics):
        found.append(FieldError(("spec", "statistics"), "two of them have one name"))
    found += [
        FieldError(
            ("spec", "rollout", "checks", "statistics", number, "name"),
            f"spec.statistics declares no statistic {check.name}",
        )
        for number, check in enumerate(endpoint.spec.rollout.checks.statistics)
        if check.name not in declared
    ]
    try:
        same = ModelEndpoint.model_validate_json(endpoint.model_dump_json(by_alias=True))
    except ValidationError as error:  # JSON knows no .inf and no .nan
        return (*found, *validation_errors(endpoint.model_dump(mode="json", by_alias=True), error))
    if same != endpoint:
        found.append(FieldError(("spec",), "holds a number that can't be stored"))
    return tuple(found)


def _build_refusal(where: str, found: tuple[FieldError, ...]) -> BadDocumentError:
    lines = [f"  {item}." for item in found[:_ERRORS_SHOWN]]
    if len(found) > _ERRORS_SHOWN:
        lines.append(f"  and {len(found) - _ERRORS_SHOWN} more.")
    return BadDocumentError("\n".join([f"{where} was refused:", *lines]))


def as_written(endpoint: ModelEndpoint, *, defaults: bool = False) -> dict[str, Any]:
    """The document that a user would have written for what the endpoint asks."""
    spec = endpoint.spec.model_dump(mode="json", by_alias=True, exclude_defaults=not defaults)
    metadata: dict[str, Any] = {"name": endpoint.name}
    notes = {
        key: value for key, value in endpoint.metadata.annotations.items() if not _is_ours(key)
    }
    if notes:
        metadata["annotations"] = notes
    return {
        "apiVersion": endpoint.api_version,
        "kind": endpoint.kind,
        "metadata": metadata,
        "spec": whole_numbers(spec),
    }


def _is_ours(key: str) -> bool:
    """Whether an annotation is Headrace's own, such as a command that waits."""
    domain = key.split("/", maxsplit=1)[0]
    return domain == _DOMAIN or domain.endswith(f".{_DOMAIN}")


def as_yaml(document: dict[str, Any]) -> str:
    """A document's YAML; what holds no further fields is on one line."""
    text: str = yaml.safe_dump(
        document, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
    )
    return text

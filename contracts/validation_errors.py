"""What is wrong with a document, as people can use it: the path of the bad field, and a sentence.

It words what pydantic found. Pure; it never decides whether a document is right.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from contracts.endpoint_schema import SchemaNode

Path = tuple[str | int, ...]

# Errors that say that another of a field's forms was meant, not that a value is out of bounds.
_SHAPE_ERRORS = {"missing", "extra_forbidden", "model_type", "literal_error", "tuple_type"}
_SHOWN = 60
_SUBJECT = re.compile(r"^(Input|String|Tuple) should")


@dataclass(frozen=True, slots=True)
class FieldError:
    """One bad field."""

    path: Path
    sentence: str

    def __str__(self) -> str:
        return f"{join_path(self.path)}: {self.sentence}"


def join_path(path: Iterable[str | int]) -> str:
    """A path as people write it, ``spec.rollout.steps[1].weight``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or "the document"


def validation_errors(document: object, error: ValidationError) -> tuple[FieldError, ...]:
    """What pydantic found, one error a field, in the order of the document."""
    by_union: dict[Path, dict[Path, list[tuple[Path, ErrorDetails]]]] = {}
    for detail in error.errors(include_url=False):
        if _follows_from_others(detail):
            continue
        path, union, member = _locate(document, detail)
        by_union.setdefault(union, {}).setdefault(member, []).append((path, detail))
    found: list[FieldError] = []
    for union, members in by_union.items():
        meant = min(members.values(), key=_distance)
        # Members of a union of forms that all miss by form: what was meant is unknown.
        if union and len(members) > 1 and _distance(meant)[0]:
            found.append(FieldError(union[:-1], _forms(union[:-1], _value(document, union[:-1]))))
        else:
            found += [FieldError(path, _sentence(path, detail)) for path, detail in meant]
    return tuple(found)


def _distance(found: Sequence[tuple[Path, ErrorDetails]]) -> tuple[int, int]:
    return sum(detail["type"] in _SHAPE_ERRORS for _, detail in found), len(found)


def _locate(document: object, detail: ErrorDetails) -> tuple[Path, Path, Path]:
    """(path, path of the union that it is in, member of that union).

    Pydantic puts the name of a union's member into the location. What the document does not hold
    is such a name, unless it is the last step of a missing field. The union's path ends with a
    mark, so that it differs from the path of an error that is in no union.
    """
    location = detail["loc"]
    path: list[str | int] = []
    union: Path = ()
    member: Path = ()
    value = document
    for number, step in enumerate(location):
        last = number == len(location) - 1
        if isinstance(value, dict) and (step in value or (last and detail["type"] == "missing")):
            path.append(step)
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            path.append(step)
            value = value[step] if step < len(value) else None
        else:
            union, member = (*path, "|"), (*member, step)
    return tuple(path), union, member


def _follows_from_others(detail: ErrorDetails) -> bool:
    """Whether it only follows from other errors: a list is too short without its bad items."""
    least = detail.get("ctx", {}).get("min_length", 0)
    value = detail["input"]
    return detail["type"] == "too_short" and isinstance(value, list) and len(value) >= least


def _value(document: object, path: Path) -> object:
    value: Any = document
    for step in path:
        value = value[step]
    return value


def _forms(path: Path, value: object) -> str:
    node = _schema_node(path)
    forms = [] if node is None else [_form(choice) for choice in node.choices]
    return f"must be {_join_with_or(forms)}, not {show_value(value)}"


def _form(choice: dict[str, Any]) -> str:
    if "const" in choice:
        return str(choice["const"])
    if "properties" in choice:
        return "{" + ", ".join(f"{name}: ..." for name in choice["properties"]) + "}"
    return {"array": "a list"}.get(str(choice.get("type")), str(choice.get("type")))


def _sentence(path: Path, detail: ErrorDetails) -> str:
    kind, value = detail["type"], detail["input"]
    if kind == "missing":
        return "is needed"
    if kind == "extra_forbidden":
        return _say_unknown(path)
    if kind == "string_type" and isinstance(value, (int, float)):
        return f'must be text: write it in quotes, "{value}"'
    if kind in {"model_type", "dict_type"}:
        return f"must hold fields, not {show_value(value)}"
    if kind == "too_short":
        return f"must have at least {detail['ctx']['min_length']}, not {show_value(value)}"
    said = _SUBJECT.sub("must", detail["msg"].removeprefix("Value error, "))
    return said if kind == "value_error" else f"{said}, not {show_value(value)}"


def _say_unknown(path: Path) -> str:
    node = _schema_node(path[:-1])
    names = () if node is None else node.fields
    elsewhere = _elsewhere(str(path[-1]), path[:-1])
    if elsewhere:
        return f"there is no such field; did you mean {elsewhere}?"
    close = difflib.get_close_matches(str(path[-1]), names, n=1)
    if close:
        return f"there is no such field; {close[0]} is the nearest"
    return f"there is no such field; there are {', '.join(names)}" if names else "no such field"


def _elsewhere(name: str, above: Path) -> str:
    """Where else there is a field of this name: beside or below what it was written in."""
    for root in (above, above[:1]):
        node = _schema_node(root)
        found = [] if node is None else _paths_to(name, node, root)
        if found:
            nearest: Path = min(found, key=len)
            return join_path(nearest)
    return ""


def _paths_to(name: str, node: SchemaNode, path: Path) -> list[Path]:
    found: list[Path] = []
    for field in node.fields:
        if field == name:
            found.append((*path, field))
        below = node.down(field)
        if below is not None and below.fields:
            found += _paths_to(name, below, (*path, field))
    return found


def _schema_node(path: Path) -> SchemaNode | None:
    node: SchemaNode | None = SchemaNode.root()
    for step in path:
        node = None if node is None else node.down(step)
    return node


def _join_with_or(words: Sequence[str]) -> str:
    if len(words) < 2:
        return "".join(words) or "something else"
    return f"{', '.join(words[:-1])} or {words[-1]}"


def show_value(value: object, *, most: int = _SHOWN) -> str:
    """A value in one line of YAML, of at most ``most`` characters."""
    text = yaml.safe_dump(
        whole_numbers(value), default_flow_style=True, sort_keys=False, width=10**6
    )
    text = text.removesuffix("...\n").strip()
    return text if len(text) <= most else f"{text[: most - 3]}..."


def whole_numbers(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """5.0 as 5, as people write it."""
    if isinstance(value, dict):
        return {name: whole_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value

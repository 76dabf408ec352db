"""Makes ``headrace/values.yaml``, and the site's table of values, from ``values.schema.json``.

``python -P charts/values.py`` writes the file, ``--check`` fails if it is not current. Only the
schema is edited: each value is written once, with its type, bounds, default and meaning. It never
reads a chart's templates.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCHEMA = HERE / "headrace" / "values.schema.json"
VALUES = HERE / "headrace" / "values.yaml"
WIDTH = 98
_HEAD = """\
# Made from values.schema.json by charts/values.py, which is where a value is added or changed.
# The site has the same as a table: Reference, Values of the chart.
"""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Value:
    """One value, or the heading of a group: its path, and what the schema says of it."""

    path: tuple[str, ...]
    schema: Json

    @property
    def is_group(self) -> bool:
        """Whether it only holds others."""
        return "properties" in self.schema

    @property
    def default(self) -> str:
        """Its default as one line of JSON, which is YAML too."""
        return json.dumps(self.schema.get("default"), ensure_ascii=False)


def read(schema: Json, path: tuple[str, ...] = ()) -> Iterator[Value]:
    """Every group and value, in the schema's order, a group before what it holds."""
    for name, found in schema["properties"].items():
        value = Value((*path, name), found)
        yield value
        if value.is_group:
            yield from read(found, value.path)


def values_yaml(schema: Json) -> str:
    """The chart's defaults, each under its description."""
    lines = [_HEAD]
    for value in read(schema):
        indent = "  " * (len(value.path) - 1)
        if len(value.path) == 1:
            lines.append("")
        if description := value.schema.get("description"):
            lines += _comment(description, indent)
        name = f"{indent}{value.path[-1]}:"
        lines.append(name if value.is_group else f"{name} {value.default}")
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _comment(text: str, indent: str) -> list[str]:
    lines = [f"{indent}#"]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > WIDTH:
            lines.append(f"{indent}#")
        lines[-1] += f" {word}"
    return lines


def table(schema: Json) -> str:
    """A Markdown table of each top-level group."""
    lines: list[str] = []
    loose = [Value((name,), found) for name, found in schema["properties"].items()]
    lines += _section("The whole chart", "", [value for value in loose if not value.is_group])
    for group in loose:
        if group.is_group:
            inside = [value for value in read(group.schema, group.path) if not value.is_group]
            lines += _section(f"`{group.path[0]}`", group.schema.get("description", ""), inside)
    for name, shared in schema["definitions"].items():
        if "description" in shared:
            lines += _shared(name, shared)
    return "\n".join(lines)


def _shared(name: str, schema: Json) -> list[str]:
    """A table of what values share that are of one definition."""
    head = [f"### `*.{name}`", "", schema["description"], "", "| value | meaning |", "|---|---|"]
    rows = [
        f"| `*.{name}.{key}` | {inner['description']} |"
        for key, inner in schema["properties"].items()
    ]
    return [*head, *rows, ""]


def _section(title: str, text: str, values: list[Value]) -> list[str]:
    head = [f"### {title}", ""] + ([text, ""] if text else [])
    rows = [_row(value) for value in values]
    return [*head, "| value | default | meaning |", "|---|---|---|", *rows, ""]


def _row(value: Value) -> str:
    name = ".".join(value.path)
    meaning = value.schema.get("description", "")
    if choices := value.schema.get("enum"):
        meaning += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    return f"| `{name}` | `{value.default}` | {meaning} |".replace("`|", "` |")


def main(arguments: list[str]) -> int:
    """Writes the file; with ``--check`` it only says whether it is not current."""
    made = values_yaml(json.loads(SCHEMA.read_text(encoding="utf-8")))
    if _read(VALUES) == made:
        return 0
    if "--check" in arguments:
        sys.stderr.write(f"{VALUES.name} is not current: run python -P charts/values.py\n")
        return 1
    VALUES.write_text(made, encoding="utf-8")
    return 0


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

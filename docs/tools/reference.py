"""Makes the pages of the site's reference from the code: nothing on them can be out of date.

``python -P docs/tools/reference.py FOLDER`` writes them; ``make docs`` does. They are not checked
in, since each would follow from code that is.
"""

import json
import re
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from contracts import events, gateway_metrics, metrics, registry_metrics, triton_metrics
from contracts.endpoint import ModelEndpoint, Phase
from contracts.metrics import Metric
from dashboards.__main__ import describe_panels, files
from headrace import errors
from headrace.cli import whole_program
from headrace.program import SHARED_PANEL
from headrace.stack.kafka import KAFKA_VERSION

ROOT = Path(__file__).resolve().parent.parent.parent
_LOCKED = re.compile(r"^([a-z0-9-]+)==([^ ;\n]+)", re.MULTILINE)
_SHOWN = {
    "kubernetes": "Kubernetes' client for Python",
    "mlflow": "MLflow",
    "nvidia-pytriton": "Triton, as in the wheel nvidia-pytriton",
    "onnxruntime": "ONNX Runtime",
    "openai": "OpenAI's client",
    "tokenizers": "tokenizers",
    "tritonclient": "tritonclient",
}
_PARTS = (
    ("Gateways", gateway_metrics),
    ("Controller and loaders", registry_metrics),
    ("Evaluate, fold and the controller's rollouts", metrics),
    ("Packed engines in Triton", triton_metrics),
)


def pages() -> dict[str, str]:
    """Every page of the reference, by its file's name."""
    return {
        "cli.md": command_line(),
        "exit-codes.md": exit_codes(),
        "modelendpoint.md": model_endpoint(),
        "metrics.md": metric_families(),
        "events.md": event_records(),
        "versions.md": versions(),
        "values.md": chart_values(),
        "panels.md": describe_panels(files()),
    }


def _cell(text: object) -> str:
    """Text that fits a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def _table(headings: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> list[str]:
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return [*lines, *(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows), ""]


# The chart


def chart_values() -> str:
    """Every value of the chart, with its default and meaning."""
    chart = runpy.run_path(str(ROOT / "charts" / "values.py"))
    schema = json.loads(chart["SCHEMA"].read_text(encoding="utf-8"))
    said = (
        "A value that is not here, or of another type, is refused by name. "
        "[Examples](../values-examples.md), [production](../production.md)."
    )
    return "\n".join(["# Values of the chart", "", said, "", chart["table"](schema)])


# The command line


def commands(command: Any, name: str = "headrace") -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, a group before what it holds."""
    if getattr(command, "hidden", False):
        return
    yield name, command
    for inner, found in getattr(command, "commands", {}).items():
        yield from commands(found, f"{name} {inner}")


def command_line() -> str:
    """All commands with their arguments and options."""
    lines = [
        "# Command line",
        "",
        (
            "Every command with its options, as `--help` has them. How commands end: "
            "[exit codes](exit-codes.md). What `headrace` itself takes may stand anywhere on the "
            "line."
        ),
        "",
    ]
    for name, command in commands(whole_program()):
        lines += [f"## {name}", "", _usage(name, command), "", _help(command), ""]
        rows: list[tuple[object, ...]] = [
            (_option(parameter), _default(parameter), getattr(parameter, "help", "") or "")
            for parameter in command.params
            # What all commands take is said once, of the program itself.
            if (name == "headrace" or getattr(parameter, "rich_help_panel", "") != SHARED_PANEL)
            and not getattr(parameter, "hidden", False)
            and parameter.name != "help"
        ]
        if rows:
            lines += _table(("option", "default", "meaning"), rows)
    return "\n".join(lines)


def _usage(name: str, command: Any) -> str:
    words = [_argument(each) for each in command.params if each.param_type_name == "argument"]
    words += ["COMMAND"] if getattr(command, "commands", None) else []
    return f"`{' '.join([name, '[OPTIONS]', *words])}`"


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    many = "..." if parameter.nargs == -1 and not name.endswith(("...", "...]")) else ""
    return f"{name}{many}" if parameter.required or name.startswith("[") else f"[{name}{many}]"


def _help(command: Any) -> str:
    return " ".join((command.help or "").split("\f")[0].split())


def _option(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    names = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
    variable = f" ({parameter.envvar})" if parameter.envvar else ""
    return names + variable


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "needed"
    if value is None or callable(value) or value is False or value in ("", [], ()):
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"


# Exit codes


def error_classes(base: type[errors.HeadraceError] | None = None) -> list[type[Any]]:
    """Every kind of failure that a command ends with."""
    found: list[type[Any]] = []
    for each in (base or errors.HeadraceError).__subclasses__():
        if each.__module__ == errors.__name__:
            found += [each, *error_classes(each)]
    return found


def exit_codes() -> str:
    """The status that each kind of failure ends with."""
    by_status: dict[int, list[str]] = {0: ["It was done."]}
    for each in error_classes():
        said = " ".join((each.__doc__ or "").split("\n\n")[0].split())
        by_status.setdefault(each.exit_status, []).append(f"`{each.code}`: {said}")
    by_status.setdefault(2, []).append("The command line itself can't be read.")
    rows: list[tuple[object, ...]] = [
        (f"`{status}`", " Or: ".join(said)) for status, said in sorted(by_status.items())
    ]
    return "\n".join([
        "# Exit codes",
        "",
        "The message that goes with a failure is one or more sentences on standard error. Under",
        "`-o json` it is a line of JSON with the code that stands here before the colon.",
        "",
        *_table(("status", "meaning"), rows),
    ])  # fmt: skip


# The custom resource


def model_endpoint() -> str:
    """Every field of a ModelEndpoint, spec and status."""
    schema = ModelEndpoint.model_json_schema(by_alias=True)
    lines = [
        "# ModelEndpoint",
        "",
        (
            "Every field of the custom resource. What each of the spec does, with examples: "
            "[endpoints](../endpoints.md). Only the controller writes the status."
        ),
        "",
    ]
    for part in ("metadata", "spec", "status"):
        rows = [
            (f"`{path}`", kind, default, said)
            for path, kind, default, said in _fields(schema, schema["properties"][part], part, ())
        ]
        lines += [f"## {part}", "", *_table(("field", "type", "default", "meaning"), rows)]
    return "\n".join(lines)


_Field = tuple[str, str, str, str]


def _fields(
    schema: Mapping[str, Any], node: Mapping[str, Any], path: str, above: tuple[str, ...]
) -> Iterator[_Field]:
    """The fields below a node of a JSON schema; a type within itself is not entered again."""
    for name, found in _properties(schema, node):
        here = f"{path}.{name}"
        default = f"`{_short(found['default'])}`" if found.get("default") not in (None, "") else ""
        yield here, _kind(schema, found), default, str(found.get("description", ""))
        for reference, suffix in _below(schema, found):
            if reference not in above:
                inner = schema["$defs"][reference]
                yield from _fields(schema, inner, here + suffix, (*above, reference))


def _properties(schema: Mapping[str, Any], node: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return list(node.get("properties", {}).items())


def _below(schema: Mapping[str, Any], node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Which definitions a field holds, and how their paths go on."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return [(name, "")] if "properties" in schema["$defs"][name] else []
    found = []
    for each in (*node.get("anyOf", ()), *node.get("allOf", ())):
        found += _below(schema, each)
    if isinstance(node.get("items"), dict):
        found += [(name, f"[]{suffix}") for name, suffix in _below(schema, node["items"])]
    if isinstance(node.get("additionalProperties"), dict):
        found += [
            (name, f".*{suffix}") for name, suffix in _below(schema, node["additionalProperties"])
        ]
    return found


def _kind(schema: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    if "$ref" in node:
        return _kind(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
    if "enum" in node:
        return " or ".join(f"`{each}`" for each in node["enum"])
    if "const" in node:
        return f"`{node['const']}`"
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_kind(schema, each) for each in node["anyOf"]))
    if node.get("type") == "array":
        items = node.get("items")
        return f"list of {_kind(schema, items)}" if isinstance(items, dict) else "list"
    return str(node.get("type", "any"))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else "see below"


# Metrics


def families(module: Any) -> list[Metric]:
    """The metrics that a module of contracts declares, in its order."""
    return [each for each in vars(module).values() if isinstance(each, Metric)]


def metric_families() -> str:
    """Every family that Headrace exposes."""
    lines = [
        "# Metrics",
        "",
        (
            "What each process exposes to Prometheus. Which alerts and panels read them: "
            "[dashboards](../dashboards.md). A histogram has `_bucket`, `_sum` and `_count`."
        ),
        "",
    ]
    told: set[str] = set()
    for heading, module in _PARTS:
        rows: list[tuple[object, ...]] = []
        for each in families(module):
            if each.name not in told:
                told.add(each.name)
                labels = ", ".join(f"`{label}`" for label in each.labels)
                rows.append((f"`{each.name}`", each.kind.value, labels, each.help))
        lines += [f"## {heading}", "", *_table(("metric", "kind", "labels", "meaning"), rows)]
    return "\n".join(lines)


# Events


def structs() -> list[type[Any]]:
    """The records of prediction events."""
    found = [each for each in vars(events).values() if hasattr(each, "__struct_fields__")]
    ours = [each for each in found if each.__module__ == events.__name__]
    return [each for each in ours if not each.__name__.startswith("_")]


def event_records() -> str:
    """Records on Kafka, and the phases that Events of Kubernetes tell."""
    lines = [
        "# Events",
        "",
        f"## On Kafka: `{events.TOPIC}`",
        "",
        " ".join((events.__doc__ or "").split()),
        "",
    ]
    for struct in structs():
        form = "a list" if struct.__struct_config__.array_like else "an object"
        lines += [f"### {struct.__name__}", "", f"As {form}. {_docstring(struct)}", ""]
        hints = struct.__annotations__
        rows: list[tuple[object, ...]] = [
            (f"`{name}`", f"`{_type_name(hints[name])}`") for name in struct.__struct_fields__
        ]
        lines += _table(("field", "type"), rows)
    lines += [
        "## In Kubernetes",
        "",
        (
            "Each transition of an endpoint's history is an Event of its ModelEndpoint, with the "
            "phase as the reason:"
        ),
        "",
        *(f"- `{phase.value}`" for phase in Phase),
        "",
    ]
    return "\n".join(lines)


def _docstring(struct: type[Any]) -> str:
    return " ".join((struct.__doc__ or "").split("\n\n")[0].split())


def _type_name(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    text = re.sub(r"(?:typing\.)?Annotated\[(\w+), msgspec\.Meta\([^)]*\)\]", r"\1", text)
    text = re.sub(r"^typing\.Optional\[(.*)\]$", r"\1 | None", text)
    return text.replace("typing.", "").replace("contracts.events.", "")


# Versions


def versions() -> str:
    """What the locks hold of what users meet."""
    locked: dict[str, str] = {}
    for lock in ("dev", "triton"):
        text = (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
        locked |= {name: number for name, number in _LOCKED.findall(text) if name in _SHOWN}
    rows: list[tuple[object, ...]] = [("Apache Kafka", f"`{KAFKA_VERSION}`")]
    rows += [(_SHOWN[name], f"`{number}`") for name, number in locked.items()]
    return "\n".join([
        "# Tested versions",
        "",
        ("What the tests of this revision run with, from `locks/`. What else works: "
        "[compatibility](../compatibility.md)."),
        "",
        *_table(("part", "version"), sorted(rows)),
    ])  # fmt: skip


def main(folder: Path) -> None:
    """Writes every page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

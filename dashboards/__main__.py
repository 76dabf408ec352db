"""``python -P -m dashboards``: writes ``dashboards/generated``, four dashboards and the rules.

And the copies that the chart packs. ``describe_panels`` is the site's page of the panels.

The same code gives the same bytes.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import rules
from dashboards.board import ROLLOUTS
from dashboards.drift import drift
from dashboards.endpoints import endpoints
from dashboards.gateway import gateway
from dashboards.page import page
from dashboards.rollout import rollout
from dashboards.thresholds import by_default

GENERATED = Path(__file__).with_name("generated")
DASHBOARDS: Mapping[str, Callable[[], Dashboard]] = {
    "endpoints.json": endpoints,
    "drift.json": drift,
    "rollout.json": rollout,
    "gateway.json": gateway,
}
ROOT = Path(__file__).parents[1]
PACKED = ROOT / "charts" / "headrace" / "files"
RULES = "rules.yaml"
CHART_RULES = "rules.chart.yaml"  # with placeholders, for the chart to fill

_HEAD = "# Made by python -P -m dashboards. Change dashboards/rules.py instead.\n"
# What the SDK writes unasked, and not every Grafana from 11 to 13 knows. All have defaults for it.
_NOT_OURS = ("auto", "auto_count", "auto_min", "id")  # of a variable that is no interval
# What is written here is the same by all schemas from the SDK's, 36, to this one of Grafana 13.
_SCHEMA_VERSION = 42
_OPTIONS_THAT_CHANGED = {"heatmap": ("tooltip",), "table": ("footer",)}


def main() -> None:
    """Writes every file, and removes what is no longer made."""
    parser = argparse.ArgumentParser(
        prog="python -P -m dashboards",
        description="Writes Grafana's dashboards and Prometheus' rules.",
    )
    parser.add_argument("--out", type=Path, help="folder to write to, and nothing else")
    out: Path | None = parser.parse_args().out
    made = files()
    _write(made, out or GENERATED)
    if out is None:
        _write({name: made[name] for name in DASHBOARDS}, PACKED / "dashboards")
        (PACKED / RULES).write_bytes(made[CHART_RULES])


def _write(made: Mapping[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in made:
            path.unlink()
    for name, data in made.items():
        (folder / name).write_bytes(data)


def describe_panels(made: Mapping[str, bytes]) -> str:
    """The page of the panels of these files."""
    return page({name: json.loads(made[name]) for name in DASHBOARDS})


def files() -> dict[str, bytes]:
    """Name -> bytes of every generated file."""
    made = {name: _dashboard(build()) for name, build in DASHBOARDS.items()}
    packed = _rules()
    return {**made, RULES: by_default(packed).encode(), CHART_RULES: packed.encode()}


def _dashboard(builder: Dashboard) -> bytes:
    built = builder.build()
    for number, panel in enumerate(built.panels or (), start=1):
        panel.id_val = number  # Grafana would number them again at each import
    whole = json.loads(JSONEncoder().encode(built))
    whole.pop("style", None)  # of Grafana before 11
    whole["schemaVersion"] = _SCHEMA_VERSION
    whole["annotations"] = {"list": [ROLLOUTS]}
    for panel in whole["panels"]:
        for name in _OPTIONS_THAT_CHANGED.get(panel["type"], ()):
            panel["options"].pop(name, None)
    for variable in whole["templating"]["list"]:
        for name in _NOT_OURS:
            variable.pop(name, None)
    text = json.dumps(whole, indent=2, sort_keys=True)
    return f"{text}\n".encode()


def _rules() -> str:
    """With placeholders: see ``thresholds.py``."""
    text = yaml.safe_dump(rules.groups(), sort_keys=False, width=100, allow_unicode=True)
    return f"{_HEAD}{text}"


if __name__ == "__main__":
    main()

"""The page of the site that says what each panel answers and what each alert means.

Made of the dashboards themselves, so that no panel is missing in it. What to do about a panel is
in its tooltip, and never on this page too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dashboards import rules

_HEAD = """\
# Panels and alerts, one by one

[Dashboards and alerts](../dashboards.md) says how to install them, and has a runbook for each \
alert. \
Each panel's tooltip also says what to do.
"""
_ACT = "\n\n**What to do:** "


def page(dashboards: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown of all dashboards, which are as Grafana reads them, and of the rules."""
    parts = [_HEAD]
    for document in dashboards.values():
        parts += _dashboard(document)
    return "\n".join([*parts, *_alerts(), ""])


def _dashboard(document: Mapping[str, Any]) -> Iterator[str]:
    chosen = [each for each in document["templating"]["list"] if each.get("hide", 0) == 0]
    yield f"## {document['title'].removeprefix('Headrace / ')}\n"
    yield f"{document['description']}\n"
    yield f"Choose by: {', '.join(each['label'] for each in chosen)}.\n"
    for panel in document["panels"]:
        if panel["type"] == "row":
            yield f"\n### {document['title'].removeprefix('Headrace / ')}: {panel['title']}\n"
            yield "| panel | what it answers |\n|---|---|"
        else:
            shows = panel["description"].partition(_ACT)[0]
            yield f"| {panel['title']} | {_cell(shows)} |"
    yield ""


def _alerts() -> Iterator[str]:
    yield "## Alerts\n"
    yield "| alert | severity | holds for | says |\n|---|---|---|---|"
    for alert in rules.ALERTS:
        link = f"[{alert.name}](../dashboards.md#{alert.name.lower()})"
        said = _cell(re.sub(r"\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}", r"*\1*", alert.summary))
        yield f"| {link} | {alert.severity.value} | {alert.wait} | {said} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")

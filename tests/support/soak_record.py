"""Writes down what a soak showed, with the machine and the commit it ran on."""

import json
from datetime import UTC, datetime
from pathlib import Path

from bench import machine

FOLDER = Path(__file__).parents[2] / "docs" / "soak"


def record(name: str, figures: dict[str, object]) -> Path:
    """Writes ``docs/soak/<name>.json``."""
    return written_to(FOLDER / f"{name}.json", name, figures)


def written_to(path: Path, name: str, figures: dict[str, object]) -> Path:
    """Writes the same to another file: for a trial, whose result is not to be kept."""
    return _write(path, {**_circumstances(name), "figures": figures})


def record_part(name: str, part: str, figures: dict[str, object]) -> Path:
    """Writes one part of ``docs/soak/<name>.json``, and leaves the others as they are.

    For a soak in parts that can be run one at a time; each says when, where and on which commit.
    """
    path = FOLDER / f"{name}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"parts": {}}
    one = {**_circumstances(name), "figures": figures}
    parts = {**known["parts"], part: {key: one[key] for key in one if key != "soak"}}
    return _write(path, {"soak": name, "parts": dict(sorted(parts.items()))})


def _circumstances(name: str) -> dict[str, object]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"soak": name, "at": now, "machine": machine.describe()}


def _write(path: Path, whole: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return path

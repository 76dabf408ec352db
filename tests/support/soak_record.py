"""Writes down what a soak showed, with the machine and the commit it ran on."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "soak"


def record(name: str, figures: dict[str, object]) -> Path:
    """Writes ``docs/soak/<name>.json``."""
    return _write(name, {**_circumstances(name), "figures": figures})


def written_to(path: Path, name: str, figures: dict[str, object]) -> Path:
    """Writes the same to another file: for a trial, whose result is not to be kept."""
    whole = {**_circumstances(name), "figures": figures}
    path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return path


def record_part(name: str, part: str, figures: dict[str, object]) -> Path:
    """Writes one part of ``docs/soak/<name>.json``, and leaves the others as they are.

    For a soak in parts that can be run one at a time; each says when, where and on which commit.
    """
    path = FOLDER / f"{name}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"parts": {}}
    one = {**_circumstances(name), "figures": figures}
    parts = {**known["parts"], part: {key: one[key] for key in one if key != "soak"}}
    return _write(name, {"soak": name, "parts": dict(sorted(parts.items()))})


def _circumstances(name: str) -> dict[str, object]:
    return {
        "soak": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_git("status", "--porcelain", "--untracked-files=no").splitlines()),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(
                os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
            ),
            "system": platform.platform(terse=True),
            "python": platform.python_version(),
        },
    }


def _write(name: str, whole: dict[str, object]) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return path


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=10, check=False
    )
    return done.stdout.strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()

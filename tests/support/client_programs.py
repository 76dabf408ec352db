"""Programs that use real clients, in an environment of their own (``make clients``)."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PYTHON = Path(sys.prefix) / "clients" / "bin" / "python"
NEMO = Path(sys.prefix) / "nemo" / "bin" / "python"  # what it needs would hold others back
_PROGRAMS = Path(__file__).resolve().parents[1] / "clients" / "programs"
# No client asks another server for anything: who uses it, its own releases, a vocabulary.
_OFFLINE = {
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}

Client = Callable[..., Any]


def run(program: str, *arguments: str, python: Path = PYTHON) -> Any:
    """What a program prints in its last line, which is JSON; its failure fails the test."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [python, "-I", _PROGRAMS / f"{program}.py", *arguments],
        env={**kept, **_OFFLINE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])

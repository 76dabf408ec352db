"""The examples of ``examples/rollouts`` on the real stack, each to the end that the README says.

For the soak (``make soak``). ``run.py`` itself compares what became of a version with what should,
and counts requests that callers saw fail.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running_stack import RunningStack, running_stack
from soak_record import record

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(7200)]

EXAMPLES = Path(__file__).parents[2] / "examples" / "rollouts"
DEADLINE_SECONDS = 1200.0  # as endpoint.yaml says


def rolled_out(stack: RunningStack, out: Path, seconds: float) -> dict[str, Any]:
    """Runs the examples as their README says; what became of each, by its name."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "run.py", "--home", stack.home, "--json", out],
        env={**os.environ, "PYTHONSAFEPATH": "", "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {each["variant"]: each for each in json.loads(out.read_text(encoding="utf-8"))}


def test_all_six_end_as_they_should_within_their_deadlines(tmp_path: Path) -> None:
    with running_stack(tmp_path / "home", "--no-example", gateways=2, tritons=2) as stack:
        ended = rolled_out(stack, tmp_path / "ended.json", 7000)
    assert len(ended) == 6
    assert all(each["seconds"] < DEADLINE_SECONDS for each in ended.values())
    record("rollout-examples", ended)

"""The examples of ``examples/rollouts`` on the real stack, each to the end that the README says.

CI runs the one that ends soonest, the soak (``make soak``) all six. ``run.py`` itself compares what
became of a version with what should, and counts requests that callers saw fail.
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

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[2] / "examples" / "rollouts"
SOONEST = "unconvertible"
DEADLINE_SECONDS = 1200.0  # as endpoint.yaml says


def rolled_out(stack: RunningStack, out: Path, seconds: float, *names: str) -> dict[str, Any]:
    """Runs examples as their README says; what became of each, by its name."""
    words = [sys.executable, str(EXAMPLES / "run.py"), *names]
    done = subprocess.run(
        [*words, "--home", str(stack.home), "--json", str(out)],
        env={**os.environ, "PYTHONSAFEPATH": "", "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {each["variant"]: each for each in json.loads(out.read_text(encoding="utf-8"))}


@pytest.mark.timeout(1500)
def test_a_version_that_cannot_be_converted_is_rejected_and_no_caller_notices(
    rolling: RunningStack, tmp_path: Path
) -> None:
    ended = rolled_out(rolling, tmp_path / "ended.json", 1200, SOONEST)[SOONEST]
    assert ended["phase"] == "Rejected"
    assert ended["requests"] > 0
    assert ended["failed"] == 0


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_all_six_end_as_they_should_within_their_deadlines(tmp_path: Path) -> None:
    with running_stack(tmp_path / "home", "--no-example", gateways=2, tritons=2) as stack:
        ended = rolled_out(stack, tmp_path / "ended.json", 7000)
    assert len(ended) == 6
    assert all(each["seconds"] < DEADLINE_SECONDS for each in ended.values())
    record("rollout-examples", ended)

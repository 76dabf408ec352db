"""A package outside the repository adds a task by entry points, with no line changed here."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"
OUTSIDE = SUPPORT / "outside_task"


def run(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A program in whose environment the package is."""
    path = os.pathsep.join(str(each) for each in (installed, SUPPORT))
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path},
        cwd=SUPPORT.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_task_from_outside_is_converted_and_answers_in_every_dialect(tmp_path: Path) -> None:
    done = run(OUTSIDE, str(OUTSIDE / "ask.py"), str(tmp_path))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["task"] == "text-regression"
    assert told["task"] in told["tasks"]
    hf, kserve, oip = told["answers"].values()
    grades = [each["grade"] for each in hf]
    assert len(set(grades)) == 2
    assert kserve == {"predictions": grades}
    (output,) = oip["outputs"]
    assert (output["name"], output["shape"], output["data"]) == ("GRADE", [2], grades)


def test_the_endpoints_schema_names_a_task_from_outside() -> None:
    done = run(OUTSIDE, "-m", "headrace", "schema")
    assert done.returncode == 0, done.stderr
    assert "text-regression" in json.dumps(json.loads(done.stdout)["$defs"]["Task"]["enum"])


def test_a_task_without_one_of_its_parts_is_refused_at_the_start(tmp_path: Path) -> None:
    shutil.copytree(OUTSIDE, tmp_path / "copy")
    points = tmp_path / "copy" / "regression_task-1.0.dist-info" / "entry_points.txt"
    kept = points.read_text(encoding="utf-8").split("[headrace.task_heads]")[0]
    points.write_text(kept, encoding="utf-8")
    done = run(tmp_path / "copy", "-c", "import preprocess.tasks")
    assert done.returncode != 0
    assert "text-regression: a task needs an entry point in each of" in done.stderr

"""The notebook of the first hour, cell by cell on the real stack; for ``make soak``: minutes."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from page_snippets import ROOT
from page_walk import Page
from running_stack import running_stack

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(3600)]

NOTEBOOK = ROOT / "examples" / "first_hour.ipynb"
ENDED = 'assert (better_ended, collapsed_ended) == ("Settled", "RolledBack")\n'


def test_its_good_version_is_promoted_and_its_bad_one_rolled_back(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    program = tmp_path / "notebook.py"
    with running_stack(tmp_path / "home", gateways=2, tritons=2) as stack, ExitStack() as nothing:
        page = Page([], stack, tmp_path, nothing)
        program.write_text(page.here("\n\n".join([*code, ENDED])), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, program], cwd=tmp_path,
            env={**page.environment(), "PYTHONSAFEPATH": ""},
            capture_output=True, text=True, timeout=3000, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr

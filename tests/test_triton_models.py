"""Triton's models are read by mypy, too.

They are left out of the usual run, as several are named ``model`` and none is in a package; and
what they do on a GPU runs on no machine without one. A function that two others share a name with
would fail there for the first time.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SIMULATED = ROOT / "tests" / "support" / "simulated_accelerator"
MODELS = [*sorted(path.parent for path in (ROOT / "triton").glob("*/model.py")), SIMULATED]


@pytest.mark.slow
@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_a_model_agrees_with_its_types(folder: Path, tmp_path: Path) -> None:
    # As Triton finds them: beside each other, the Python model's file under its own name.
    (tmp_path / "python_model.py").symlink_to(ROOT / "triton" / "python_model" / "model.py")
    (tmp_path / "gpu_faults.py").symlink_to(ROOT / "contracts" / "gpu_faults.py")
    found = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", "--ignore-missing-imports"),
            *("--python-version", "3.11", "--check-untyped-defs", "--disallow-untyped-defs"),
            *map(str, sorted(folder.glob("*.py"))),
        ],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
            "MYPYPATH": os.pathsep.join([str(tmp_path), str(folder)]),
            "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache" / "triton"),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr

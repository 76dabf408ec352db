"""Who has the variables that keep libraries from calling their makers."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.telemetry_off import VARIABLES

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = (
    "controller.main",
    "gateway.main",
    "headrace.commands.up",
    "registry.convert.__main__",
    "registry.loader_main",
    "stats.evaluate_main",
    "stats.fold_main",
)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_has_them_before_it_loads_a_library_that_reads_them(program: str) -> None:
    code = (
        f"import json, os, sys; import {program};"
        "libraries = {'huggingface_hub', 'mlflow', 'onnxruntime', 'torch', 'transformers'};"
        "print(json.dumps([sorted(libraries & sys.modules.keys()), dict(os.environ)]))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], check=True, capture_output=True, timeout=180,
        env={"PATH": "/usr/bin:/bin", "ORT_DISABLE_TELEMETRY": "0"},
    )  # fmt: skip
    loaded, environment = json.loads(done.stdout)
    assert VARIABLES.items() <= environment.items()
    assert loaded == []


def test_the_chart_gives_them_to_images_of_an_operators_own() -> None:
    template = (ROOT / "charts" / "headrace" / "templates" / "_pods.tpl").read_text()
    given = dict(re.findall(r'\(list "([A-Z_]+)" "(\w+)"\)', template))
    assert VARIABLES.items() <= given.items()

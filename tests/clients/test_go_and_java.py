"""The clients in Go and Java of ``docs/clients.md``, where their compilers are."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from front_fakes import LABELS, scores
from front_server import Served

pytestmark = pytest.mark.slow  # compiles

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
TEXTS = ["a good film", "rain"]


def program(language: str, fronts: Served) -> str:
    """The page's snippet, with the address of the gateway that is here."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert found[1].count("http://127.0.0.1:8080") == 1
    return found[1].replace("http://127.0.0.1:8080", fronts.url)


def run(folder: Path, *command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go here")
def test_the_client_in_go_prints_a_label_for_each_text(fronts: Served, tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(program("go", fronts), encoding="utf-8")
    said = run(tmp_path, "go", "run", "main.go", GOPROXY="off", GOTOOLCHAIN="local")
    best = [max(zip(scores(text), LABELS, strict=True)) for text in TEXTS]
    assert said.splitlines() == [f"{label} {score:.3f}" for score, label in best]


@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler here")
def test_the_client_in_java_prints_the_answer(fronts: Served, tmp_path: Path) -> None:
    (tmp_path / "Client.java").write_text(program("java", fronts), encoding="utf-8")
    said = json.loads(run(tmp_path, "java", "Client.java"))
    found = [one["scores"] for one in said["predictions"]]
    assert found == [dict(zip(LABELS, scores(text), strict=True)) for text in TEXTS]

"""What must hold of the repository as a whole."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "examples/*/*.md") for path in ROOT.glob(pattern)
)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_import_triton_does_not_find_our_folder() -> None:
    spec = importlib.util.find_spec("triton")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    assert str(ROOT / "triton") not in folders


def test_import_triton_does_not_find_our_folder_from_the_root_either() -> None:
    program = "import importlib.util as u; print(u.find_spec('triton'))"
    said = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert str(ROOT / "triton") not in said


def test_the_root_is_not_on_the_path() -> None:
    assert str(ROOT) not in sys.path
    assert "" not in sys.path


def test_the_folder_triton_holds_no_package() -> None:
    assert not list((ROOT / "triton").rglob("__init__.py"))


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_files_that_a_document_links_to_exist(text: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (text.parent / link).exists()] == []


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_code_files_that_a_document_names_exist(text: Path) -> None:
    folders = (
        "contracts|measures|preprocess|service|gateway|registry|rollout|stats"
        "|dashboards|controller|headrace|bench|examples|tests|triton"
    )
    named = re.findall(rf"`((?:{folders})/[\w./-]+\.(?:py|md|txt|json|jsonl))`", text.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_make_targets_that_a_document_names_exist(text: Path) -> None:
    named = set(re.findall(r"`?\bmake ([a-z-]+)(?=[`\s])", "\n".join(_code(text))))
    assert named - TARGETS == set()


def _code(text: Path) -> list[str]:
    """The inline and fenced code of a document."""
    content = text.read_text(encoding="utf-8")
    return re.findall(r"```.*?\n(.*?)```", content, re.DOTALL) + re.findall(
        r"`(make [^`\n]+)`", content
    )


def test_the_readmes_commands_are_those_of_the_program() -> None:
    said = subprocess.run(
        [sys.executable, "-P", "-m", "headrace", "--help"],
        capture_output=True, text=True, check=True, timeout=60, env={"COLUMNS": "120"},
    ).stdout  # fmt: skip
    commands = set(re.findall(r"`headrace ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"up", "status", "predict", "models", "doctor", "gc", "keys"} <= commands
    assert [command for command in commands if not re.search(rf"\b{command}\b", said)] == []

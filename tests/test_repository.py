"""What must hold of the repository as a whole."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from contracts.tasks import Task

ROOT = Path(__file__).parent.parent
TEXTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for path in ROOT.glob(pattern)
)
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
PACKAGES = (
    "contracts", "measures", "preprocess", "service", "gateway", "registry", "rollout", "stats",
    "dashboards", "controller", "headrace",
)  # fmt: skip
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MADE_BY_A_WORKFLOW = ("dist", "newer-locks.patch")
# Libraries that read models of strangers: the last version in which a model's files could run code.
FOREIGN_CODE = {
    "torch": "2.5.1",  # CVE-2025-32434, torch.load with weights_only
    "transformers": "4.47.1",  # CVE-2024-11392, 11393, 11394
    "skops": "0.12.0",  # CVE-2025-54886, Card.get_model
}
FORMS = [ROOT / ".github" / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "feature.yml")]


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


@pytest.mark.parametrize("library", FOREIGN_CODE)
def test_no_version_of_a_library_is_allowed_in_which_a_models_files_run_code(library: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [extras["dependencies"], *extras["optional-dependencies"].values()]
    ours = [
        required
        for required in (Requirement(line) for group in groups for line in group)
        if required.name == library
    ]
    assert ours
    assert not any(required.specifier.contains(FOREIGN_CODE[library]) for required in ours)


def test_the_files_that_documents_link_to_exist() -> None:
    for text in TEXTS:
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text.read_text(encoding="utf-8"))
        local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
        missing = [link for link in local if not (text.parent / link).exists()]
        assert missing == [], text


def test_the_page_of_supported_models_has_every_task() -> None:
    page = (ROOT / "docs" / "supported-models.md").read_text(encoding="utf-8")
    first = "\n".join(re.findall(r"^\| (`[^|]+)\|", page, re.MULTILINE))
    assert {task for task in Task if f"`{task}`" not in first} == set()


def test_the_code_files_that_documents_name_exist() -> None:
    folders = (
        "contracts|measures|preprocess|service|gateway|registry|rollout|stats"
        "|dashboards|controller|headrace|bench|examples|tests|triton"
    )
    file = re.compile(rf"`((?:{folders})/[\w./-]+\.(?:py|md|txt|json|jsonl))`")
    for text in TEXTS:
        named = file.findall(text.read_text(encoding="utf-8"))
        assert [name for name in named if not (ROOT / name).exists()] == [], text


def test_the_make_targets_that_documents_name_exist() -> None:
    for text in TEXTS:
        named = set(re.findall(r"`?\bmake ([a-z-]+)(?=[`\s])", "\n".join(_code(text))))
        assert named - TARGETS == set(), text


@pytest.mark.slow
def test_nothing_outside_the_tables_compares_tasks() -> None:
    """A head is asked what depends on the task: see ``docs/adding-a-task.md``."""
    names = {*Task.__members__, *(member.value for member in Task)}
    tables = ("contracts/tasks.py", "preprocess/tasks/", "registry/convert/forms.py")
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(tables):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                found += [f"{name}:{line}" for line in _comparisons(tree, names)]
    assert found == []


@pytest.mark.parametrize(
    ("code", "compares"),
    [
        ("if view.task is Task.TEXT_EMBEDDING: pass", True),
        ("a = tasks.Task.TEXT_EMBEDDING != task", True),
        ("task in (Task.TEXT_EMBEDDING, None)", True),
        ("task == 'text-embedding'", True),
        ("match task:\n  case Task.TEXT_EMBEDDING: pass", True),
        ("task = status.task or Task.TEXT_EMBEDDING", False),
        ("if self.task != new.task: pass", False),
    ],
)
def test_a_comparison_of_tasks_is_found(code: str, compares: bool) -> None:
    assert bool(_comparisons(ast.parse(code), {"TEXT_EMBEDDING", "text-embedding"})) == compares


def _comparisons(tree: ast.AST, names: set[str]) -> list[int]:
    """Lines that compare something with a task of these names."""
    compared: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            compared += [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            compared.append(node.value)
    return [
        node.lineno
        for side in compared
        for node in ast.walk(side)
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.Constant) and node.value in names)
    ]


def test_the_tests_that_documents_choose_by_name_exist() -> None:
    modules = [(path, path.read_text(encoding="utf-8")) for path in ROOT.glob("tests/**/test_*.py")]
    for text in TEXTS:
        content = text.read_text(encoding="utf-8")
        for kind, word in re.findall(r'make (\w+) PYTEST_FLAGS="-k (\w+)"', content):
            names = [
                f"{path.name}::{name}"
                for path, source in modules
                if kind in ("unit", "quick") or f"pytest.mark.{kind}" in source
                for name in re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE)
            ]
            assert [name for name in names if word in name], f"{text}: {word}"


def _code(text: Path) -> list[str]:
    """The inline and fenced code of a document."""
    content = text.read_text(encoding="utf-8")
    return re.findall(r"```.*?\n(.*?)```", content, re.DOTALL) + re.findall(
        r"`(make [^`\n]+)`", content
    )


def _name(path: Path) -> str:
    return path.name


def _steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def _made(commands: str) -> set[str]:
    """The targets that commands of a shell make, and those that stand for several of them."""
    calls = re.findall(r"^\s*make ((?:[a-z-]+ ?)+)", commands, re.MULTILINE)
    named = {target for call in calls for target in call.split()}
    for target in tuple(named & TARGETS):
        parts = re.search(rf"^{target}: ([a-z -]+?)  ##.*\n(\t.*)?", MAKEFILE, re.MULTILINE)
        if parts:
            within = re.search(r"MAKE\).*? ([a-z][a-z ]*)$", parts[2] or "")
            also = within[1].split() if within else []
            named = (named - {target}) | {*parts[1].split(), *also}
    return named


def _made_by(workflow: Path) -> set[str]:
    return _made("\n".join(step.get("run", "") for step in _steps(workflow)))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_the_make_targets_and_scripts_that_a_workflow_calls_exist(workflow: Path) -> None:
    made = _made_by(workflow)
    assert made
    assert made - TARGETS == set()
    scripts = [step["run"].split()[0] for step in _steps(workflow) if "run" in step]
    assert [one for one in scripts if "/" in one and not (ROOT / one).is_file()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_the_files_that_a_workflow_names_exist(workflow: Path) -> None:
    content = workflow.read_text(encoding="utf-8")
    hashed = re.findall(r"'([^']+)'", " ".join(re.findall(r"hashFiles\((.*?)\)", content)))
    taken = [step["with"] for step in _steps(workflow) if "upload-artifact" in step.get("uses", "")]
    of_us = [one["path"] for one in taken if not one["path"].startswith(MADE_BY_A_WORKFLOW)]
    assert [name for name in (*hashed, *of_us) if not list(ROOT.glob(name))] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_a_workflow_pins_its_actions_and_may_only_read(workflow: Path) -> None:
    content = workflow.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.*)$", content, re.MULTILINE)
    commit = r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"  # Dependabot keeps the version beside it
    assert [one for one in uses if not re.fullmatch(commit, one)] == []
    whole = yaml.safe_load(content)
    assert whole["permissions"] == {"contents": "read"}


def test_an_action_has_one_version_in_all_workflows() -> None:
    pins: dict[str, set[str]] = {}
    for workflow in WORKFLOWS:
        for action, pin in re.findall(r"uses: (\S+)@(.*)", workflow.read_text(encoding="utf-8")):
            pins.setdefault(action, set()).add(pin)
    assert {action: found for action, found in pins.items() if len(found) > 1} == {}


def test_the_workflow_makes_all_that_ci_makes_without_a_cluster() -> None:
    asked = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("then make", "\nmake")
    made = _made_by(ROOT / ".github" / "workflows" / "ci.yml")
    assert _made(asked) >= {"lint", "types", "unit", "real", "export", "lock-check", "wheel"}
    assert _made(asked) - made == set()


@pytest.mark.parametrize("form", FORMS, ids=_name)
def test_an_issue_form_has_what_github_asks_of_one(form: Path) -> None:
    whole = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= whole.keys()
    fields = [part for part in whole["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert all(part["attributes"]["label"] for part in fields)
    ids = [part["id"] for part in fields]
    assert len(set(ids)) == len(ids)


def test_dependabot_follows_the_actions_and_leaves_the_locks_alone() -> None:
    whole = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))
    assert [one["package-ecosystem"] for one in whole["updates"]] == ["github-actions"]


@pytest.mark.slow
def test_the_readmes_commands_are_those_of_the_program() -> None:
    said = subprocess.run(
        [sys.executable, "-P", "-m", "headrace", "--help"],
        capture_output=True, text=True, check=True, timeout=60, env={"COLUMNS": "120"},
    ).stdout  # fmt: skip
    commands = set(re.findall(r"`headrace ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"up", "status", "predict", "models", "doctor", "gc", "keys"} <= commands
    assert [command for command in commands if not re.search(rf"\b{command}\b", said)] == []


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))


@pytest.mark.parametrize("record", DECISIONS, ids=_name)
def test_a_decision_record_says_whether_it_holds(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert re.match(rf"# {record.name[:4]} \S", text)
    (status,) = re.findall(r"^\*\*Status\.\*\* (.+)$", text, re.MULTILINE)
    assert re.match(r"Accepted[.;]|Superseded by \[\d{4}\]", status)


def test_the_index_of_decisions_tells_where_each_number_is() -> None:
    page = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    index, moved = page.split("## Numbers that moved")
    assert re.findall(r"^\| \[(\d{4})\]\((\S+)\)", index, re.MULTILINE) == [
        (record.name[:4], record.name) for record in DECISIONS
    ]
    known = {record.name[:4] for record in DECISIONS} | set(re.findall(r"\b\d{4}\b", moved))
    newest = int(DECISIONS[-1].name[:4])
    assert [number for number in range(1, newest + 1) if f"{number:04}" not in known] == []


def test_the_decisions_that_code_and_documents_name_exist() -> None:
    code = [path for folder in PACKAGES for path in ROOT.glob(f"{folder}/**/*.py")]
    for path in (*code, *TEXTS, ROOT / "pyproject.toml", ROOT / "hatch_build.py"):
        named = re.findall(r"decisions/(\d{4}[\w-]*)", path.read_text(encoding="utf-8"))
        here = [name for name in named if not any(each.stem == name for each in DECISIONS)]
        assert here == [], path


def test_the_page_of_architecture_is_two_walks_of_ten_files() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(page.split()) <= 1500
    for walk in ("## The way of a request", "## The way of a model version"):
        text = page.split(walk)[1].split("\n## ")[0]
        steps = re.findall(r"^\d+\. \*\*[\w ]+: `([\w/]+\.py)`", text, re.MULTILINE)
        assert len(set(steps)) == 10

"""Every snippet of the documents is run by a test, or says why not.

A comment stands in the line before the fence of each snippet of a shell, Python, Go or Java:

- ``<!-- run by tests/test_snippets.py -->``: it is run here, as it stands, in a folder of the
  page's own that has ``examples`` and ``charts`` of the repository; what a console shows after a
  command is what the command has to print;
- ``<!-- run by tests/FILE.py -->``: a test there takes it from the page;
- ``<!-- not run: REASON -->``.

``<!-- file: NAME -->`` puts a snippet into that folder, for those below it. Endpoints in YAML need
no comment: all of them are read as ``headrace apply`` reads them.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from page_snippets import ROOT, Snippet, of, snippets, steps

from headrace.cli import whole_program
from headrace.endpoints import document

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "charts/*/*.md")
    for path in ROOT.glob(pattern)
)
HERE = "tests/test_snippets.py"
RUNNABLE = ("", "sh", "bash", "console", "python", "go", "java")
OTHER = ("yaml", "json", "toml", "text", "diff")


def everywhere() -> list[Snippet]:
    """The snippets of all documents."""
    return [snippet for path in PAGES for snippet in of(path)]


def runs_here(path: Path) -> bool:
    return any((each.kind, each.said) == ("run by", HERE) for each in of(path))


def test_every_snippet_is_run_or_says_why_not() -> None:
    silent = [
        str(each)
        for each in everywhere()
        if each.language in RUNNABLE and each.kind not in {"run by", "not run:"}
    ]
    assert silent == [], "see tests/test_snippets.py for what to write above a snippet"


def test_every_snippet_has_a_known_language() -> None:
    known = {*RUNNABLE, *OTHER}
    assert [(str(each), each.language) for each in everywhere() if each.language not in known] == []


def test_a_test_that_is_said_to_run_a_snippet_names_its_page() -> None:
    for each in everywhere():
        if each.kind == "run by" and each.said != HERE:
            assert each.page in (ROOT / each.said).read_text(encoding="utf-8"), each


def test_tests_and_folders_that_reasons_name_exist() -> None:
    for each in everywhere():
        if each.kind == "not run:":
            named = re.findall(r"\b(?:tests|examples|gateway|\.ci)/[\w/.-]*\w", each.said)
            assert [name for name in named if not (ROOT / name).exists()] == [], each


def calls(text: str) -> list[list[str]]:
    """The words after ``headrace`` of each call of it in a snippet of a shell."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    found = []
    for line in lines:
        for call in re.finditer(
            r"(?:^(?:\$ )?|[|;&(] *|/bin/|kubectl )headrace +([^|;&>)]*)", line
        ):
            with contextlib.suppress(ValueError):  # quotes that end in another line
                found.append(shlex.split(call[1], comments=True))
    return found


def unknown(words: list[str]) -> list[str]:
    """What of a call's words is neither a command nor an option of it."""
    command: Any = whole_program()
    takes_value = {"--help": False, "-h": False} | options_of(command)
    waiting, left = list(words), []
    while waiting and waiting[0] != "--":
        word, _, value = waiting.pop(0).partition("=")
        if word.startswith("-") and word != "-":
            left += [] if word in takes_value else [word]
            if takes_value.get(word) and not value and waiting:
                waiting.pop(0)
        elif word in getattr(command, "commands", {}):
            command = command.commands[word]
            takes_value |= options_of(command)
        elif getattr(command, "commands", {}):
            return [*left, word]
    return left


def options_of(command: Any) -> dict[str, bool]:
    """The options of a command, and whether each takes a value."""
    return {
        name: not getattr(each, "is_flag", False)
        for each in command.params
        for name in (*each.opts, *each.secondary_opts)
    }


def test_commands_in_documents_are_those_of_the_program() -> None:
    found = [(each, call) for each in everywhere() if each.language in RUNNABLE
             for call in calls(each.text)]  # fmt: skip
    assert len(found) > 20
    wrong = [(str(each), unknown(call)) for each, call in found]
    assert [(where, what) for where, what in wrong if what] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("headrace status --watch  # a comment", []),
        ("$ .venv/bin/headrace -n models rollout status tone --watch", []),
        ("helm template a b | headrace apply -f -", []),
        ("headrace predict tone -- --gpus all", []),
        ("headrace stauts", ["stauts"]),
        ("headrace status --wach", ["--wach"]),
    ],
)
def test_a_command_that_there_is_not_is_found(line: str, wrong: list[str]) -> None:
    (call,) = calls(line)
    assert unknown(call) == wrong


def test_endpoints_in_documents_can_be_applied() -> None:
    read = 0
    for each in everywhere():
        if each.language == "yaml" and "kind: ModelEndpoint" in each.text:
            text = re.sub(r"^# yaml-language-server.*\n", "", each.text)
            assert document.read(text, str(each))
            read += 1
    assert read > 5


def test_other_yaml_in_documents_is_yaml() -> None:
    for each in everywhere():
        if each.language == "yaml":
            list(yaml.safe_load_all(each.text))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in PAGES if runs_here(path)], ids=lambda path: path.stem
)
def test_snippets_run_as_they_stand(path: Path, tmp_path: Path) -> None:
    for name in ("examples", "charts"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "HEADRACE_HOME": str(tmp_path / "home"),
    }
    for each in of(path):
        if each.kind == "file:":
            (tmp_path / each.said).write_text(each.text, encoding="utf-8")
        elif (each.kind, each.said) == ("run by", HERE):
            for command, shown in steps(each):
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", command],
                    cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
                    timeout=300,
                )  # fmt: skip
                assert done.returncode == 0, f"{each}\n{done.stdout}\n{done.stderr}"
                assert shown in {"", done.stdout}, each
    for made in tmp_path.glob("endpoint.yaml"):
        assert document.read(made.read_text(encoding="utf-8"), made.name)


def test_a_console_is_a_command_after_the_other_with_what_each_prints() -> None:
    (snippet,) = snippets("page.md", "```console\n$ a\n1\n2\n$ b\n```\n")
    assert steps(snippet) == [("a", "1\n2\n"), ("b", "")]


def test_a_snippet_is_found_with_its_comment_and_without_its_indentation() -> None:
    page = "1. Do\n\n   <!-- not run: why -->\n   ```sh\n   a\n     b\n   ```\n\n```text\n```\n"
    first, second = snippets("page.md", page)
    assert (first.kind, first.said, first.text, first.line) == ("not run:", "why", "a\n  b\n", 4)
    assert (second.kind, second.language, second.text) == ("", "text", "")

"""Runs the jobs of one of GitHub's workflows on this machine: each step's command by the shell that
GitHub takes, in a workspace of its own, with doubles of programs in front of PATH.

Of actions it knows those that the workflows use. An expression that names what is not there is an
error, where GitHub would take it for nothing.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PROGRAMS = ("docker", "helm", "gh", "python", "pip", "uv", "make")
DOUBLES = Path(__file__).with_name("release_programs.py")
# What the steps read of a checkout.
READ = (
    "*.toml",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    ".ci",
    "charts/headrace",
    "docker",
    "locks",
)
_SHELLS = {
    None: ("bash", "-e"),
    "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail"),
}
_NAME = re.compile(r"'[^']*'|[a-z_]+(?:\.[\w-]+)+")


class StepError(Exception):
    """A step failed; the message is what it said."""


@dataclass
class Workflow:
    """One run of a workflow's file.

    Attributes:
        path: the workflow's file.
        root: the checkout.
        folder: an empty folder for workspaces, artifacts and doubles.
        github: fields of GitHub's context, such as ``ref_name``.
        environ: variables for the doubles.
        replaced: files of the checkout, by path, with what stands in for them.
    """

    path: Path
    root: Path
    folder: Path
    github: Mapping[str, str]
    environ: Mapping[str, str]
    replaced: Mapping[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)  # name, and the job that left it

    def __post_init__(self) -> None:
        self.whole = yaml.safe_load(self.path.read_text(encoding="utf-8"))
        self.jobs: dict[str, Any] = self.whole["jobs"]
        self.state = self.folder / "state.json"
        self.state.write_text(json.dumps({"calls": [], "built": [], "registry": {}}))

    def step(self, job: str, words: str) -> Path:
        """Runs the one step whose command holds ``words``, in a checkout; returns the workspace."""
        alone = _Job(self, job, next(self.entries(job)))
        alone.checkout({})
        (found,) = [each for each in self.jobs[job]["steps"] if words in each.get("run", "")]
        alone.command(found)
        return alone.workspace

    def run(self, job: str, **only: tuple[str, ...]) -> None:
        """Runs a job, of a matrix the entries whose fields are in ``only``.

        Raises:
            StepError: a step failed.
        """
        for entry in self.entries(job):
            if all(entry[name] in values for name, values in only.items()):
                _Job(self, job, entry).run()

    def entries(self, job: str) -> Iterator[dict[str, Any]]:
        """The combinations of a job's matrix; one empty one where it has none."""
        matrix = dict(self.jobs[job].get("strategy", {}).get("matrix", {}))
        excluded = matrix.pop("exclude", [])
        for values in itertools.product(*matrix.values()):
            entry = dict(zip(matrix, values, strict=True))
            if not any(one.items() <= entry.items() for one in excluded):
                yield entry

    def needs(self, job: str) -> set[str]:
        """The jobs that have ended before this one begins."""
        named = self.jobs[job].get("needs", [])
        direct = {named} if isinstance(named, str) else set(named)
        return direct.union(*(self.needs(one) for one in direct))

    def recorded(self) -> dict[str, Any]:
        """What the doubles wrote down."""
        return dict(json.loads(self.state.read_text()))

    def calls(self, program: str) -> list[tuple[str, list[str]]]:
        """The job and the words of each call of a program."""
        found = self.recorded()["calls"]
        return [(job, words) for job, called, words in found if called == program]


class _Job:
    def __init__(self, workflow: Workflow, name: str, matrix: Mapping[str, Any]) -> None:
        self.workflow, self.name, self.matrix = workflow, name, matrix
        self.spec = workflow.jobs[name]
        number = len(list(workflow.folder.glob(f"{name}-*")))
        self.place = workflow.folder / f"{name}-{number}"
        self.workspace, self.temp, self.bin = (
            self.place / part for part in ("workspace", "temp", "bin")
        )
        for folder in (self.workspace, self.temp, self.bin):
            folder.mkdir(parents=True)
        for program in PROGRAMS:
            self.add_program(program)
        self.steps: dict[str, dict[str, str]] = {}
        self.env: dict[str, str] = {}
        self.env = self.values(self.spec.get("env", {}))

    def run(self) -> None:
        for step in self.spec["steps"]:
            assert "if" not in step, "conditions of steps are not known here"
            if "uses" in step:
                action = step["uses"].split("@")[0].split("/", 1)[1].replace("-", "_")
                getattr(self, action)(self.values(step.get("with", {})))
            else:
                self.command(step)
        told = self.spec.get("outputs", {})
        self.workflow.outputs[self.name] = self.values(told)

    def command(self, step: Mapping[str, Any]) -> None:
        default = self.workflow.whole.get("defaults", {}).get("run", {}).get("shell")
        script, output = self.place / "step.sh", self.place / "output"
        script.write_text(self.text(step["run"]))
        output.write_text("")
        context = {f"GITHUB_{name.upper()}": value for name, value in self.workflow.github.items()}
        files = {"GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(self.temp)}
        own = self.env | self.values(step.get("env", {}))
        env = {**context, **files, **self.workflow.environ, **own, "HOME": str(self.place)}
        env |= {"PATH": f"{self.bin}:/usr/bin:/bin", "DOUBLES": str(self.bin)}
        done = subprocess.run(
            [*_SHELLS[step.get("shell", default)], script], cwd=self.workspace, env=env,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode:
            raise StepError(f"{self.name}: {step['run']}\n{done.stdout}{done.stderr}")
        if "id" in step:
            lines = output.read_text().splitlines()
            self.steps[step["id"]] = dict(line.split("=", 1) for line in lines)

    def add_program(self, name: str) -> None:
        path = self.bin / name
        words = (sys.executable, "-I", DOUBLES, name, self.workflow.state, self.name)
        path.write_text(f'#!/bin/sh\nexec {" ".join(map(str, words))} "$@"\n')
        path.chmod(0o755)

    # Expressions

    def values(self, given: Mapping[str, Any]) -> dict[str, str]:
        return {name: self.text(str(value)) for name, value in given.items()}

    def text(self, given: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: str(self.evaluated(found[1])), given)

    def evaluated(self, expression: str) -> object:
        names: list[object] = []

        def named(found: re.Match[str]) -> str:
            word = found[0]
            names.append(word[1:-1] if word.startswith("'") else self.looked_up(word))
            return f"names[{len(names) - 1}]"

        python = _NAME.sub(named, expression).replace("&&", " and ").replace("||", " or ")
        return eval(python, {"__builtins__": {}}, {"names": names})  # of our own file

    def looked_up(self, name: str) -> object:
        found: Any = {
            "github": self.workflow.github,
            "matrix": self.matrix,
            "env": self.env,
            "secrets": {"GITHUB_TOKEN": "a token"},
            "steps": {step: {"outputs": told} for step, told in self.steps.items()},
            "needs": {
                job: {"outputs": told}
                for job, told in self.workflow.outputs.items()
                if job in self.workflow.needs(self.name)
            },
        }
        for part in name.split("."):
            found = found[part]
        return found

    # Actions

    def checkout(self, _given: Mapping[str, str]) -> None:
        for pattern in READ:
            for source in self.workflow.root.glob(pattern):
                target = self.workspace / source.relative_to(self.workflow.root)
                copy = shutil.copytree if source.is_dir() else shutil.copy
                target.parent.mkdir(parents=True, exist_ok=True)
                copy(source, target)
        for path, content in self.workflow.replaced.items():
            (self.workspace / path).write_text(content)

    def setup_python(self, given: Mapping[str, str]) -> None:
        assert given["python-version"]

    def cosign_installer(self, _given: Mapping[str, str]) -> None:
        self.add_program("cosign")

    def scan_action(self, given: Mapping[str, str]) -> None:
        recorded = self.workflow.recorded()
        assert given["image"] in recorded["built"]
        assert given["fail-build"].lower() == "true"
        recorded["calls"].append([self.name, "scan", [given["image"]]])
        self.workflow.state.write_text(json.dumps(recorded))

    def attest_build_provenance(self, given: Mapping[str, str]) -> None:
        if "subject-path" in given:
            for pattern in given["subject-path"].split():
                assert list(self.workspace.glob(pattern)), pattern
            return
        registry = self.workflow.recorded()["registry"]
        names = [name for name, pushed in registry.items() if pushed == given["subject-digest"]]
        assert any(name.startswith(f"{given['subject-name']}:") for name in names)

    def upload_artifact(self, given: Mapping[str, str]) -> None:
        found = [file for one in given["path"].split() for file in self.workspace.glob(one)]
        files = [file for top in found for file in (top.rglob("*") if top.is_dir() else [top])]
        if not files:
            raise StepError(f"{self.name}: no files for {given['name']}")
        # What GitHub takes for the root of the artifact.
        tops = [str(self.workspace / one.split("*")[0]) for one in given["path"].split()]
        root = Path(os.path.commonpath(tops))
        assert given["name"] not in self.workflow.artifacts
        self.workflow.artifacts[given["name"]] = self.name
        for file in filter(Path.is_file, files):
            target = self.workflow.folder / "artifacts" / given["name"] / file.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)

    def download_artifact(self, given: Mapping[str, str]) -> None:
        known = self.workflow.artifacts
        for name in [given["name"]] if "name" in given else sorted(known):
            if known.get(name) not in self.workflow.needs(self.name):
                raise StepError(f"{self.name} does not wait for the job that leaves {name}")
            source = self.workflow.folder / "artifacts" / name
            merged = "name" in given or given.get("merge-multiple", "").lower() == "true"
            path = self.workspace / given["path"] / ("" if merged else name)
            shutil.copytree(source, path, dirs_exist_ok=True)

"""The release workflow, step by step, with doubles of what needs a registry, PyPI or GitHub.

Of nine images two stand for all: one for both processors and the one for amd64 alone.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from loaded_script import loaded
from workflow_jobs import StepError, Workflow

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
GITHUB = {
    "ref_name": f"v{VERSION}",
    "repository": "Acme/headrace",
    "repository_owner": "Acme",
    "server_url": "https://example.org",
    "actor": "somebody",
    "workspace": "/nowhere",
}
IMAGES = ("gateway", "all-in-one")
HERE = "ghcr.io/acme"
# What a job must be allowed to do to call a program with such words.
NEEDED = {
    ("docker", "push"): {"packages"},
    ("docker", "buildx"): {"packages"},
    ("helm", "push"): {"packages"},
    ("cosign", "sign"): {"id-token", "packages"},
    ("cosign", "attest"): {"id-token", "packages"},
    ("uv", "publish"): {"id-token"},
    ("gh", "release"): {"contents"},
}
krew = loaded(ROOT / ".ci" / "krew.py")
sbom = loaded(ROOT / ".ci" / "sbom.py")


def pinned() -> str:
    bases = (ROOT / "docker" / "bases").read_text()
    return re.sub(r"(?m)^([A-Z_]+=[^@\n]+).*$", rf"\1@sha256:{'0' * 64}", bases)


def dated() -> str:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return changelog.replace(f"## {VERSION} (unreleased)", f"## {VERSION} (2026-01-01)")


def release(folder: Path, *, environ: dict[str, str] | None = None, **changed: Any) -> Workflow:
    folder.mkdir()
    replaced = {
        "docker/bases": pinned(),
        "CHANGELOG.md": dated(),
        # Installs what it built, from PyPI.
        ".ci/wheel": '#!/bin/sh\ntest -d "$1" && ls dist/headrace-*.whl\n',
        **changed.pop("replaced", {}),
    }
    known = {"VERSION_OF_ALL": VERSION, "SBOMS": " ".join(sbom.parts())}
    path = WORKFLOWS / "release.yml"
    github = {**GITHUB, **changed}
    return Workflow(path, ROOT, folder, github, {**known, **(environ or {})}, replaced)


def run_all(workflow: Workflow) -> None:
    workflow.run("ready")
    workflow.run("wheel")
    workflow.run("images", image=IMAGES)
    workflow.run("signed", image=IMAGES)
    workflow.run("chart")
    workflow.run("publish")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """All jobs of a release, run."""
    made = release(tmp_path_factory.mktemp("release") / "all")
    run_all(made)
    return made


def artifact(workflow: Workflow, name: str) -> Path:
    return workflow.folder / "artifacts" / name


@pytest.mark.slow
def test_every_step_of_a_release_runs(released: Workflow) -> None:
    assert {job for job, _, _ in released.recorded()["calls"]} == set(released.jobs)
    pushed = set(released.recorded()["registry"])
    assert pushed == {
        f"{HERE}/headrace-gateway:{VERSION}-amd64",
        f"{HERE}/headrace-gateway:{VERSION}-arm64",
        f"{HERE}/headrace-gateway:{VERSION}",
        f"{HERE}/headrace-all-in-one:{VERSION}-amd64",
        f"{HERE}/headrace-all-in-one:{VERSION}",
        f"{HERE}/charts/headrace:{VERSION}",
    }


@pytest.mark.slow
def test_what_is_released_is_signed_and_has_its_sbom(released: Workflow) -> None:
    registry = released.recorded()["registry"]
    named = [name for name in registry if name.endswith(f":{VERSION}")]
    calls = [words for _, words in released.calls("cosign")]
    signed = {words[-1] for words in calls if words[0] == "sign"}
    assert signed == {f"{name.rsplit(':', 1)[0]}@{registry[name]}" for name in named}
    attested = {words[-1] for words in calls if words[0] == "attest"}
    assert attested == {name for name in signed if "/charts/" not in name}
    assert len(released.calls("scan")) == 3  # each image that is pushed


@pytest.mark.slow
def test_the_release_on_github_holds_all_that_was_built(released: Workflow) -> None:
    ((_, words),) = released.calls("gh")
    files = {Path(word).name for word in words if word.startswith("dist/")}
    assert files == {
        "notes.md",
        f"headrace-{VERSION}-py3-none-any.whl",
        f"headrace-{VERSION}.tgz",
        "headrace.yaml",
        *(krew.file_name(*platform) for platform in krew.PLATFORMS),
        *(f"{name}.cdx.json" for name in sbom.parts()),
    }
    notes = (artifact(released, "papers") / "notes.md").read_text()
    assert notes.strip()
    assert f"https://example.org/Acme/headrace/blob/v{VERSION}/docs/" in notes


@pytest.mark.slow
def test_a_job_may_do_what_it_does_and_no_more(released: Workflow) -> None:
    for name, job in released.jobs.items():
        told = job.get("permissions", {})
        may = {right for right, how in told.items() if how == "write"}
        asked = [
            (program, words) for at, program, words in released.recorded()["calls"] if at == name
        ]
        needed = set().union(*(NEEDED.get((program, words[0]), set()) for program, words in asked))
        actions = [step.get("uses", "") for step in job["steps"]]
        if any("attest-build-provenance" in action for action in actions):
            needed |= {"id-token", "attestations"}
        if name == "ready":
            needed -= {"packages"}
        assert may == needed, name


@pytest.mark.slow
def test_krews_manifest_names_the_archives_that_are_released(released: Workflow) -> None:
    folder = artifact(released, "wheel") / "krew"
    whole = yaml.safe_load((folder / "headrace.yaml").read_text())
    assert whole["metadata"]["name"] == "headrace"
    assert whole["spec"]["version"] == f"v{VERSION}"
    assert len(whole["spec"]["shortDescription"]) <= 50
    base = f"https://example.org/Acme/headrace/releases/download/v{VERSION}/"
    for platform in whole["spec"]["platforms"]:
        archive = folder / platform["uri"].removeprefix(base)
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
        with tarfile.open(archive) as tar:
            assert tar.getmember(platform["bin"]).mode == 0o755
            names = tar.getnames()
        assert {"LICENSE", "packages/__main__.py"} <= set(names)
        assert {f"packages/cli/{python}.so" for python in krew.PYTHONS} <= set(names)


# What must stop it


def test_a_tag_that_is_not_the_version_stops_a_release_at_once(tmp_path: Path) -> None:
    workflow = release(tmp_path / "run", ref_name="v99.0.0")
    with pytest.raises(StepError, match=r"The tag is v99\.0\.0"):
        workflow.run("ready")
    assert workflow.recorded()["built"] == []


def test_a_changelog_without_a_date_stops_a_release_at_once(tmp_path: Path) -> None:
    undated = dated().replace(f"## {VERSION} (2", f"## {VERSION} (unreleased, 2")
    workflow = release(tmp_path / "run", replaced={"CHANGELOG.md": undated})
    with pytest.raises(StepError, match="has no heading"):
        workflow.run("ready")


def test_a_base_image_without_a_digest_stops_a_release_before_a_build(tmp_path: Path) -> None:
    bases = re.sub(r"@sha256:\w+", "", pinned())
    workflow = release(tmp_path / "run", replaced={"docker/bases": bases})
    with pytest.raises(StepError, match="without a digest"):
        workflow.run("ready")
    assert workflow.recorded()["built"] == []


def test_a_registry_that_is_away_leaves_the_chart_unsigned(tmp_path: Path) -> None:
    workflow = release(tmp_path / "run", environ={"PUSH_FAILS": "1"})
    workflow.outputs["ready"] = {"version": VERSION, "registry": HERE}
    with pytest.raises(StepError, match="the registry is away"):
        workflow.run("chart")
    assert workflow.calls("cosign") == []


def test_the_weekly_workflow_finds_the_digests_that_a_release_needs(tmp_path: Path) -> None:
    unpinned = re.sub(r"@sha256:\w+", "", pinned())
    workflow = Workflow(
        WORKFLOWS / "locks.yml", ROOT, tmp_path, GITHUB, {}, {"docker/bases": unpinned}
    )
    made = (workflow.step("newer", "docker/bases)") / "docker" / "bases").read_text()
    assert re.sub(r"@sha256:[0-9a-f]{64}$", "", made, flags=re.MULTILINE) == unpinned
    assert len(re.findall(r"^[A-Z_]+=\S+@sha256:[0-9a-f]{64}$", made, re.MULTILINE)) == 3


# The repository as it is


def test_a_version_that_has_a_date_is_ready_for_its_tag() -> None:
    """As it is between the commit that dates the changelog and the one that names what is next."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"## {VERSION} (unreleased)" in changelog:
        pytest.skip(f"{VERSION} is not dated yet")
    loaded(ROOT / ".ci" / "release.py").check(f"v{VERSION}")


def test_the_changelog_is_a_page_whose_newest_version_is_the_projects() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = changelog.split("\n## ")[1]
    assert re.match(rf"{re.escape(VERSION)} \((\d{{4}}-\d\d-\d\d|unreleased)\)\n", newest)
    assert len(newest.split()) <= 700


def test_the_clusters_of_ci_are_of_versions_that_the_scripts_know() -> None:
    job = yaml.safe_load((WORKFLOWS / "ci.yml").read_text())["jobs"]["cluster"]
    matrix = job["strategy"]["matrix"]
    for script, versions in (("kind", matrix["kubernetes"]), ("helm", matrix["helm"])):
        text = (ROOT / ".ci" / script).read_text()
        assert re.findall(r"^  ([\d.]+)\)", text, re.MULTILINE) == versions
    chart = yaml.safe_load((ROOT / "charts" / "headrace" / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={matrix['kubernetes'][0]}.0-0"


def in_cache(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """One of the scripts, with a double of Go whose programs say how they were called."""
    bin_ = folder / "bin"
    bin_.mkdir()
    (bin_ / "go").write_text(
        '#!/bin/sh\nname=${*##*/}; name=${name%@*}; mkdir -p "$GOBIN"\n'
        'printf \'#!/bin/sh\\necho called "$@"\\n\' >"$GOBIN/$name"; chmod 755 "$GOBIN/$name"\n'
        'echo "$*" >>"$HEADRACE_CACHE/built"\n'
    )
    (bin_ / "go").chmod(0o755)
    env = {"PATH": f"{bin_}:/usr/bin:/bin", "HEADRACE_CACHE": str(folder)}
    env |= {"KUBECONFIG": str(folder / "new" / "config"), "GITHUB_PATH": str(folder / "path")}
    return subprocess.run(
        [ROOT / ".ci" / words[0], *words[1:]],
        env=env, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kind_starts_a_version_from_an_image_by_digest(tmp_path: Path, version: str) -> None:
    done = in_cache(tmp_path, "kind", version)
    assert done.returncode == 0, done.stderr
    node = rf"--image kindest/node:v{re.escape(version)}\.\d+@sha256:[0-9a-f]{{64}} "
    assert re.search(node + f"--kubeconfig {tmp_path}/new/config", done.stdout)
    folder = Path((tmp_path / "path").read_text().strip())
    assert (folder / "kind").is_file()


@pytest.mark.parametrize("version", ["3", "4"])
def test_helm_is_built_once_and_its_folder_is_all_that_is_printed(
    tmp_path: Path, version: str
) -> None:
    done = in_cache(tmp_path, "helm", version)
    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.strip()) / "helm").is_file()
    assert (tmp_path / "path").read_text() == done.stdout
    assert f"helm.sh/helm/v{version}/cmd/helm@v{version}." in (tmp_path / "built").read_text()
    shutil.rmtree(tmp_path / "bin")
    assert in_cache(tmp_path, "helm", version).stdout == done.stdout
    assert len((tmp_path / "built").read_text().splitlines()) == 1


@pytest.mark.parametrize("script", ["kind", "helm"])
def test_a_version_that_is_not_tested_is_refused(tmp_path: Path, script: str) -> None:
    done = in_cache(tmp_path, script, "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage" in done.stderr


# The plugin's archive


def test_the_plugin_is_packed_to_the_same_bytes_and_runs_by_a_link(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    (packed / "packages").mkdir(parents=True)
    (packed / "packages" / "__main__.py").write_text(
        "import sys\n\nprint(sys.argv[1:], sys.path[0])\n"
    )
    (packed / krew.PROGRAM).write_text(krew.LAUNCHER)
    first, second = (krew.archive(packed, tmp_path / name) for name in ("a.tar.gz", "b.tar.gz"))
    assert first == second
    store = tmp_path / "a store"
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        tar.extractall(store, filter="data")
    (tmp_path / krew.PROGRAM).symlink_to(store / krew.PROGRAM)
    done = subprocess.run(
        [tmp_path / krew.PROGRAM, "get", "a b"],
        capture_output=True, text=True, check=True, timeout=60,
        env={"PATH": "/usr/bin:/bin", "HEADRACE_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.stdout == f"['get', 'a b'] {store / 'packages'}\n"


def test_the_plugin_says_which_python_it_needs(tmp_path: Path) -> None:
    program = tmp_path / krew.PROGRAM
    program.write_text(krew.LAUNCHER)
    program.chmod(0o755)
    for name in ("dirname", "readlink"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    done = subprocess.run(
        [program],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("kubectl headrace needs Python 3.11")

"""What a release is made of, as far as that needs no network."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from loaded_script import loaded

ROOT = Path(__file__).parent.parent
release = loaded(ROOT / ".ci" / "release.py")
sbom = loaded(ROOT / ".ci" / "sbom.py")
CHANGELOG = """# Changelog

## 0.2.0 (unreleased)

- Not yet.

## 0.1.0 (2026-11-23)

### The first

- It serves ([how](docs/endpoints.md#the-form), [paper](https://example.org/x)).
"""


def repository(folder: Path, *, version: str = "0.1.0", chart: str = "0.1.0") -> Path:
    (folder / "charts" / "headrace").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(f'[project]\nname = "headrace"\nversion = "{version}"\n')
    told = f'version: {chart}\nappVersion: "{version}"\n'
    (folder / "charts" / "headrace" / "Chart.yaml").write_text(told)
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    return folder


def test_a_tag_is_the_version_of_project_chart_and_changelog(tmp_path: Path) -> None:
    release.check("v0.1.0", repository(tmp_path))


@pytest.mark.parametrize(
    ("tag", "version", "chart", "said"),
    [
        ("v0.1.1", "0.1.0", "0.1.0", "pyproject.toml says 0.1.0"),
        ("v0.1.0", "0.1.0", "0.0.9", "Chart.yaml .version. says 0.0.9"),
        ("0.1.0", "0.1.0", "0.1.0", "a v and the version"),
        ("v0.2.0", "0.2.0", "0.2.0", "no heading"),
    ],
)
def test_what_does_not_agree_is_no_release(
    tmp_path: Path, tag: str, version: str, chart: str, said: str
) -> None:
    with pytest.raises(release.ReleaseError, match=said):
        release.check(tag, repository(tmp_path, version=version, chart=chart))


def test_the_notes_are_the_versions_part_with_links_that_work_elsewhere() -> None:
    made = release.notes("v0.1.0", "https://example.org/a/headrace/", CHANGELOG)
    assert made.startswith("### The first")
    assert "Not yet" not in made
    at = "https://example.org/a/headrace/blob/v0.1.0/docs/endpoints.md#the-form"
    assert f"([how]({at}), [paper](https://example.org/x))" in made


def test_the_projects_and_the_charts_version_are_one() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "headrace" / "Chart.yaml").read_text())
    (version,) = re.findall(
        r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert (chart["version"], chart["appVersion"]) == (version, version)


def read(chart: Path, name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((chart / name).read_text()))


def test_the_released_chart_takes_the_released_images(tmp_path: Path) -> None:
    made = release.chart("ghcr.io/acme", tmp_path, "https://example.org/acme/headrace")
    before, after = (read(chart, "values.yaml") for chart in (ROOT / "charts" / "headrace", made))
    assert after["images"]["registry"] == "ghcr.io/acme"
    after["images"]["registry"] = before["images"]["registry"]
    assert after == before


def test_the_released_chart_says_whence_it_is_and_which_images_it_takes(tmp_path: Path) -> None:
    url = "https://example.org/acme/headrace"
    made = release.chart("ghcr.io/acme", tmp_path, url)
    before, after = (read(chart, "Chart.yaml") for chart in (ROOT / "charts" / "headrace", made))
    assert (after.pop("home"), after.pop("sources")) == (url, [url])
    listed = yaml.safe_load(after["annotations"].pop("artifacthub.io/images"))
    parts = ("controller", "conversion", "gateway", "kafka", "mlflow", "stats", "triton")
    version = before["version"]
    assert [each["image"] for each in listed] == [
        f"ghcr.io/acme/headrace-{part}:{version}" for part in parts
    ]
    assert after == before


def test_what_artifact_hub_reads_names_no_repository_that_does_not_exist() -> None:
    whole = yaml.safe_load((ROOT / "charts" / "artifacthub-repo.yml").read_text())
    assert whole.keys() <= {"repositoryID", "owners", "ignore"}
    number = whole.get("repositoryID")
    assert number is None or re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", number)


# What is in it


def test_there_is_an_sbom_of_the_wheel_the_plugin_and_each_image_of_a_release() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    published = {
        tuple(job["strategy"]["matrix"]["image"])
        for job in workflow["jobs"].values()
        if "strategy" in job
    }
    (images,) = published
    parts = {"headrace", "kubectl-headrace"}
    assert set(sbom.parts()) == parts.union(f"headrace-{image}" for image in images)
    for name, locks in sbom.parts().items():
        assert all(lock.is_file() for lock in locks), name


def test_kafkas_jars_are_components_with_their_hashes() -> None:
    listed = (ROOT / "docker" / "kafka" / "jars.txt").read_text()
    made = sbom.jars(listed)
    assert len(made) == len(listed.splitlines())
    kafka = next(each for each in made if each["name"] == "kafka_2.13")
    assert kafka["purl"] == f"pkg:maven/org.apache.kafka/kafka_2.13@{kafka['version']}"
    assert re.fullmatch("[0-9a-f]{64}", kafka["hashes"][0]["content"])
    json.dumps(made)


@pytest.mark.parametrize(
    "lock", sorted((ROOT / "locks").rglob("*.txt")), ids=lambda path: path.name
)
def test_a_lock_holds_pinned_packages_with_hashes_and_nothing_else(lock: Path) -> None:
    entries = lock.read_text().replace("\\\n", " ").splitlines()
    for entry in filter(None, map(str.strip, entries)):
        assert re.match(
            r"[A-Za-z0-9._-]+(\[[a-z0-9,_-]+\])?==[^\s;]+( ;.*?)?\s+--hash=sha256:", entry
        )
        hashes = re.findall(r"--hash=(\S+)", entry)
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes), entry


# Base images


def build(root: Path, *images: str) -> "subprocess.CompletedProcess[str]":
    env = {
        "PATH": "/usr/bin:/bin",
        "IMAGE_BUILD": "echo",
        "IMAGE_TAG": "7",
        "IMAGE_BASES": "pinned",
    }
    return subprocess.run(
        [root / "docker" / "build", *images],
        env=env, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


def with_bases(folder: Path, digest: str) -> Path:
    docker = folder / "docker"
    docker.mkdir()
    for name in ("build", "Dockerfile"):
        (docker / name).write_bytes((ROOT / "docker" / name).read_bytes())
    (docker / "build").chmod(0o755)
    listed = f"PYTHON_IMAGE=example.org/python:3{digest}\nDEBIAN_IMAGE=example.org/d:1{digest}\n"
    (docker / "bases").write_text(f"# bases\n{listed}")
    return folder


def test_a_release_is_built_from_bases_by_digest(tmp_path: Path) -> None:
    digest = f"@sha256:{'0' * 64}"
    done = build(with_bases(tmp_path, digest), "stats")
    assert done.returncode == 0, done.stderr
    assert f"--build-arg PYTHON_IMAGE=example.org/python:3{digest}" in done.stdout
    assert f"--build-arg DEBIAN_IMAGE=example.org/d:1{digest} ." in done.stdout


@pytest.mark.parametrize("digest", ["", "@sha256:12", f"@sha256:{'0' * 64}:latest"])
def test_a_base_without_a_digest_ends_the_release(tmp_path: Path, digest: str) -> None:
    done = build(with_bases(tmp_path, digest), "stats")
    assert done.returncode == 1
    assert "without a digest" in done.stderr
    assert "-t headrace-stats" not in done.stdout


def test_the_bases_are_those_of_the_recipes() -> None:
    recipes = (ROOT / "docker" / "Dockerfile", ROOT / "docker" / "triton" / "gpu.Dockerfile")
    asked = dict(
        match
        for path in recipes
        for match in re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", path.read_text(), re.MULTILINE)
    )
    listed = dict(
        re.findall(r"^([A-Z_]+)=([^@\n]+)", (ROOT / "docker" / "bases").read_text(), re.MULTILINE)
    )
    assert listed == asked

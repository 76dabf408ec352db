"""Writes SBOMs (CycloneDX 1.6) of all that is released: ``python -P .ci/sbom.py FOLDER``.

They are made from the locks alone, by cyclonedx-py, which must be beside the interpreter (`make
sbom`): every Python package with its version and hashes, and of images with Kafka its jars too. No
network is asked. What a base image brings (Debian's packages) is not in them; the release's scan
looks at the images themselves.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
JARS = ROOT / "docker" / "kafka" / "jars.txt"
Bom = dict[str, Any]


def parts(image_locks: Path = ROOT / "locks" / "images") -> dict[str, tuple[Path, ...]]:
    """The locks of each part of a release, by its name: the wheel, kubectl's plugin, the images."""
    locks = ROOT / "locks"
    found: dict[str, tuple[Path, ...]] = {"headrace": (locks / "local.txt",)}
    found["kubectl-headrace"] = (locks / "cli.txt",)
    for lock in sorted(image_locks.glob("*.txt")):
        found[f"headrace-{lock.stem}"] = (lock,)
    found["headrace-triton"] += (locks / "triton.txt",)
    found["headrace-all-in-one"] = (locks / "local.txt", locks / "triton.txt")
    del found["headrace-client"]  # of the cluster's tests, not published
    del found["headrace-triton-gpu"]  # its base is NVIDIA's: whoever uses it builds it
    return found


def bom(name: str, locks: tuple[Path, ...], version: str) -> Bom:
    """The SBOM of one part; raises ``subprocess.CalledProcessError`` where a lock can't be read."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "pyproject.toml")
        project.write_text(f'[project]\nname = "{name}"\nversion = "{version}"\n', encoding="utf-8")
        whole = Path(folder, "lock.txt")
        whole.write_text("\n".join(lock.read_text(encoding="utf-8") for lock in locks), "utf-8")
        tool = Path(sys.executable).with_name("cyclonedx-py")
        words: list[str | Path] = [
            "requirements",
            "--pyproject",
            project,
            "--output-reproducible",
            whole,
        ]
        made = subprocess.run([tool, *words], check=True, stdout=subprocess.PIPE, env=os.environ)
    found: Bom = json.loads(made.stdout)
    if name in {"headrace-kafka", "headrace-all-in-one"}:
        found["components"] += jars(JARS.read_text(encoding="utf-8"))
    return found


def jars(listed: str) -> list[dict[str, Any]]:
    """The jars of ``docker/kafka/jars.txt`` as components."""
    made = []
    for line in listed.splitlines():
        digest, _, coordinates = line.partition("  ")
        group, artifact, version = coordinates.split(":")
        purl = f"pkg:maven/{group}/{artifact}@{version}"
        made.append(
            {
                "type": "library",
                "bom-ref": purl,
                "group": group,
                "name": artifact,
                "version": version,
                "purl": purl,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        )
    return made


def main(arguments: list[str]) -> int:
    """Writes one file a part into the folder that is named; returns the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -P .ci/sbom.py FOLDER\n")
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, locks in parts().items():
        made = bom(name, locks, project["project"]["version"])
        path = folder / f"{name}.cdx.json"
        path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{path}: {len(made['components'])} components\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Builds kubectl's plugin for Krew: ``.venv/bin/python -P .ci/krew.py URL``, after `make wheel`.

Writes into ``dist/krew`` one archive a platform and ``headrace.yaml``, the manifest that names them
below the releases of the repository at URL. An archive holds the command line and its packages
(``locks/cli.txt``, by their hashes) for Python 3.11 to 3.13, whose compiled modules have different
names and so lie side by side. A Python of the machine runs it: nothing is downloaded at a start.
"""

import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
# Krew's words for a platform, and uv's.
PLATFORMS = {
    ("linux", "amd64"): "x86_64-manylinux_2_28",
    ("linux", "arm64"): "aarch64-manylinux_2_28",
    ("darwin", "amd64"): "x86_64-apple-darwin",
    ("darwin", "arm64"): "aarch64-apple-darwin",
}
PROGRAM = "kubectl-headrace"
# Krew links to it from a folder on PATH.
LAUNCHER = """#!/bin/sh
here="$(dirname "$(readlink -f "$0")")"
for python in "${HEADRACE_PYTHON:-python3}" python3.13 python3.12 python3.11; do
  if "$python" -c '
import sys
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
    exec "$python" -I "$here/packages" "$@"
  fi
done
echo "kubectl headrace needs Python 3.11, 3.12 or 3.13 on PATH, or named in HEADRACE_PYTHON." >&2
exit 1
"""
MAIN = "from headrace.entry import kubectl\n\nkubectl()\n"
DESCRIPTION = (
    "Lists the model endpoints of Headrace in a cluster, follows their rollouts, and promotes, "
    "pauses or undoes them, as the user that the kubeconfig signs in."
)
CAVEATS = "Needs Python 3.11, 3.12 or 3.13 on PATH, or named in HEADRACE_PYTHON."


def packages(wheel: Path, platform: str, folder: Path, root: Path = ROOT) -> None:
    """Installs the command line for one platform and all of ``PYTHONS`` into ``folder``.

    Raises:
        subprocess.CalledProcessError: a package can't be had for it, or has another hash.
    """
    uv = str(root / ".venv" / "bin" / "uv")
    for python in PYTHONS:
        with tempfile.TemporaryDirectory() as made:
            common = (uv, "pip", "install", "--quiet", "--no-deps", "--target", made,
                      "--python-version", python, "--python-platform", platform,
                      "--only-binary", ":all:")  # fmt: skip
            lock = ("--require-hashes", "-r", str(root / "locks" / "cli.txt"))
            subprocess.run([*common, *lock], check=True)
            subprocess.run([*common, str(wheel)], check=True)
            shutil.rmtree(
                Path(made, "bin"), ignore_errors=True
            )  # programs with a path of this machine
            shutil.copytree(made, folder, dirs_exist_ok=True)


def archive(folder: Path, path: Path) -> str:
    """Packs a folder, the same bytes for the same files; returns the SHA-256 in hex."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for file in sorted(each for each in folder.rglob("*") if each.is_file()):
            info = tarfile.TarInfo(file.relative_to(folder).as_posix())
            info.size = file.stat().st_size
            info.mode = 0o755 if file.name == PROGRAM else 0o644
            with file.open("rb") as content:
                tar.addfile(info, content)
    path.write_bytes(packed.getvalue())
    return hashlib.sha256(packed.getvalue()).hexdigest()


def manifest(version: str, url: str, digests: dict[tuple[str, str], str]) -> dict[str, Any]:
    """What Krew's index holds: where each platform's archive is, and its SHA-256 in hex."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "headrace"},
        "spec": {
            "version": f"v{version}",
            "homepage": url,
            "shortDescription": "Inspect and roll out Headrace model endpoints",
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": system, "arch": machine}},
                    "uri": f"{url}/releases/download/v{version}/{file_name(system, machine)}",
                    "sha256": digest,
                    "bin": PROGRAM,
                }
                for (system, machine), digest in digests.items()
            ],
        },
    }


def file_name(system: str, machine: str) -> str:
    """The name of a platform's archive."""
    return f"{PROGRAM}-{system}-{machine}.tar.gz"


def main(arguments: list[str]) -> int:
    """Builds all of it; returns the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: .venv/bin/python -P .ci/krew.py URL\n")
        return 2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    wheel = ROOT / "dist" / f"headrace-{version}-py3-none-any.whl"
    out = ROOT / "dist" / "krew"
    out.mkdir(parents=True, exist_ok=True)
    digests = {}
    for (system, machine), platform in PLATFORMS.items():
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            packages(wheel, platform, folder / "packages")
            (folder / "packages" / "__main__.py").write_text(MAIN, encoding="utf-8")
            (folder / PROGRAM).write_text(LAUNCHER, encoding="utf-8")
            shutil.copy(ROOT / "LICENSE", folder)
            path = out / file_name(system, machine)
            digests[system, machine] = archive(folder, path)
        sys.stdout.write(f"{path}: {path.stat().st_size / 1e6:.1f} MB\n")
    made_of = manifest(version, arguments[0].rstrip("/"), digests)
    text = yaml.safe_dump(made_of, sort_keys=False, width=100)
    (out / "headrace.yaml").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

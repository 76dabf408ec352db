"""Doubles of a release's programs that reach a registry, PyPI or GitHub: each refuses what the real
one would if something is missing that must be there before, and writes down what it was asked.

Run as ``python release_programs.py PROGRAM STATE JOB WORDS...``; STATE is a JSON file, ``{"calls":
[[JOB, PROGRAM, WORDS]], "built": [IMAGE], "registry": {NAME: DIGEST}}``.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# Of base images, which no workflow pushes.
OTHERS = ("docker.io/library/", "nvcr.io/nvidia/")


def digest(name: str) -> str:
    """The digest under which a name is pushed."""
    return "sha256:" + hashlib.sha256(name.encode()).hexdigest()


def option(words: list[str], name: str) -> str:
    """The word that follows an option."""
    return words[words.index(name) + 1]


def need(holds: object, why: str) -> None:
    """Ends the program, as the real one would, unless ``holds``."""
    if not holds:
        sys.exit(why)


def docker(state: dict[str, Any], words: list[str]) -> None:
    match words:
        case ["info"]:
            pass
        case ["login", *_]:
            need(sys.stdin.read().strip(), "no password")
        case ["build", "-t", name, *_]:
            state["built"].append(name)
        case ["push", *_, name]:
            need(name in state["built"], f"no such image: {name}")
            state["registry"][name] = digest(name)
        case ["buildx", "imagetools", "create", "--tag", name, *sources]:
            need(sources, "no source")
            for source in sources:
                need(source in state["registry"], f"not found: {source}")
            state["registry"][name] = digest(name)
        case ["buildx", "imagetools", "inspect", name, "--format", "{{.Manifest.Digest}}"]:
            need(name in state["registry"] or name.startswith(OTHERS), f"not found: {name}")
            sys.stdout.write(digest(name) + "\n")
        case _:
            sys.exit(f"docker does not know: {words}")


def cosign(state: dict[str, Any], words: list[str]) -> None:
    need(words[0] in ("sign", "attest") and "--yes" in words, "nobody is there to answer")
    name, _, signed = words[-1].partition("@")
    pushed = [one for one, its in state["registry"].items() if its == signed]
    need(any(one.startswith(f"{name}:") for one in pushed), f"not found: {words[-1]}")
    if words[0] == "attest":
        json.loads(Path(option(words, "--predicate")).read_text())


def helm(state: dict[str, Any], words: list[str]) -> None:
    match words:
        case ["package", folder, "--destination", out]:
            lines = Path(folder, "Chart.yaml").read_text().splitlines()
            fields = dict(
                line.split(": ", 1) for line in lines if line[:1].isalpha() and ": " in line
            )
            Path(out).mkdir(exist_ok=True)
            Path(out, f"{fields['name']}-{fields['version']}.tgz").write_text("chart")
        case ["registry", "login", *_]:
            need(sys.stdin.read().strip(), "no password")
        case ["push", file, url]:
            need(Path(file).is_file() and url.startswith("oci://"), f"not found: {file}")
            need(not os.environ.get("PUSH_FAILS"), "the registry is away")
            base, version = Path(file).stem.split("-", 1)
            name = f"{url.removeprefix('oci://')}/{base}:{version}"
            state["registry"][name] = digest(name)
            sys.stdout.write(f"Pushed: {name}\nDigest: {digest(name)}\n")
        case _:
            sys.exit(f"helm does not know: {words}")


def gh(_state: dict[str, Any], words: list[str]) -> None:
    need(words[:2] == ["release", "create"] and "--verify-tag" in words, f"unknown: {words}")
    files = words[words.index("--notes-file") + 1 :]
    need(all(Path(file).is_file() for file in files), f"not all there: {files}")
    need(os.environ.get("GH_TOKEN"), "not signed in")


def python(_state: dict[str, Any], words: list[str]) -> None:
    if words[:2] == ["-m", "venv"]:
        environment(Path(words[2]))
        return
    sys.exit(subprocess.run([sys.executable, *words], check=False).returncode)


def pip(_state: dict[str, Any], words: list[str]) -> None:
    need("--require-hashes" in words and Path(option(words, "-r")).is_file(), f"refused: {words}")


def uv(_state: dict[str, Any], words: list[str]) -> None:
    if words[0] == "publish":
        need(Path(words[-1]).is_file(), f"not found: {words[-1]}")
        need(option(words, "--trusted-publishing") == "always", "not signed in")
        return
    need(words[:2] == ["pip", "install"], f"uv does not know: {words}")
    locked = "--require-hashes" in words
    source = Path(option(words, "-r") if locked else words[-1])
    need(source.is_file() and "--no-deps" in words, f"not found: {source}")
    made = Path(option(words, "--target"), source.stem.replace(".", "_"))
    made.mkdir(parents=True)
    (made / f"{option(words, '--python-version')}.so").write_text("compiled")


def make(_state: dict[str, Any], words: list[str]) -> None:
    """Makes images for real, by the double of docker; of the rest what stands there afterwards."""
    real = "/usr/bin/make"
    if words[0] == "images":
        sys.exit(subprocess.run([real, *words], check=False).returncode)
    subprocess.run([real, "-n", *words], check=True, stdout=subprocess.DEVNULL)
    for target in words:
        if target == "setup":
            environment(Path(".venv"))
        elif target == "wheel":
            Path("dist").mkdir(exist_ok=True)
            Path("dist", f"headrace-{os.environ['VERSION_OF_ALL']}-py3-none-any.whl").write_text(
                "zip"
            )
        elif target == "sbom":
            Path("dist", "sbom").mkdir(parents=True)
            for name in os.environ["SBOMS"].split():
                Path("dist", "sbom", f"{name}.cdx.json").write_text("{}")


def environment(folder: Path) -> None:
    """A virtual environment with the doubles of its programs."""
    (folder / "bin").mkdir(parents=True)
    for program in ("pip", "uv"):
        (folder / "bin" / program).symlink_to(Path(os.environ["DOUBLES"], program))
    (folder / "bin" / "python").symlink_to(Path(os.environ["DOUBLES"], "python"))


def main() -> None:
    program, path, job, *words = sys.argv[1:]
    state = json.loads(Path(path).read_text())
    state["calls"].append([job, program, words])
    Path(path).write_text(json.dumps(state))
    {f.__name__: f for f in (docker, cosign, helm, gh, python, pip, uv, make)}[program](
        state, words
    )
    if program in ("docker", "helm"):
        Path(path).write_text(json.dumps(state))


if __name__ == "__main__":
    main()

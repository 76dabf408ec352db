"""Kafka's jars for its image, each held to the SHA-256 that ``jars.txt`` names.

``jars.py fetch FOLDER`` has jgo download them; ``docker/Dockerfile`` calls it. ``jars.py lock
JGO_LOCK`` prints a new ``jars.txt`` of the file ``jgo.lock.toml`` that jgo leaves beside the jars
it resolved, for the coordinates in ``headrace/stack/kafka.py``.
"""

import argparse
import hashlib
import sys
import tempfile
import tomllib
from pathlib import Path

import jgo

LIST = Path(__file__).with_name("jars.txt")


def main() -> int:
    """Fetches or locks; returns the exit status."""
    parser = argparse.ArgumentParser(prog="jars.py", description="Kafka's jars, by their hashes.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch").add_argument("folder", type=Path)
    commands.add_parser("lock").add_argument("jgo_lock", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "lock":
        sys.stdout.write(locked(arguments.jgo_lock.read_text(encoding="utf-8")))
        return 0
    fetch(LIST.read_text(encoding="utf-8"), arguments.folder)
    return 0


def locked(jgo_lock: str) -> str:
    """The text of ``jars.txt``: a line a jar, its SHA-256 and its Maven coordinates."""
    jars = sorted(tomllib.loads(jgo_lock)["dependencies"], key=coordinates)
    return "".join(f"{jar['sha256']}  {coordinates(jar)}\n" for jar in jars)


def file_of(name: str) -> str:
    """The file of a jar of these coordinates."""
    _, artifact, version = name.split(":")
    return f"{artifact}-{version}.jar"


def coordinates(jar: dict[str, str]) -> str:
    """A jar's name on Maven Central: group, artifact and version."""
    return f"{jar['groupId']}:{jar['artifactId']}:{jar['version']}"


def fetch(lines: str, folder: Path) -> None:
    """Downloads the jars of ``jars.txt`` into ``folder``; raises ``SystemExit``."""
    locks = {name: digest for digest, name in map(str.split, lines.splitlines())}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:
        # More may come than was locked: asked for by name, a jar brings what another left out.
        environment = jgo.build("+".join(locks), cache_dir=Path(cache))
        found = {jar.name: jar for jar in environment.all_jars}
        for name, digest in locks.items():
            file = file_of(name)
            content = found[file].read_bytes() if file in found else b""
            if hashlib.sha256(content).hexdigest() != digest:
                sys.exit(f"{file} can't be had as docker/kafka/jars.txt has it.")
            (folder / file).write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())

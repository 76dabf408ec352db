"""Kafka's jars for its image, each held to the SHA-256 that ``jars.txt`` names.

``jars.py fetch FOLDER`` downloads them from Maven Central; ``docker/Dockerfile`` calls it.
``jars.py lock JGO_LOCK`` prints a new ``jars.txt`` of the file ``jgo.lock.toml`` that jgo leaves
beside the jars it resolved, for the coordinates in ``headrace/stack/kafka.py``. It resolves nothing
itself, and needs nothing but Python.
"""

import argparse
import hashlib
import sys
import tomllib
import urllib.request
from pathlib import Path

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
LIST = Path(__file__).with_name("jars.txt")
TIMEOUT_SECONDS = 60.0


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
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for line in LIST.read_text(encoding="utf-8").splitlines():
        digest, path = line.split()
        fetch(path, digest, arguments.folder)
    return 0


def locked(jgo_lock: str) -> str:
    """The text of ``jars.txt``: a line a jar, its SHA-256 and its path on Maven Central."""
    jars = tomllib.loads(jgo_lock)["dependencies"]
    return "".join(f"{jar['sha256']}  {path_of(jar)}\n" for jar in sorted(jars, key=path_of))


def path_of(jar: dict[str, str]) -> str:
    """Where a jar lies on Maven Central."""
    group, artifact, version = jar["groupId"], jar["artifactId"], jar["version"]
    return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


def fetch(path: str, digest: str, folder: Path) -> None:
    """Downloads one jar.

    Raises:
        OSError: it can't be had.
        SystemExit: it is not the jar that was locked.
    """
    url = f"{MAVEN_CENTRAL}/{path}"
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as reply:  # noqa: S310 - https
        content = reply.read()
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        sys.exit(f"{url} has SHA-256 {found}, not {digest} as docker/kafka/jars.txt says.")
    (folder / Path(path).name).write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())

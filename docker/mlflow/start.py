"""Becomes MLflow: runs ``python -m`` on the words that follow, on SQLite and files in a volume.

Looks first whether the database and the folder of artifacts can be written to, and ends with a
sentence where they can't: the server itself starts without them, answers ``/health``, and lets
every other question wait. Both places are those that MLflow reads from its environment. A
database elsewhere (another scheme than ``sqlite``) is left to MLflow.
"""

import os
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

_SQLITE = "sqlite:///"
_LOCK_SECONDS = 0.0  # another's lock is no fault: who holds it could write


def main() -> None:
    """Runs the server in this process' place; ends with 1 where its volume is no good."""
    wrong = fault(os.environ)
    if wrong is not None:
        sys.exit(wrong)
    command = [sys.executable, "-P", "-m", *sys.argv[1:]]
    os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted


def fault(environment: Mapping[str, str]) -> str | None:
    """A sentence on what of the volume can't be written to; None where all can."""
    database = environment.get("_MLFLOW_SERVER_FILE_STORE", "")
    artifacts = environment.get("_MLFLOW_SERVER_ARTIFACT_DESTINATION", "")
    folders = [Path(artifacts)] if artifacts.startswith("/") else []
    if database.startswith(_SQLITE):
        folders.insert(0, Path(database.removeprefix(_SQLITE)).parent)
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            return _sentence(folder, error.strerror or str(error))
    if database.startswith(_SQLITE):
        return _database_fault(Path(database.removeprefix(_SQLITE)))
    return None


def _database_fault(file: Path) -> str | None:
    """What keeps SQLite from writing to ``file``; makes it where there is none."""
    try:
        with closing(sqlite3.connect(file, timeout=_LOCK_SECONDS)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.rollback()
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return None
        return _sentence(file, str(error))
    return None


def _sentence(place: Path, reason: str) -> str:
    return (
        f"MLflow can't write to {place} as user {os.getuid()} ({reason}): give it, with the chart's"
        f" mlflow.embedded.persistence, a volume that group {os.getgid()} may write to."
    )


if __name__ == "__main__":
    main()

"""MLflow's database held by somebody else's transaction."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from chaos.world import NotHereError, World

LOCK_SECONDS = 30.0


@contextmanager
def locked(world: World, target: str) -> Iterator[frozenset[str]]:
    """Holds the lock that every reader and writer needs."""
    path = world.home / target / "mlflow.db"
    with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as database:
        try:
            database.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise NotHereError(f"the database could not be locked: {error}") from error
        try:
            yield frozenset()
        finally:
            database.execute("ROLLBACK")

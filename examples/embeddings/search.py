"""A search whose index names its vector space, so that no search sees vectors of two.

An index is built of one space, and asked with vectors of that space only: the header
``x-headrace-space`` asks for them, and every answer says which one it is of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import httpx
import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


class Store(Protocol):
    """What a vector store has to do: faiss, Qdrant and pgvector in ``stores.py``."""

    def search(self, vector: Vectors, k: int) -> list[int]:
        """Ids of the ``k`` vectors of the largest inner product with ``[d]``, largest first."""
        ...


class MixedSpacesError(Exception):
    """A vector of another space came: the gateway never answers so."""


@dataclass(frozen=True)
class SpaceIndex:
    """Documents' vectors in a store, and the space that all of them are of."""

    space: str
    store: Store


class Embedder:
    """Vectors of an endpoint, with their space."""

    def __init__(self, gateway_url: str, endpoint: str) -> None:
        self._client = httpx.Client(base_url=gateway_url, timeout=60, trust_env=False)
        self._endpoint = endpoint

    def __enter__(self) -> Self:
        """Keeps its connection until the end."""
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def embed(self, texts: Sequence[str], space: str | None) -> tuple[Vectors, str]:
        """Vectors of length 1, float32 ``[texts, d]``; of ``space``, or of the current one.

        Raises:
            MixedSpacesError: the answer is of another space.
            httpx.HTTPStatusError: among others 503 while nobody has the space.
        """
        headers = {} if space is None else {"x-headrace-space": space}
        body = {"model": self._endpoint, "input": list(texts)}
        answer = self._client.post("/v1/embeddings", json=body, headers=headers)
        answer.raise_for_status()
        found = answer.headers["x-headrace-space"]
        if space not in {None, "next", found}:
            raise MixedSpacesError(f"asked for {space}, and got {found}")
        vectors = np.array([each["embedding"] for each in answer.json()["data"]], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), found


class Search:
    """What callers ask. ``index`` may be replaced at any time: each search reads it once."""

    def __init__(self, embedder: Embedder, index: SpaceIndex) -> None:
        self._embedder = embedder
        self.index = index

    def find(self, query: str, k: int = 10) -> tuple[list[int], str]:
        """Places of the nearest documents, and the space that they were found in."""
        index = self.index
        vectors, space = self._embedder.embed([query], index.space)
        return index.store.search(vectors[0], k), space

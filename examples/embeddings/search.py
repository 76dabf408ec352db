"""A search whose index names its vector space, so that no search sees vectors of two.

An index is built of one space, and asked with vectors of that space only: the header
``x-headrace-space`` asks for them, and every answer says which one it is of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import httpx
import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
_TEXTS = 64  # a request


class FlatIndex:
    """Exact search by inner product, with the interface of ``faiss.IndexFlatIP``."""

    def __init__(self, d: int) -> None:
        self.d = d
        self._vectors: Vectors = np.zeros((0, d), np.float32)

    @property
    def ntotal(self) -> int:
        """How many vectors it holds."""
        return len(self._vectors)

    def add(self, x: Vectors) -> None:
        """Takes vectors, ``[count, d]``; their ids are the places in which they came."""
        self._vectors = np.concatenate([self._vectors, x])

    def search(self, x: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        """Products and ids of the ``k`` nearest, the nearest first, each ``[queries, k]``."""
        products = x @ self._vectors.T
        found = np.argsort(-products, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(products, found, axis=1), found


class MixedSpacesError(Exception):
    """A vector of another space came: the gateway never answers so."""


@dataclass(frozen=True)
class SpaceIndex:
    """Documents' vectors, and the space that all of them are of."""

    space: str
    vectors: FlatIndex


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
            MixedSpacesError: the answers are of several spaces.
            httpx.HTTPStatusError: among others 503 while nobody has the space.
        """
        made, spaces = [], set()
        headers = {} if space is None else {"x-headrace-space": space}
        for at in range(0, len(texts), _TEXTS):
            body = {"model": self._endpoint, "input": list(texts[at : at + _TEXTS])}
            answer = self._client.post("/v1/embeddings", json=body, headers=headers)
            answer.raise_for_status()
            spaces.add(answer.headers["x-headrace-space"])
            made += [each["embedding"] for each in answer.json()["data"]]
        if len(spaces) != 1 or space not in {None, "next", *spaces}:
            raise MixedSpacesError(f"asked for {space}, and got {spaces}")
        vectors = np.array(made, np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), spaces.pop()

    def index(self, documents: Sequence[str], space: str | None = None) -> SpaceIndex:
        """All documents under one space: the current one, or ``next``."""
        vectors, found = self.embed(documents, space)
        made = FlatIndex(vectors.shape[1])
        made.add(vectors)
        return SpaceIndex(found, made)


class Search:
    """What callers ask. ``index`` may be replaced at any time: each search reads it once."""

    def __init__(self, embedder: Embedder, index: SpaceIndex) -> None:
        self._embedder = embedder
        self.index = index

    def find(self, query: str, k: int = 10) -> tuple[list[int], str]:
        """Places of the nearest documents, and the space that they were found in."""
        index = self.index
        vectors, space = self._embedder.embed([query], index.space)
        if space != index.space:
            raise MixedSpacesError(f"{space} asked an index of {index.space}")
        _, found = index.vectors.search(vectors, k)
        return found[0].tolist(), space

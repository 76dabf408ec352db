"""The three kinds of vectors, as gateways give them, as files hold them, and how near two are.

A dense vector is the column ``vector``; a sparse one ``indices`` and ``values``, of the tokens
whose weight is not 0; vectors of tokens are ``vectors``, a list of lists. All numbers are float32.
"""

import base64
import json
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from contracts.tasks import Task
from headrace.errors import RequestFailedError

Numbers: TypeAlias = "array[float]"  # of the type "f"


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Weights by the tokens' indices, in their order."""

    indices: "array[int]"
    values: Numbers


Vector: TypeAlias = "Numbers | SparseVector | list[Numbers]"


class VectorKind:
    """One kind: dense vectors, unless a subclass says otherwise.

    Attributes:
        columns: of a file, beside ``id``.
        route: of an endpoint, for vectors as lists of numbers.
    """

    columns: tuple[str, ...] = ("vector",)
    route = "embed"

    def make_request(self, endpoint: str, texts: list[str]) -> tuple[str, dict[str, Any]]:
        """The path and body of a request for the vectors of texts."""
        if self.route == "embed":  # numbers in base64 are shorter
            body = {"model": endpoint, "input": texts, "encoding_format": "base64"}
            return "/v1/embeddings", body
        return f"/endpoints/{endpoint}/{self.route}", {"inputs": texts}

    def read_answer(self, answer: Any) -> list[Vector]:  # noqa: ANN401 - JSON
        """The vectors in an answer; raises ``ValueError``, ``KeyError`` or ``TypeError``."""
        return [array("f", base64.b64decode(each["embedding"])) for each in answer["data"]]

    def width(self, vector: Any) -> int:  # noqa: ANN401 - of this kind
        """What is the same of all vectors of a space; 0 if that can't be seen."""
        return len(vector)

    def line(self, vector: Any) -> str:  # noqa: ANN401 - of this kind
        """Its fields in a line of JSON."""
        return f'"vector": {_numbers(vector)}'

    def read_columns(self, fields: Sequence[Any]) -> Vector:
        """A vector, of what a file has in the columns."""
        return array("f", fields[0])

    def arrays(self, vectors: Sequence[Any]) -> list[Any]:
        """The columns in Arrow's form."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        return [pa.FixedSizeListArray.from_arrays(_floats(vectors), len(vectors[0]))]

    def similarity(self, kept: Any, now: Any) -> float:  # noqa: ANN401 - of this kind
        """1 for equal vectors, less the farther they are from each other: the cosine."""
        return _cosine(kept, now)


class Sparse(VectorKind):
    """Weights of tokens, compared by their dot product as a share of their lengths."""

    columns = ("indices", "values")
    route = "embed_sparse"

    def read_answer(self, answer: Any) -> list[Vector]:  # noqa: ANN401
        """See ``VectorKind``."""
        return [
            SparseVector(
                array("i", [one["index"] for one in each]),
                array("f", [one["value"] for one in each]),
            )
            for each in answer
        ]

    def width(self, vector: Any) -> int:  # noqa: ANN401, ARG002
        """Only the vocabulary is, which no vector shows."""
        return 0

    def line(self, vector: Any) -> str:  # noqa: ANN401
        """See ``VectorKind``."""
        return (
            f'"indices": {json.dumps(vector.indices.tolist())}, "values": {_numbers(vector.values)}'
        )

    def read_columns(self, fields: Sequence[Any]) -> Vector:
        """See ``VectorKind``."""
        return SparseVector(array("i", fields[0]), array("f", fields[1]))

    def arrays(self, vectors: Sequence[Any]) -> list[Any]:
        """See ``VectorKind``."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        places = array("i")
        for each in vectors:
            places.extend(each.indices)
        starts = _starts([len(each.indices) for each in vectors])
        indices = pa.Array.from_buffers(pa.int32(), len(places), [None, pa.py_buffer(places)])
        values = _floats([each.values for each in vectors])
        return [pa.ListArray.from_arrays(starts, each) for each in (indices, values)]

    def similarity(self, kept: Any, now: Any) -> float:  # noqa: ANN401
        """See ``VectorKind``."""
        one, other = (dict(zip(each.indices, each.values, strict=True)) for each in (kept, now))
        product = sum(value * other.get(index, 0.0) for index, value in one.items())
        norms = math.hypot(*one.values()) * math.hypot(*other.values())
        return product / norms if norms else float(one == other)


class Tokens(VectorKind):
    """A vector for each token, compared by MaxSim: the mean of each one's nearest cosine."""

    columns = ("vectors",)
    route = "embed_all"

    def read_answer(self, answer: Any) -> list[Vector]:  # noqa: ANN401
        """See ``VectorKind``."""
        return [[array("f", one) for one in each] for each in answer]

    def width(self, vector: Any) -> int:  # noqa: ANN401
        """Of each token's."""
        sizes = {len(each) for each in vector}
        return sizes.pop() if len(sizes) == 1 else -len(sizes)

    def line(self, vector: Any) -> str:  # noqa: ANN401
        """See ``VectorKind``."""
        return f'"vectors": [{", ".join(map(_numbers, vector))}]'

    def read_columns(self, fields: Sequence[Any]) -> Vector:
        """See ``VectorKind``."""
        return [array("f", each) for each in fields[0]]

    def arrays(self, vectors: Sequence[Any]) -> list[Any]:
        """See ``VectorKind``."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        flat = [each for vector in vectors for each in vector]
        of_tokens = pa.ListArray.from_arrays(_starts([len(each) for each in flat]), _floats(flat))
        return [pa.ListArray.from_arrays(_starts([len(each) for each in vectors]), of_tokens)]

    def similarity(self, kept: Any, now: Any) -> float:  # noqa: ANN401
        """See ``VectorKind``. A token more on either side makes it less, too."""
        if len(kept) != len(now) or not now:
            return float(len(kept) == len(now))
        return sum(max(_cosine(each, other) for other in kept) for each in now) / len(now)


class KindName(StrEnum):
    """A kind of vectors, as people name it."""

    DENSE = "dense"
    SPARSE = "sparse"
    TOKENS = "tokens"


DENSE, SPARSE, TOKENS = VectorKind(), Sparse(), Tokens()
_BY_NAME = {KindName.DENSE: DENSE, KindName.SPARSE: SPARSE, KindName.TOKENS: TOKENS}
# Others give none.
_BY_TASK: Mapping[str, tuple[KindName, ...]] = {
    Task.TEXT_EMBEDDING: (KindName.DENSE,),
    Task.SPARSE_EMBEDDING: (KindName.SPARSE,),
    Task.MULTI_VECTOR_EMBEDDING: (KindName.TOKENS,),
    Task.HYBRID_EMBEDDING: tuple(KindName),
}


def gives_several(task: str) -> bool:
    """Whether an endpoint gives several kinds of vectors for each text."""
    return len(_BY_TASK.get(task, ())) > 1


def choose_kind(endpoint: str, task: str, name: KindName | None) -> VectorKind:
    """The kind that an endpoint gives, or that of several which is named.

    Raises:
        RequestFailedError: it gives none, or not that one, or several and none is named.
    """
    given = _BY_TASK.get(task, ())
    if name is None and len(given) > 1:
        names = ", ".join(given)
        raise RequestFailedError(f"{endpoint} gives several kinds: choose --kind of {names}.")
    if not given or name not in (None, *given):
        raise RequestFailedError(f"{endpoint} does {task}: it gives no {name or 'vectors'}.")
    return _BY_NAME[name or given[0]]


def kind_in(columns: Iterable[str]) -> VectorKind:
    """The kind that a file with these columns holds; raises ``ValueError``."""
    found = set(columns)
    for kind in (DENSE, SPARSE, TOKENS):
        if found.issuperset(kind.columns):
            return kind
    raise ValueError(f"it holds no vectors but {', '.join(sorted(found))}")


def kind_of(vector: Vector) -> VectorKind:
    """The kind of a vector."""
    if isinstance(vector, SparseVector):
        return SPARSE
    return TOKENS if isinstance(vector, list) else DENSE


def _numbers(numbers: Iterable[float]) -> str:
    """JSON; nine digits are enough for each float32."""
    return f"[{', '.join([f'{number:.9g}' for number in numbers])}]"


def _floats(vectors: Iterable[Sequence[float]]) -> Any:  # noqa: ANN401 - of an extra
    import pyarrow as pa  # noqa: PLC0415 - an extra

    flat = array("f")
    for vector in vectors:
        flat.extend(vector)
    return pa.FloatArray.from_buffers(pa.float32(), len(flat), [None, pa.py_buffer(flat)])


def _starts(sizes: Iterable[int]) -> Any:  # noqa: ANN401 - of an extra
    import pyarrow as pa  # noqa: PLC0415 - an extra

    starts = array("i", [0])
    for size in sizes:
        starts.append(starts[-1] + size)
    return pa.Array.from_buffers(pa.int32(), len(starts), [None, pa.py_buffer(starts)])


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    norms = math.hypot(*one) * math.hypot(*other)
    return float(product / norms) if norms else float(list(one) == list(other))

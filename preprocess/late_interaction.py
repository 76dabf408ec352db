"""Late interaction (ColBERT): rows of queries and of documents, and the score of their vectors.

A query is filled up to a number of tokens, if its model was trained so; vectors of some tokens of a
document are left out. Of a pair, query and document are rows of their own, and documents with one
query share its row. It knows no model and no transport.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.manifest import QueryDocumentSpec, TokenizerSpec
from contracts.tasks import QUERY
from preprocess.encoder import EncodedTexts, Sides, Statistics, TextEncoder

Values = NDArray[np.float32]

# Of a document without any vector, as sentence-transformers has it: below all others.
_NOTHING_TO_MATCH = -1e9


class QueryDocumentEncoder(TextEncoder):
    """The tokeniser of one package whose model reads queries and documents apart."""

    def __init__(self, tokenizer_json: bytes, spec: TokenizerSpec) -> None:
        super().__init__(tokenizer_json, spec)
        most = spec.max_tokens
        self._sides = spec.sides or QueryDocumentSpec(query_tokens=most, document_tokens=most)
        self._left_out = frozenset(self._sides.left_out)
        self._only = frozenset(self._sides.only)

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> EncodedTexts:
        """Documents, or queries each with its document; see ``TextEncoder.encode``."""
        return self.encode_sided(texts, pairs, queries=False)

    def encode_prompted(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        prompt_name: str | None = None,
    ) -> EncodedTexts:
        """The same with the prompt of its side before each text.

        Args:
            texts: queries if there are pairs, or if the prompt is called so.
            pairs: the document of each query; its prompt is the usual one.
            prompt_name: of texts without pairs.

        Raises:
            InvalidTextError, UnknownPromptError: see ``TextEncoder``.
        """
        if pairs is None:
            is_query = prompt_name == QUERY
            return self.encode_sided(self.prompted(texts, prompt_name), queries=is_query)
        asked = QUERY if QUERY in self._spec.prompts else None
        return self.encode_sided(self.prompted(texts, asked), self.prompted(pairs), queries=True)

    def encode_sided(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, queries: bool
    ) -> EncodedTexts:
        """Texts of one side, or queries each with its document; without any prompt.

        Raises:
            InvalidTextError: a text with a lone surrogate.
            ValueError: not as many documents as queries.
        """
        asked = [queries] * len(texts)
        sided = list(texts)
        owners = list(range(len(texts)))
        if pairs is not None:
            sided, asked, owners = _rows_of_pairs(texts, pairs)
        spec = self._sides
        rows = []
        for at, text in enumerate(sided):
            is_query = asked[at]
            most = spec.query_tokens if is_query else spec.document_tokens
            row = self._row(owners[at], text, most)
            lacking = spec.filled_to - len(row.ids)
            if is_query and spec.fill_id is not None and lacking > 0:
                types = None if row.type_ids is None else [*row.type_ids, *[0] * lacking]
                row = row._replace(ids=[*row.ids, *[spec.fill_id] * lacking], type_ids=types)
            rows.append(row if pairs is None else row._replace(seen=None))
        found = self._gather(rows)
        left_out = [
            self._places_left_out(row.ids, is_query=asked[at]) for at, row in enumerate(rows)
        ]
        statistics = list(found.statistics())
        if pairs is not None:
            statistics = _of_pairs(statistics, asked)
        return self._gather(rows, Sides(asked, left_out, statistics, spec.mean))

    def _places_left_out(self, ids: list[int], *, is_query: bool) -> list[int]:
        spec = self._sides
        skips = spec.left_out_of_queries if is_query else spec.left_out_of_documents
        only = self._only if not is_query else frozenset()
        if not only and not (skips and self._left_out):
            return []
        return [
            at
            for at, token in enumerate(ids)
            if (skips and token in self._left_out) or (only and token not in only)
        ]


def _rows_of_pairs(
    queries: Sequence[str], documents: Sequence[str]
) -> tuple[list[str], list[bool], list[int]]:
    """Texts of all rows, which of them are queries, and which pair each is of."""
    texts: list[str] = []
    asked: list[bool] = []
    owners: list[int] = []
    last: str | None = None
    for at, (query, document) in enumerate(zip(queries, documents, strict=True)):
        if query is not last:  # the same object where one query has many documents
            last = query
            texts.append(query)
            asked.append(True)
            owners.append(at)
        texts.append(document)
        asked.append(False)
        owners.append(at)
    return texts, asked, owners


def _of_pairs(rows: list[Statistics], asked: list[bool]) -> list[Statistics]:
    found: list[Statistics] = []
    query = rows[0] if rows else (0, 0, 0, False)
    for row, is_query in zip(rows, asked, strict=True):
        if is_query:
            query = row
        else:
            sums = (query[0] + row[0], query[1] + row[1], query[2] + row[2], query[3] or row[3])
            found.append(sums)
    return found


def answered_vectors(encoded: EncodedTexts, values: Values) -> list[Values]:
    """Of each row ``[tokens, dimension]``, without those of tokens that are left out.

    Args:
        encoded: the rows.
        values: ``[tokens of all rows, dimension]``.
    """
    found: list[Values] = []
    start = 0
    for at, tokens in enumerate(encoded.tokens):
        row: Values = values[start : start + tokens]
        left_out = encoded.sides.left_out[at] if encoded.sides is not None else []
        found.append(np.delete(row, left_out, axis=0) if left_out else row)
        start += tokens
    return found


def vectors_of_texts(encoded: EncodedTexts, values: Values) -> list[Values]:
    """The same of each text; of a pair, of its document."""
    rows = answered_vectors(encoded, values)
    if encoded.sides is None or all(encoded.sides.queries):
        return rows
    return [row for row, asks in zip(rows, encoded.sides.queries, strict=True) if not asks]


def scores_of_pairs(encoded: EncodedTexts, values: Values) -> Values:
    """MaxSim of each pair, float32 ``[pairs]``: see ``maxsim``."""
    sides = encoded.sides
    if sides is None:
        raise ValueError("a score needs a query and a document")
    found: list[float] = []
    query: Values | None = None
    for row, is_query in zip(answered_vectors(encoded, values), sides.queries, strict=True):
        if is_query:
            query = row
        elif query is None:
            raise ValueError("a document is scored by a query")
        else:
            found.append(maxsim(query, row, mean=sides.mean))
    scores: Values = np.array(found, np.float32)
    return scores


def maxsim(query: Values, document: Values, *, mean: bool = False) -> float:
    """The sum, over the query's vectors, of the largest product with any of the document's.

    Args:
        query: ``[tokens, dimension]``.
        document: the same.
        mean: whether it is divided by the number of the query's vectors.
    """
    if not len(document):
        score = _NOTHING_TO_MATCH
    elif not len(query):
        score = 0.0
    else:
        score = float((query @ document.T).max(axis=1).sum())
    return score / max(1, len(query)) if mean else score


def mean_distance(ours: Values, theirs: Values) -> float:
    """How far a text's token vectors of length 1 are from another version's, 0 to 1.

    (1 - s) / 2, where s is the mean cosine: of the same token, or of the nearest of the other
    version's if they are not as many.
    """
    if not len(ours) or not len(theirs):
        return float(len(ours) != len(theirs))
    if len(ours) == len(theirs):
        return float(1 - np.einsum("td,td->t", ours, theirs).mean()) / 2
    return float(1 - (ours @ theirs.T).max(axis=1).mean()) / 2


def count_filling(tokens: Sequence[int], dimension: int) -> int:
    """The zeros that ``fill_to_longest`` makes at most, by the tokens of each text."""
    return dimension * (max(tokens, default=0) * len(tokens) - sum(tokens))


def fill_to_longest(vectors: Sequence[Values], dimension: int) -> Values:
    """Token vectors of texts as ``[texts, most tokens, dimension]``, zeros behind shorter ones."""
    longest = max(map(len, vectors), default=0)
    filled: Values = np.zeros((len(vectors), longest, dimension), np.float32)
    for row, each in zip(filled, vectors, strict=True):
        row[: len(each)] = each
    return filled

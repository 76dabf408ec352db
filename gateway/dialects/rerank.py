"""Reranking: documents in the order in which they answer a query.

- ``POST /v1/rerank`` takes the requests of Jina's and Cohere's clients, with the endpoint's name as
  ``model``; ``POST /v2/rerank`` is the same for Cohere's newer client.
- ``POST /endpoints/{endpoint}/rerank`` is Text Embeddings Inference's ``/rerank``: its clients take
  ``/endpoints/{endpoint}`` as their base URL.

A query with N documents is N rows, one a pair; to late interaction it is a row, and each document
one. Each is batched by its own length, with rows of other requests. Documents of equal scores keep
the order in which they were sent.
"""

from functools import partial
from typing import Annotated, Literal, NotRequired

import msgspec
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import RELEVANCE
from gateway.calls import Answer, EndpointView, Query
from gateway.dialects.described import prediction_operation
from gateway.dialects.front import Front, answer_headers, endpoint_in, enter_named, require_kind
from gateway.dialects.parameters import TolerantDecoder
from gateway.dialects.reading import check_texts, decode_counted
from gateway.errors import InvalidInputError
from gateway.http.body import BodyReader
from gateway.http.error_replies import ErrorForm
from gateway.http.messages import Reply, Request
from gateway.http.router import Route
from gateway.request_context import RequestContext
from preprocess.tasks import HEADS


class Document(msgspec.Struct, frozen=True):
    """A document as an object; other fields than its text have no meaning here."""

    text: str


class RerankRequest(msgspec.Struct, frozen=True):
    """Jina's and Cohere's request; other fields have no meaning here.

    ``return_documents`` is off where it is not set, as Cohere has it: the answer would repeat the
    request.
    """

    model: str
    query: str
    documents: Annotated[list[str | Document], msgspec.Meta(min_length=1)]
    top_n: Annotated[int, msgspec.Meta(ge=1)] | None = None
    return_documents: bool | None = None


class DocumentText(TypedDict):
    """A document of the request."""

    text: str


class RerankResult(TypedDict):
    """One document: its place in the request, and the probability that it answers the query.

    Of late interaction the score is MaxSim, which is no probability.
    """

    index: int
    relevance_score: float
    document: NotRequired[DocumentText]


class RerankUsage(TypedDict):
    """Tokens of all pairs."""

    prompt_tokens: int
    total_tokens: int


class RerankResponse(TypedDict):
    """The best documents, best first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: RerankUsage


class TeiRerankRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text Embeddings Inference's request.

    Pairs that are too long are cut, from the right, unless ``truncate`` is false: then the request
    is refused with 413.
    """

    query: str
    texts: Annotated[list[str], msgspec.Meta(min_length=1)]
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"


class TeiRank(TypedDict):
    """One text: its place in the request, and its probability or logit."""

    index: int
    score: float
    text: NotRequired[str]


_PATHS, _TEI_PATH = ("/v1/rerank", "/v2/rerank"), "/endpoints/{endpoint}/rerank"
_EXAMPLE = {
    "model": "reranker",
    "query": "Who wrote Emma?",
    "documents": ["Emma is by Jane Austen.", "Emma is a name."],
}
_TEI_RERANK = prediction_operation(
    _TEI_PATH,
    "Reranking",
    TeiRerankRequest,
    list[TeiRank],
    {"two texts": {"query": "Who wrote Emma?", "texts": ["By Jane Austen.", "A name."]}},
    summary="Rerank texts (Text Embeddings Inference)",
)


_decoder = TolerantDecoder(RerankRequest)
_tei_decoder = msgspec.json.Decoder(TeiRerankRequest)


class Rerank:
    """The routes."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        named = [
            Route(
                "POST",
                path,
                self.rerank,
                "rerank",
                prediction_operation(
                    path,
                    "Reranking",
                    RerankRequest,
                    RerankResponse,
                    {"two documents": _EXAMPLE},
                    summary="Rerank documents (Jina, Cohere)",
                ),
                ErrorForm.RERANK,
                predicts=True,
                endpoint_in=endpoint_in,
            )
            for path in _PATHS
        ]
        return [
            *named,
            Route(
                "POST",
                _TEI_PATH,
                self.rerank_texts,
                "tei",
                _TEI_RERANK,
                ErrorForm.TEI,
                predicts=True,
            ),
        ]

    async def rerank(self, request: Request) -> Reply:
        """Reranks documents in the form of Jina and Cohere."""
        context = request.context
        encoded, view, caller = await enter_named(self._front, self._bodies, request)
        reading = self._front.read(context, encoded, partial(_read, view, context))
        del encoded  # documents may wait for long
        query, documents, top_n = await reading
        answer = await self._front.predict(context, view, caller, query)
        tokens = sum(answer.tokens)

        def response() -> RerankResponse:
            return {
                "id": context.request_id,
                "model": view.name,
                "results": _results(answer, documents, top_n),
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }

        made = await self._front.render(request.context, [answer], response)
        return Reply(made, headers=answer_headers(answer))

    async def rerank_texts(self, request: Request) -> Reply:
        """Reranks texts in the form of Text Embeddings Inference."""
        view, caller = request.admitted()
        reader = partial(_read_tei, view)
        query, texts, raw = await self._front.read(
            request.context, await self._bodies.read(request), reader
        )
        answer = await self._front.predict(request.context, view, caller, query)
        made = await self._front.render(
            request.context, [answer], partial(_ranks, answer, texts, raw=raw)
        )
        return Reply(made, headers=answer_headers(answer))


def _read(
    view: EndpointView, context: RequestContext, encoded: bytes
) -> tuple[Query, list[str] | None, int | None]:
    """The pairs, the documents if the answer is to have them, and how many it is to have."""
    body = _decoder.read(view, context, encoded)
    documents = [each if isinstance(each, str) else each.text for each in body.documents]
    query = _query(view, "model", body.query, documents, kept=bool(body.return_documents))
    # A list of its own: that of the query is cut to what the model reads.
    return query, list(documents) if body.return_documents else None, body.top_n


def _read_tei(view: EndpointView, encoded: bytes) -> tuple[Query, list[str] | None, bool]:
    """The pairs, the texts if the answer is to have them, and whether scores are to be raw."""
    body = decode_counted(_tei_decoder, view, encoded)
    query = _query(
        view, "endpoint", body.query, body.texts, truncate=body.truncate, kept=body.return_text
    )
    return query, list(body.texts) if body.return_text else None, body.raw_scores


def _ranks(answer: Answer, texts: list[str] | None, *, raw: bool) -> list[TeiRank]:
    found: list[TeiRank] = []
    for index, score, logit in zip(*HEADS[answer.task].ranking(answer), strict=True):
        rank: TeiRank = {"index": index, "score": logit if raw else score}
        if texts is not None:
            rank["text"] = texts[index]
        found.append(rank)
    return found


def _query(
    view: EndpointView,
    place: str,
    query: str,
    documents: list[str],
    *,
    truncate: bool | None = None,
    kept: bool = False,
) -> Query:
    """A pair of the query with each document."""
    require_kind(view, RELEVANCE, place, "reranking needs")
    if not query.strip():
        raise InvalidInputError("query: it is empty, so that nothing can answer it.")
    check_texts(len(documents), view)
    pairs = [query] * len(documents)
    return Query(pairs, documents, truncate=truncate is not False, kept=kept, ranks=True)


def _results(answer: Answer, documents: list[str] | None, top_n: int | None) -> list[RerankResult]:
    """The best documents with their texts where ``documents`` holds them."""
    found: list[RerankResult] = []
    order, scores, _ = HEADS[answer.task].ranking(answer)
    for index, score in zip(order[:top_n], scores, strict=False):
        result: RerankResult = {"index": index, "relevance_score": score}
        if documents is not None:
            result["document"] = {"text": documents[index]}
        found.append(result)
    return found

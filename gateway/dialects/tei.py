"""Text Embeddings Inference's routes, below ``/endpoints/{endpoint}``: its clients' base URL.

``/embed``, ``/embed_sparse``, ``/embed_all``, ``/similarity``, ``/predict``, ``/tokenize``,
``/decode``, ``/info``, ``/health`` and ``/metrics``. ``/rerank`` is in ``rerank``, ``/embeddings``
and ``/v1/embeddings`` are in ``openai``, and ``POST`` of the address itself is in ``huggingface``.

Texts that are too long are cut, unless ``truncate`` is false. Where vectors are made, arrays of the
model's own token ids stand for texts. To ``/predict`` a list of two strings is a pair, and a list
of lists of one or two is a batch. A model that gives probabilities of labels has no raw scores
here, for its logits are not kept.
"""

from dataclasses import replace
from functools import partial
from importlib.metadata import version as package_version
from typing import Annotated, Any, Literal, NotRequired, TypeVar

import msgspec
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import CLASSES, DENSE, RELEVANCE, SPARSE, TOKENS
from gateway.calls import EndpointView, Query
from gateway.dialects.described import prediction_operation, reading
from gateway.dialects.front import (
    Front,
    Ids,
    TextsOrIds,
    TokenId,
    answer_headers,
    require_kind,
    texts_and_ids,
    version_headers,
)
from gateway.dialects.huggingface import LabelScore, SparseWeight
from gateway.dialects.parameters import check_form, forms_refused
from gateway.dialects.reading import MOST_IDS, TextsOrIdsBody, check_texts, decode_counted
from gateway.errors import InvalidInputError
from gateway.http.body import BodyReader
from gateway.http.error_replies import ErrorForm
from gateway.http.messages import Handler, Reply, Request, encode
from gateway.http.openapi import Operation
from gateway.http.router import Route
from gateway.inference.tokens import check_ids
from gateway.request_context import RequestContext
from preprocess.tasks import HEADS, SecondText
from preprocess.tasks.embedding import formed
from preprocess.tokens import Token
from preprocess.vectors import cosines

_Texts = Annotated[list[str], msgspec.Meta(min_length=1)]
_Direction = Literal["right", "Right"]
_PairOrText = Annotated[list[str], msgspec.Meta(min_length=1, max_length=2)]


class TeiTexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every route of vectors takes."""

    inputs: TextsOrIds
    truncate: bool | None = None
    truncation_direction: _Direction = "right"
    prompt_name: str | None = None


class EmbedRequest(TeiTexts, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The request of ``/embed``. Vectors have length 1 unless ``normalize`` is false."""

    normalize: bool = True
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def form(self) -> dict[str, Any]:
        """What the head of embeddings takes."""
        dimensions = {} if self.dimensions is None else {"dimensions": self.dimensions}
        return {"normalize": self.normalize, **dimensions}


class SimilarityInputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence, and those that it is compared with."""

    source_sentence: str
    sentences: _Texts


class SimilarityParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How sentences are read."""

    truncate: bool | None = None
    truncation_direction: _Direction = "right"
    prompt_name: str | None = None


class SimilarityRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request of ``/similarity``."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None


class PredictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request of ``/predict``: a text, a pair ``["q", "d"]``, or a list of lists of these."""

    inputs: str | Annotated[list[str | _PairOrText], msgspec.Meta(min_length=1)]
    truncate: bool | None = None
    truncation_direction: _Direction = "right"
    raw_scores: bool = False


class TokenizeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request of ``/tokenize``."""

    inputs: str | _Texts
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request of ``/decode``: the ids of one text or of many."""

    ids: Annotated[list[TokenId | Ids], msgspec.Meta(min_length=1)]
    skip_special_tokens: bool = True


class SimpleToken(TypedDict):
    """A token. ``start`` and ``stop`` count characters of the text; a special token has none."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class LabelNumbers(TypedDict):
    """The labels of a classifier, in both directions."""

    id2label: dict[str, str]
    label2id: dict[str, int]


class EmbeddingType(TypedDict):
    """Pooling is part of the exported model, whatever it is."""

    pooling: str


class ModelType(TypedDict):
    """One of the three; other tasks have none."""

    embedding: NotRequired[EmbeddingType]
    classifier: NotRequired[LabelNumbers]
    reranker: NotRequired[LabelNumbers]


class Health(TypedDict):
    """Whether an endpoint answers; TEI's own answer has no body."""

    ready: bool


class Info(TypedDict):
    """An endpoint as its clients read a model. What an endpoint does not have is null."""

    model_id: str
    model_sha: str | None
    model_space: str | None
    model_dtype: str | None
    model_type: ModelType
    max_concurrent_requests: int | None
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int | None
    version: str
    sha: str | None
    docker_label: str | None


EmbedResponse = list[list[float]]  # a vector for each text, in their order
SparseResponse = list[list[SparseWeight]]  # for each text, in their order, by index
TokensResponse = list[list[list[float]]]  # for each text a vector for each token, in their order
PredictResponse = list[LabelScore] | list[list[LabelScore]]  # best first; of one text, or of many
TokenizeResponse = list[list[SimpleToken]]

_TAG = "Text Embeddings Inference"
_BASE = "/endpoints/{endpoint}"
_INFO = f"{_BASE}/info"
_METRICS = replace(
    reading(f"{_BASE}/metrics", _TAG, "Metrics of an endpoint at this gateway", str),
    response_class=PlainTextResponse,
)
_TWO: dict[str, object] = {"two texts": {"inputs": ["A film.", "A novel."]}}
_SIMILAR = {"inputs": {"source_sentence": "A film.", "sentences": ["A movie.", "A novel."]}}
_PAIRS: dict[str, object] = {
    "a pair": {"inputs": ["Is it good?", "It is."]},
    "two texts": {"inputs": [["Dull."], ["Great."]]},
}

_Given = TypeVar("_Given", bound=TeiTexts)
_texts_decoder = msgspec.json.Decoder(TeiTexts)
_embed_decoder = msgspec.json.Decoder(EmbedRequest)
_similarity_decoder = msgspec.json.Decoder(SimilarityRequest)
_predict_decoder = msgspec.json.Decoder(PredictRequest)
_tokenize_decoder = msgspec.json.Decoder(TokenizeRequest)
_decode_decoder = msgspec.json.Decoder(DecodeRequest)


class TextEmbeddingsInference:
    """The routes."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        return [
            _posted(
                "embed",
                self.embed,
                EmbedRequest,
                EmbedResponse,
                examples=_TWO,
                summary="Embed texts",
            ),
            _posted(
                "embed_sparse",
                self.embed_sparse,
                TeiTexts,
                SparseResponse,
                examples=_TWO,
                summary="Embed texts sparsely",
            ),
            _posted(
                "embed_all",
                self.embed_all,
                TeiTexts,
                TokensResponse,
                examples=_TWO,
                summary="A vector for each token",
            ),
            _posted(
                "similarity",
                self.similarity,
                SimilarityRequest,
                list[float],
                examples={"two sentences": _SIMILAR},
                summary="Compare sentences",
            ),
            _posted(
                "predict",
                self.predict,
                PredictRequest,
                PredictResponse,
                examples=_PAIRS,
                summary="Classify texts or pairs",
            ),
            _posted(
                "tokenize",
                self.tokenize,
                TokenizeRequest,
                TokenizeResponse,
                examples=_TWO,
                summary="Tokens of texts",
            ),
            _posted(
                "decode",
                self.decode,
                DecodeRequest,
                list[str],
                examples={"one text": {"ids": [4, 5]}},
                summary="Texts of token ids",
            ),
            _read("info", self.info, reading(_INFO, _TAG, "What an endpoint is", Info)),
            _read(
                "health",
                self.health,
                reading(_INFO, _TAG, "Whether an endpoint answers", Health, unready=True),
            ),
            _read("metrics", self.metrics, _METRICS),
        ]

    async def embed(self, request: Request) -> Reply:
        """Embeds texts."""
        view, caller = request.admitted()
        given = await self._read(request, view, _embed_decoder)
        head = require_kind(view, DENSE, "endpoint", "embeddings need")
        form = given.body.form()
        check_form(view, form)
        query = await self._query(request.context, view, caller, given)
        del given  # texts may wait for long
        answer = await self._front.predict(request.context, view, caller, query)

        def vectors() -> object:
            with forms_refused():
                return formed(head.dense(answer), answer.ranges, form)

        made = await self._front.render(request.context, [answer], vectors)
        return Reply(made, headers=answer_headers(answer))

    async def embed_sparse(self, request: Request) -> Reply:
        """Weights of tokens."""
        view, caller = request.admitted()
        given = await self._read(request, view, _texts_decoder)
        head = require_kind(view, SPARSE, "endpoint", "sparse embeddings need")
        query = await self._query(request.context, view, caller, given)
        del given
        answer = await self._front.predict(request.context, view, caller, query)
        made = await self._front.render(request.context, [answer], partial(head.sparse, answer))
        return Reply(made, headers=answer_headers(answer))

    async def embed_all(self, request: Request) -> Reply:
        """A vector for each token, for late interaction."""
        view, caller = request.admitted()
        given = await self._read(request, view, _texts_decoder)
        head = require_kind(view, TOKENS, "endpoint", "token vectors need")
        query = await self._query(request.context, view, caller, given)
        del given
        answer = await self._front.predict(request.context, view, caller, query)
        made = await self._front.render(
            request.context, [answer], partial(head.token_vectors, answer)
        )
        return Reply(made, headers=answer_headers(answer))

    async def similarity(self, request: Request) -> Reply:
        """Cosines of a sentence with others."""
        view, caller = request.admitted()
        reader = partial(_read_comparison, view)
        query = await self._front.read(request.context, await self._bodies.read(request), reader)
        head = require_kind(view, DENSE, "endpoint", "similarity needs")
        answer = await self._front.predict(request.context, view, caller, query)
        made = await self._front.render(
            request.context, [answer], lambda: cosines(head.dense(answer), None)
        )
        return Reply(made, headers=answer_headers(answer))

    async def predict(self, request: Request) -> Reply:
        """Labels of texts or pairs."""
        view, caller = request.admitted()
        reader = partial(_texts_or_pairs, view)
        query, one, raw_scores = await self._front.read(
            request.context, await self._bodies.read(request), reader
        )
        head = HEADS[view.task]
        if RELEVANCE not in head.kinds or head.second_text is SecondText.NONE:
            require_kind(view, CLASSES, "endpoint", "/predict needs")
        if raw_scores and RELEVANCE not in head.kinds:
            raise InvalidInputError(
                "raw_scores: the logits of a classifier are not kept; its scores are made by "
                f"{head.functions(len(view.labels), multi_label=view.multi_label)[0]}."
            )
        answer = await self._front.predict(request.context, view, caller, query)
        how = {"top_k": None} | ({"function_to_apply": "none"} if raw_scores else {})
        made = await self._front.render(
            request.context, [answer], lambda: head.pipeline(answer, how, one=one)
        )
        return Reply(made, headers=answer_headers(answer))

    async def tokenize(self, request: Request) -> Reply:
        """Tokens of texts."""
        view, caller = request.admitted()
        encoded = await self._bodies.read(request)
        body = await self._front.read(
            request.context, encoded, partial(decode_counted, _tokenize_decoder, view)
        )
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        ref, arm, tokens = await self._front.tokens(
            request.context,
            view,
            caller,
            Query(texts, prompt_name=body.prompt_name),
            special=body.add_special_tokens,
        )
        made = await self._front.render_many(
            request.context,
            sum(map(len, tokens)) * len(SimpleToken.__annotations__),
            partial(_shown, tokens),
        )
        return Reply(made, headers=version_headers(ref.version, arm, ref.space))

    async def decode(self, request: Request) -> Reply:
        """Texts of token ids."""
        view, caller = request.admitted()
        ids, skip_special = await self._front.read(
            request.context, await self._bodies.read(request), partial(_ids_to_decode, view)
        )
        ref, arm, texts = await self._front.texts_of_ids(
            request.context, view, caller, ids, skip_special=skip_special
        )
        # Of an id are some characters.
        made = await self._front.render_many(request.context, sum(map(len, texts)), lambda: texts)
        return Reply(made, headers=version_headers(ref.version, arm, ref.space))

    async def info(self, request: Request) -> Reply:
        """What an endpoint is."""
        view, _ = self._front.admission.identify(request.context, request.params["endpoint"])
        return Reply(encode(_info(view)))

    async def health(self, request: Request) -> Reply:
        """200 while the endpoint answers, else 503."""
        view, _ = self._front.admission.identify(request.context, request.params["endpoint"])
        health: Health = {"ready": view.ready}
        return Reply(encode(health), status=200 if view.ready else 503)

    async def metrics(self, request: Request) -> Reply:
        """What this gateway counts of the endpoint, in Prometheus's text format."""
        view, _ = self._front.admission.identify(request.context, request.params["endpoint"])
        found = self._front.metrics.of_endpoint(view.name)
        return Reply(found, content_type=CONTENT_TYPE_LATEST.encode())

    async def _read(
        self, request: Request, view: EndpointView, decoder: msgspec.json.Decoder[_Given]
    ) -> TextsOrIdsBody[_Given]:
        return await self._front.read(
            request.context, await self._bodies.read(request), partial(_read_given, decoder, view)
        )

    async def _query(
        self,
        context: RequestContext,
        view: EndpointView,
        caller: str | None,
        sent: TextsOrIdsBody[_Given],
    ) -> Query:
        """The texts of a body; of token ids, the text that they are of."""
        body, texts, ids = sent
        if ids:
            _, _, texts = await self._front.texts_of_ids(context, view, caller, ids)
        return Query(texts, truncate=body.truncate is not False, prompt_name=body.prompt_name)


def _posted(
    name: str,
    handle: Handler,
    request: type[msgspec.Struct],
    response: object,
    *,
    examples: dict[str, object],
    summary: str,
) -> Route:
    path = f"{_BASE}/{name}"
    operation = prediction_operation(path, _TAG, request, response, examples, summary=summary)
    return Route("POST", path, handle, "tei", operation, ErrorForm.TEI, predicts=True)


def _read(name: str, handle: Handler, operation: Operation) -> Route:
    return Route("GET", f"{_BASE}/{name}", handle, "tei", operation, ErrorForm.TEI)


def _read_given(
    decoder: msgspec.json.Decoder[_Given], view: EndpointView, encoded: bytes
) -> TextsOrIdsBody[_Given]:
    body = decode_counted(decoder, view, encoded, most_ids=MOST_IDS)
    sent = TextsOrIdsBody(
        msgspec.structs.replace(body, inputs=""), *texts_and_ids("inputs", body.inputs)
    )
    check_texts(sent.number, view)
    return sent


def _ids_to_decode(view: EndpointView, encoded: bytes) -> tuple[list[list[int]], bool]:
    """The ids of each text, and whether special tokens are left out; raises ``GatewayError``."""
    body = decode_counted(_decode_decoder, view, encoded, most_ids=MOST_IDS)
    _, ids = texts_and_ids("ids", body.ids)
    check_ids(ids)  # here, as millions of them would be freed on the event loop later
    return ids, body.skip_special_tokens


def _read_comparison(view: EndpointView, encoded: bytes) -> Query:
    """A sentence and those that it is compared with."""
    body = decode_counted(_similarity_decoder, view, encoded)
    how = body.parameters or SimilarityParameters()
    return Query(
        [body.inputs.source_sentence, *body.inputs.sentences],
        truncate=how.truncate is not False,
        prompt_name=how.prompt_name,
    )


def _shown(tokens: list[list[Token]]) -> TokenizeResponse:
    return [
        [
            {"id": one, "text": text, "special": special, "start": start, "stop": stop}
            for one, text, special, start, stop in each
        ]
        for each in tokens
    ]


def _texts_or_pairs(view: EndpointView, encoded: bytes) -> tuple[Query, bool, bool]:
    """The texts or pairs; whether it is one that is no batch; whether raw scores are wanted.

    Raises:
        InvalidInputError: texts and pairs are mixed.
        GatewayError: it can't be read.
    """
    body = decode_counted(_predict_decoder, view, encoded)
    given = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    strings = [one for one in given if isinstance(one, str)]
    batch = [one for one in given if not isinstance(one, str)]
    if strings and (batch or len(strings) > 2):
        raise InvalidInputError(
            "inputs: expected a text, a pair of texts, or a list of lists of one or two texts."
        )
    rows = batch or [strings]
    if len({len(row) for row in rows}) > 1:
        raise InvalidInputError("inputs: either every text has a second one or none has.")
    pairs = [row[1] for row in rows] if len(rows[0]) == 2 else None
    query = Query([row[0] for row in rows], pairs, truncate=body.truncate is not False)
    return query, not batch, body.raw_scores


def _info(view: EndpointView) -> Info:
    kinds = HEADS[view.task].kinds
    labels: LabelNumbers = {
        "id2label": {str(index): label for index, label in enumerate(view.labels)},
        "label2id": {label: index for index, label in enumerate(view.labels)},
    }
    model_type: ModelType = {}
    if kinds & {DENSE, SPARSE, TOKENS}:
        model_type = {"embedding": {"pooling": "exported"}}
    elif RELEVANCE in kinds:
        model_type = {"reranker": labels}
    elif CLASSES in kinds:
        model_type = {"classifier": labels}
    stable = view.refs[0] if view.refs else None
    return {
        "model_id": stable.model if stable else view.name,
        "model_sha": stable.package if stable else None,
        "model_space": stable.space or None if stable else None,
        "model_dtype": None,
        "model_type": model_type,
        "max_concurrent_requests": None,
        "max_input_length": view.max_tokens,
        "max_batch_tokens": view.max_tokens_in_flight,
        "max_batch_requests": None,
        "max_client_batch_size": view.max_texts,
        "auto_truncate": True,
        "tokenization_workers": None,
        "version": package_version("headrace"),
        "sha": None,
        "docker_label": None,
    }

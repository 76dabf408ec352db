"""Text Embeddings Inference's routes of vectors: ``/embed``, ``/embed_sparse``, ``/embed_all``.

They lie below ``/endpoints/{endpoint}``, which its clients take as their base URL. Texts that are
too long are cut, unless ``truncate`` is false. ``/rerank`` is in ``rerank``.
"""

from typing import Annotated, Any, Literal

import msgspec

from contracts.tasks import DENSE, SPARSE, TOKENS
from gateway.calls import Query
from gateway.dialects.described import prediction_operation
from gateway.dialects.front import Front, answer_headers, require_kind
from gateway.dialects.huggingface import SparseWeight
from gateway.dialects.parameters import check_form, forms_refused
from gateway.http.body import BodyReader
from gateway.http.error_replies import ErrorForm
from gateway.http.messages import Reply, Request, decode, encode
from gateway.http.router import Route
from preprocess.tasks.embedding import formed


class TeiTexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every route of vectors takes."""

    inputs: str | Annotated[list[str], msgspec.Meta(min_length=1)]
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"
    prompt_name: str | None = None

    def query(self) -> Query:
        """The texts."""
        texts = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        return Query(texts, truncate=self.truncate is not False, prompt_name=self.prompt_name)


class EmbedRequest(TeiTexts, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The request of ``/embed``. Vectors have length 1 unless ``normalize`` is false."""

    normalize: bool = True
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def form(self) -> dict[str, Any]:
        """What the head of embeddings takes."""
        dimensions = {} if self.dimensions is None else {"dimensions": self.dimensions}
        return {"normalize": self.normalize, **dimensions}


EmbedResponse = list[list[float]]  # a vector for each text, in their order

_TAG = "Text Embeddings Inference"
_EMBED_PATH = "/endpoints/{endpoint}/embed"
_EMBED = prediction_operation(
    _EMBED_PATH,
    _TAG,
    EmbedRequest,
    EmbedResponse,
    {"two texts": {"inputs": ["A film.", "A novel."]}},
    summary="Embed texts",
)
_SPARSE_PATH = "/endpoints/{endpoint}/embed_sparse"


SparseResponse = list[list[SparseWeight]]  # for each text, in their order, by index

_SPARSE = prediction_operation(
    _SPARSE_PATH,
    _TAG,
    TeiTexts,
    SparseResponse,
    {"two texts": {"inputs": ["A film.", "A novel."]}},
    summary="Embed texts sparsely",
)
_ALL_PATH = "/endpoints/{endpoint}/embed_all"
TokensResponse = list[list[list[float]]]  # for each text a vector for each token, in their order
_TOKENS = prediction_operation(
    _ALL_PATH,
    _TAG,
    TeiTexts,
    TokensResponse,
    {"two texts": {"inputs": ["A film.", "A novel."]}},
    summary="A vector for each token",
)
_texts_decoder = msgspec.json.Decoder(TeiTexts)
_embed_decoder = msgspec.json.Decoder(EmbedRequest)


class TextEmbeddingsInference:
    """The routes of vectors."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        return [
            Route("POST", path, handle, "tei", operation, ErrorForm.TEI, predicts=True)
            for path, handle, operation in (
                (_EMBED_PATH, self.embed, _EMBED),
                (_SPARSE_PATH, self.embed_sparse, _SPARSE),
                (_ALL_PATH, self.embed_all, _TOKENS),
            )
        ]

    async def embed_sparse(self, request: Request) -> Reply:
        """Weights of tokens."""
        context, name = request.context, request.params["endpoint"]
        view, caller = await self._front.admission.enter(context, name)
        body = decode(_texts_decoder, await self._bodies.read(request))
        head = require_kind(view, SPARSE, "endpoint", "sparse embeddings need")
        answer = await self._front.predict(context, view, caller, body.query())
        return Reply(encode(head.sparse(answer)), headers=answer_headers(answer))

    async def embed_all(self, request: Request) -> Reply:
        """A vector for each token, for late interaction."""
        context, name = request.context, request.params["endpoint"]
        view, caller = await self._front.admission.enter(context, name)
        body = decode(_texts_decoder, await self._bodies.read(request))
        head = require_kind(view, TOKENS, "endpoint", "token vectors need")
        answer = await self._front.predict(context, view, caller, body.query())
        found: TokensResponse = [each.tolist() for each in head.token_vectors(answer)]
        return Reply(encode(found), headers=answer_headers(answer))

    async def embed(self, request: Request) -> Reply:
        """Embeds texts."""
        context, name = request.context, request.params["endpoint"]
        view, caller = await self._front.admission.enter(context, name)
        body = decode(_embed_decoder, await self._bodies.read(request))
        head = require_kind(view, DENSE, "endpoint", "embeddings need")
        check_form(view, body.form())
        answer = await self._front.predict(context, view, caller, body.query())
        with forms_refused():
            made = formed(head.dense(answer), answer.ranges, body.form())
        found: EmbedResponse = made.tolist()
        return Reply(encode(found), headers=answer_headers(answer))

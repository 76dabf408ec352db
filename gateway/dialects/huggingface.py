"""The Hugging Face dialect: ``POST /endpoints/{endpoint}`` with ``{"inputs": ...}``.

Answers have the shapes of the ``transformers`` pipelines. For text classification:

- one text: ``[{"label", "score"}]``; many: one ``{"label", "score"}`` each, in order;
- with ``parameters.top_k`` (null for all labels), best first: one text ``[{...}, ...]``, many a
  list of such lists.

For text ranking a pair is answered like a text of one label; with ``parameters.function_to_apply``
``none``, its score is the logit. For text embedding: one text ``[0.1, ...]``, many a list of
vectors; ``parameters.dimensions``, ``normalize`` and ``precision`` say in which form, and
``prompt_name`` which of the model's prompts goes before each text. For sparse embedding: one text
a list of ``{"index", "value"}``, many a list of such lists. For token classification: one
text a list of entities, many a list of such lists; ``parameters.aggregation_strategy`` and
``ignore_labels`` are those of the pipeline, ``simple`` and ``["O"]`` where they are not set. For
zero-shot classification, with ``parameters.candidate_labels``: one text a list of ``{"label",
"score"}``, best first, many a list of such lists. For entity recognition, with
``parameters.labels``, and ``threshold`` (0.5) and ``multi_label`` (false) as the ``gliner`` package
has them: entities as for token classification. For question answering, ``inputs`` is
``{"question", "context"}``, or a list of it: one question gets ``{"score", "start", "end",
"answer"}``, or a list of it with ``parameters.top_k``. For sentence similarity, ``inputs`` is
``{"source_sentence", "sentences"}``, answered by a list of cosines. A text is a string, or
``{"text", "text_pair"}``; a list of one text counts as many.

The Hub's own clients read the labels of one text from a list within a list. They name themselves in
``user-agent``, and are answered so. Fields and pipelines' parameters that mean nothing here are
ignored and named in ``x-headrace-ignored``, or refused where the request has ``x-headrace-strict:
true``. A misspelt field and a parameter that no pipeline has are always refused.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import msgspec
from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import DENSE
from gateway.calls import EndpointView, Query
from gateway.dialects.described import prediction_operation
from gateway.dialects.front import Front, Pair, Texts, answer_headers, query_of, require_kind
from gateway.dialects.parameters import (
    NO_PARAMETERS,
    PipelineParameters,
    checked,
    forms_refused,
    ignore,
    ignore_unknown,
    is_unknown_field,
    names_in,
    refuse_unknown,
)
from gateway.dialects.reading import check_texts, decode_counted
from gateway.errors import BadRequestError, InvalidInputError
from gateway.http.body import BodyReader
from gateway.http.messages import Reply, Request
from gateway.http.router import Route
from gateway.request_context import RequestContext
from preprocess.tasks import HEADS
from preprocess.vectors import cosines


class Inputs(Pair, frozen=True, forbid_unknown_fields=True):
    """One text, pair or question; or a sentence and those that it is compared with."""

    source_sentence: str | msgspec.UnsetType = msgspec.UNSET
    sentences: Annotated[list[str], msgspec.Meta(min_length=1)] | msgspec.UnsetType = msgspec.UNSET

    def compared(self) -> list[str]:
        """The sentence and the others, or nothing of a text; raises ``InvalidInputError``."""
        both = (self.source_sentence, self.sentences)
        if both == (msgspec.UNSET, msgspec.UNSET):
            return []
        others = (self.text, self.text_pair, self.question, self.context)
        if (
            isinstance(self.source_sentence, str)
            and isinstance(self.sentences, list)
            and all(other is msgspec.UNSET for other in others)
        ):
            return [self.source_sentence, *self.sentences]
        raise InvalidInputError("inputs: expected source_sentence and sentences, nothing else.")


class HuggingFaceRequest(msgspec.Struct, frozen=True):
    """The request. ``options`` is accepted, because the hub's clients send it, and ignored.

    What follows it are parameters of vectors: the hub's client sends them here.
    """

    inputs: str | Inputs | Texts
    parameters: PipelineParameters | None = None
    options: dict[str, Any] | None = None
    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] | None = None
    encoding_format: Literal["float"] | None = None


class KnownParameters(PipelineParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters that all mean something here."""


class KnownRequest(HuggingFaceRequest, frozen=True, forbid_unknown_fields=True):
    """A request whose fields all mean something here."""

    parameters: KnownParameters | None = None


class LabelScore(TypedDict):
    """A class and its probability."""

    label: str
    score: float


class SparseWeight(TypedDict):
    """The id of a token of the vocabulary, and its weight, which is above 0."""

    index: int
    value: float


class KindsOfVectors(TypedDict):
    """Those of one text that ``parameters.kinds`` names."""

    dense: NotRequired[list[float]]
    sparse: NotRequired[list[SparseWeight]]
    tokens: NotRequired[list[list[float]]]


class FoundAnswer(TypedDict):
    """A part of a context; an empty one, with ``handle_impossible_answer``, for no answer.

    ``start`` and ``end`` count characters of the context.
    """

    score: float
    start: int
    end: int
    answer: str


class FoundEntity(TypedDict):
    """A run of tokens of one type, or with ``aggregation_strategy`` ``none`` one token.

    ``start`` and ``end`` count characters of the text.
    """

    entity_group: NotRequired[str]
    entity: NotRequired[str]
    index: NotRequired[int]
    score: float
    word: str
    start: int
    end: int


HuggingFaceResponse = Annotated[
    list[LabelScore]
    | list[list[LabelScore]]
    | list[float]
    | list[list[float]]
    | list[SparseWeight]
    | list[list[SparseWeight]]
    | KindsOfVectors
    | list[KindsOfVectors]
    | FoundAnswer
    | list[FoundAnswer]
    | list[FoundAnswer | list[FoundAnswer]]
    | list[FoundEntity]
    | list[list[FoundEntity]],
    Field(description="By task, and by whether one text was sent or a list."),
]

_PATH = "/endpoints/{endpoint}"
_EXAMPLES = {
    "one text": {"inputs": "A film that stays with you."},
    "many texts, all labels": {"inputs": ["Dull.", "Great."], "parameters": {"top_k": None}},
    "a pair": {"inputs": {"text": "Is it good?", "text_pair": "It is."}},
}
_PREDICT = prediction_operation(
    _PATH, "Hugging Face", HuggingFaceRequest, HuggingFaceResponse, _EXAMPLES
)

_known_decoder = msgspec.json.Decoder(KnownRequest)
_decoder = msgspec.json.Decoder(HuggingFaceRequest)
# In user-agent: of huggingface_hub, and of @huggingface/inference.
_HUB_CLIENTS = (b"hf_hub/", b"@huggingface/inference")
# Fields beside the parameters, each with the parameter that it stands for.
_BESIDE = {
    "prompt_name": "prompt_name",
    "normalize": "normalize",
    "dimensions": "dimensions",
    "truncate": "truncation",
}


class HuggingFace:
    """The dialect's one route and its handler."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """The dialect's one route. Under overload, connections refuse what ``predicts``."""
        return [Route("POST", _PATH, self.predict, "huggingface", _PREDICT, predicts=True)]

    async def predict(self, request: Request) -> Reply:
        """Handles a request that has come in: body, prediction, reply."""
        view, caller = request.admitted()
        reader = partial(_read, view, request.context)
        asked = await self._front.read(request.context, await self._bodies.read(request), reader)
        answer = await self._front.predict(request.context, view, caller, asked.query)
        head = HEADS[view.task]
        one, parameters = asked.one, {**asked.query.parameters}
        if one and head.hub_nests and (asked.all_scores or _from_hub(request)):
            one = False
            parameters.setdefault("top_k", None)

        def result() -> object:
            with forms_refused():
                if asked.compares:
                    return cosines(head.dense(answer), parameters.get("dimensions"))
                return head.pipeline(answer, parameters, one=one)

        made = await self._front.render(request.context, [answer], result)
        return Reply(made, headers=answer_headers(answer))


class _Question(NamedTuple):
    """A body as it is read.

    Attributes:
        query: its texts.
        compares: these are a sentence and those that it is compared with.
        one: a text that was sent by itself, and not a list of one.
        all_scores: ``return_all_scores``.
    """

    query: Query
    compares: bool
    one: bool
    all_scores: bool


def _read(view: EndpointView, context: RequestContext, encoded: bytes) -> _Question:
    """What is asked; raises ``GatewayError``."""
    body = _decoded(encoded, view, context)
    given = _parameters(body)
    parameters = checked(given, view)
    inputs = body.inputs
    compared = inputs.compared() if isinstance(inputs, Inputs) else []
    if compared:
        _check_comparison(view, parameters)
        items: Sequence[str | Pair] = compared
    else:
        items = inputs if isinstance(inputs, list) else [inputs]
    truncate = given.truncation is not False
    query = query_of("inputs", items, parameters, given.prompt_name, truncate=truncate)
    check_texts(len(query.texts), view)
    # A question with a list of contexts has an answer of each.
    one = isinstance(inputs, str) or (
        isinstance(inputs, Pair) and not isinstance(inputs.context, list)
    )
    return _Question(query, bool(compared), one, bool(given.return_all_scores))


def _decoded(body: bytes, view: EndpointView, context: RequestContext) -> HuggingFaceRequest:
    """The request.

    Raises:
        BadRequestError: it does not fit, or is strict and has fields that mean nothing here.
        InvalidInputError: a field is misspelt, or a parameter unknown; see ``decode`` too.
    """
    try:
        return decode_counted(_known_decoder, view, body)
    except BadRequestError as error:
        if context.strict or not is_unknown_field(error):
            raise
    known = decode_counted(_decoder, view, body)
    sent = names_in(body)
    ignore_unknown(context, sent, known.__struct_fields__)
    if known.parameters is not None:
        fields = known.parameters.__struct_fields__
        inner = names_in(bytes(sent["parameters"]))
        refuse_unknown(inner, view)
        ignore(context, [name for name in inner if name not in fields], "parameters.")
    return known


def _check_comparison(view: EndpointView, parameters: Mapping[str, Any]) -> None:
    """Raises ``InvalidInputError``: no vectors, or a form that a cosine does not have."""
    require_kind(view, DENSE, "inputs.source_sentence", "similarity needs")
    if odd := parameters.keys() - {"dimensions", "normalize"}:
        raise InvalidInputError(f"parameters.{min(odd)}: it says nothing of a cosine.")


def _from_hub(request: Request) -> bool:
    """Whether one of the Hub's own clients asks."""
    agent = request.headers.get(b"user-agent", b"")
    return any([name in agent for name in _HUB_CLIENTS])  # noqa: C419 - for every request


def _parameters(body: HuggingFaceRequest) -> PipelineParameters:
    """The parameters, those that the hub's client sends beside them included.

    ``return_all_scores``, the older name, becomes ``top_k``.

    Raises:
        InvalidInputError: one is in both places.
    """
    given = body.parameters or NO_PARAMETERS
    beside: dict[str, Any] = {}
    if given.return_all_scores and given.top_k is msgspec.UNSET:
        beside["top_k"] = None
    for name, known in _BESIDE.items():
        value = getattr(body, name)
        if value is None:
            continue
        if getattr(given, known) is not None:
            raise InvalidInputError(f"{name}: parameters.{known} is there too; send one of them.")
        beside[known] = value
    return msgspec.structs.replace(given, **beside) if beside else given

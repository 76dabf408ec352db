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
"score"}``, best first, many a list of such lists. For question answering, ``inputs`` is
``{"question", "context"}``, or a list of it: one question gets ``{"score", "start", "end",
"answer"}``, or a list of it with ``parameters.top_k``. A text is a string, or ``{"text",
"text_pair"}``; a list of one text counts as many.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired

import msgspec
from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from gateway.dialects.described import prediction_operation
from gateway.dialects.front import Front, Pair, TextOrPair, Texts, answer_headers, query_of
from gateway.dialects.parameters import PipelineParameters, checked, forms_refused
from gateway.errors import InvalidInputError
from gateway.http.body import BodyReader
from gateway.http.messages import Reply, Request, decode, encode
from gateway.http.router import Route
from preprocess.tasks import HEADS


class HuggingFaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request. ``options`` is accepted, because the hub's clients send it, and ignored.

    What follows it are parameters of vectors: the hub's client sends them here.
    """

    inputs: TextOrPair | Texts
    parameters: PipelineParameters = PipelineParameters()
    options: dict[str, Any] = {}
    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] | None = None


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

_decoder = msgspec.json.Decoder(HuggingFaceRequest)
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
        """Handles a request: admission by its headers, body, prediction, reply."""
        context, name = request.context, request.params["endpoint"]
        view, caller = await self._front.admission.enter(context, name)
        body = decode(_decoder, await self._bodies.read(request))
        given = _parameters(body)
        parameters = checked(given, view)
        inputs = body.inputs
        # A question with a list of contexts has an answer of each.
        one = isinstance(inputs, str) or (
            isinstance(inputs, Pair) and not isinstance(inputs.context, list)
        )
        query = replace(
            query_of("inputs", inputs if isinstance(inputs, list) else [inputs]),
            truncate=given.truncation is not False,
            parameters=parameters,
            prompt_name=given.prompt_name,
        )
        answer = await self._front.predict(context, view, caller, query)
        with forms_refused():
            result = HEADS[view.task].pipeline(answer, parameters, one=one)
        return Reply(encode(result), headers=answer_headers(answer))


def _parameters(body: HuggingFaceRequest) -> PipelineParameters:
    """The parameters, those that the hub's client sends beside them included.

    Raises:
        InvalidInputError: one is in both places.
    """
    beside: dict[str, Any] = {}
    for name, known in _BESIDE.items():
        value = getattr(body, name)
        if value is None:
            continue
        if getattr(body.parameters, known) is not None:
            raise InvalidInputError(f"{name}: parameters.{known} is there too; send one of them.")
        beside[known] = value
    return msgspec.structs.replace(body.parameters, **beside) if beside else body.parameters

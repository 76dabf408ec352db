"""Guardrails: which labels of the endpoint's ``spec.guardrail`` the texts of a request have.

Both forms lie below ``/endpoints/{endpoint}``, which is their clients' base URL:

- ``POST /beta/litellm_basic_guardrail_api`` is LiteLLM's generic guardrail API: one answer for all
  texts. It is ``BLOCKED`` if a text has a label, ``GUARDRAIL_INTERVENED`` if texts have entities,
  each of which is replaced by its label in brackets, else ``NONE``.
- ``POST /api/v1/text/contents`` is the Detectors API, which NeMo Guardrails asks (``hf_classifier``
  with ``engine: fms``), and FMS Guardrails: for each text the labels that it has.

What can't be read whole is never said to be clean, unless ``longTexts`` is ``cut``: LiteLLM's
request is blocked, and the other form's refused with 413. Images and tool calls are not read.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, NamedTuple, NotRequired

import msgspec
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.endpoint import Guardrail
from contracts.tasks import MARKED, Task
from gateway.calls import Answer, EndpointView, Query
from gateway.dialects.described import prediction_operation
from gateway.dialects.front import Front, answer_headers, require_kind
from gateway.dialects.parameters import TolerantDecoder, ignore, names_in, refuse_misspelt
from gateway.dialects.reading import check_texts, decode_counted
from gateway.errors import InvalidInputError
from gateway.http.body import BodyReader
from gateway.http.messages import Reply, Request, encode
from gateway.http.router import Route
from gateway.request_context import RequestContext
from preprocess.tasks import HEADS
from preprocess.tasks.head import Mark


class GuardrailRequest(msgspec.Struct, frozen=True):
    """LiteLLM's request; what else it has is not read."""

    texts: list[str] | None = None
    images: list[msgspec.Raw] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class GuardrailAnswer(TypedDict):
    """What becomes of the texts; ``texts`` are all of them, as they are to go on."""

    action: Literal["NONE", "BLOCKED", "GUARDRAIL_INTERVENED"]
    blocked_reason: NotRequired[str]
    texts: NotRequired[list[str]]


class DetectorParameters(msgspec.Struct, frozen=True):
    """What is read of them: scores below are left out, beside those below the endpoint's."""

    threshold: float | None = None


class ContentsRequest(msgspec.Struct, frozen=True):
    """The request of the Detectors API; other fields have no meaning here."""

    contents: Annotated[list[str], msgspec.Meta(min_length=1)]
    detector_params: DetectorParameters | None = None


class Detection(TypedDict):
    """A label that a text has, or an entity in it. ``text`` is its first 256 characters."""

    start: int
    end: int
    text: str
    detection: str
    detection_type: str
    score: float


class _GuardedTexts(NamedTuple):
    """What is asked, by which rules, and what the answer is to have of the texts.

    ``texts`` are whole if entities are looked for in them, else their beginnings.
    """

    query: Query
    rules: Guardrail
    texts: list[str]
    lengths: list[int]
    threshold: float | None = None


_LITELLM = "/endpoints/{endpoint}/beta/litellm_basic_guardrail_api"
_CONTENTS = "/endpoints/{endpoint}/api/v1/text/contents"
_CHECKED = prediction_operation(
    _LITELLM,
    "Guardrails",
    GuardrailRequest,
    GuardrailAnswer,
    {"two texts": {"input_type": "request", "texts": ["Dull.", "Great."]}},
    summary="Check texts (LiteLLM)",
)
_DETECTED = prediction_operation(
    _CONTENTS,
    "Guardrails",
    ContentsRequest,
    list[list[Detection]],
    {"two texts": {"contents": ["Dull.", "Great."], "detector_params": {"threshold": 0.5}}},
    summary="Check texts (Detectors API, NeMo Guardrails)",
)
_decoder = msgspec.json.Decoder(GuardrailRequest)
_contents_decoder = TolerantDecoder(ContentsRequest)
_NOT_READ = ("images", "tool_calls")
_SHOWN_CHARACTERS = 256  # of each detection: a long text may have many labels
_SHOWN = 20


class Guardrails:
    """The routes."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        return [
            Route("POST", _LITELLM, self.check, "litellm", _CHECKED, predicts=True),
            Route("POST", _CONTENTS, self.detect, "detectors", _DETECTED, predicts=True),
        ]

    async def check(self, request: Request) -> Reply:
        """One verdict on all texts, in LiteLLM's form."""
        view, caller = request.admitted()
        reader = partial(_read, view, request.context)
        checked = await self._front.read(request.context, await self._bodies.read(request), reader)
        if not checked.texts:  # of an image or a tool call alone
            nothing: GuardrailAnswer = {"action": "NONE"}
            return Reply(encode(nothing))
        answer = await self._front.predict(request.context, view, caller, checked.query)
        renderer = partial(_verdict, view, answer, checked)
        made = await self._front.render(request.context, [answer], renderer)
        return Reply(made, headers=answer_headers(answer))

    async def detect(self, request: Request) -> Reply:
        """What each text has, in the form of the Detectors API."""
        view, caller = request.admitted()
        reader = partial(_read_contents, view, request.context)
        checked = await self._front.read(request.context, await self._bodies.read(request), reader)
        answer = await self._front.predict(request.context, view, caller, checked.query)
        renderer = partial(_detections, answer, checked)
        made = await self._front.render(request.context, [answer], renderer)
        return Reply(made, headers=answer_headers(answer))


def _read(view: EndpointView, context: RequestContext, encoded: bytes) -> _GuardedTexts:
    sent = decode_counted(_decoder, view, encoded)
    if sent.texts is None:  # nothing would be found in texts under another name
        refuse_misspelt(names_in(encoded), GuardrailRequest.__struct_fields__)
    ignore(context, [name for name in _NOT_READ if getattr(sent, name)])
    return _guard_texts(view, sent.texts or [], truncate=True)


def _read_contents(view: EndpointView, context: RequestContext, encoded: bytes) -> _GuardedTexts:
    sent = _contents_decoder.read(view, context, encoded)
    given = sent.detector_params or DetectorParameters()
    return _guard_texts(view, sent.contents, truncate=None)._replace(threshold=given.threshold)


def _guard_texts(view: EndpointView, texts: list[str], *, truncate: bool | None) -> _GuardedTexts:
    """What is asked; without ``truncate`` the endpoint says whether long texts are cut.

    Raises:
        GatewayError: the endpoint has no guardrail, or the request too many texts.
    """
    head = require_kind(view, MARKED, "endpoint", "a guardrail needs")
    if view.guardrail is None:
        raise InvalidInputError(
            f"endpoint: {view.name} has no spec.guardrail, which names labels and thresholds."
        )
    if view.refs:
        _check_labels(view.guardrail, view.task, view.labels)
    check_texts(len(texts), view)
    if truncate is None:
        truncate = view.guardrail.long_texts == "cut"
    finds_places = head.rank > 2
    kept = list(texts) if finds_places else [text[:_SHOWN_CHARACTERS] for text in texts]
    asked = head.marking(tuple(view.guardrail.labels))
    query = Query(texts, parameters=asked, truncate=truncate, kept=finds_places)
    return _GuardedTexts(query, view.guardrail, kept, list(map(len, texts)))


def _check_labels(rules: Guardrail, task: Task, labels: tuple[str, ...]) -> None:
    """A label that the model does not have would never be found, and every text pass."""
    if unknown := rules.name_unknown(HEADS[task].markable(labels, tuple(rules.labels))):
        raise InvalidInputError(f"spec.guardrail.labels: {unknown}.")


def _marks(answer: Answer, rules: Guardrail) -> list[list[Mark]]:
    """What each text has, by the labels of the version that answered."""
    _check_labels(rules, answer.task, answer.labels)
    return HEADS[answer.task].marks(answer, rules.labels)


def _verdict(view: EndpointView, answer: Answer, checked: _GuardedTexts) -> GuardrailAnswer:
    marks = _marks(answer, checked.rules)
    found = [
        f"text {at} has the label {mark.label}"
        for at, each in enumerate(marks)
        for mark in each
        if mark.start is None
    ]
    if checked.rules.long_texts == "block":
        found += [
            f"text {at} is longer than the model reads"
            for at, cut in enumerate(answer.truncated)
            if cut
        ]
    if found:
        more = f", and {len(found) - _SHOWN}" * (len(found) > _SHOWN)
        reason = f"Blocked by {view.name}: {', '.join(found[:_SHOWN])}{more}."
        return {"action": "BLOCKED", "blocked_reason": reason}
    if not any(marks):
        return {"action": "NONE"}
    texts = [_mask(text, each) for text, each in zip(checked.texts, marks, strict=True)]
    return {"action": "GUARDRAIL_INTERVENED", "texts": texts}


def _mask(text: str, marks: Sequence[Mark]) -> str:
    """The text with the label of each entity in its place; they are in order, none overlaps."""
    pieces: list[str] = []
    end = 0
    for mark in marks:
        pieces += [text[end : mark.start], f"[{mark.label}]"]
        end = mark.end or end
    return "".join([*pieces, text[end:]])


def _detections(answer: Answer, checked: _GuardedTexts) -> list[list[Detection]]:
    least = checked.threshold
    found = zip(checked.texts, checked.lengths, _marks(answer, checked.rules), strict=True)
    return [
        [_detection(text, length, mark) for mark in each if least is None or mark.score >= least]
        for text, length, each in found
    ]


def _detection(text: str, length: int, mark: Mark) -> Detection:
    start = mark.start or 0
    end = length if mark.end is None else mark.end
    return {
        "start": start,
        "end": end,
        "text": text[start : min(end, start + _SHOWN_CHARACTERS)],
        "detection": mark.label,
        "detection_type": mark.label,
        "score": mark.score,
    }

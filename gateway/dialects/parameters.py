"""What callers set beside their texts: the parameters of ``transformers``' pipelines.

The Hugging Face dialect takes all that the task's head takes, ignores what pipelines take beside
that, and refuses all other names: one that is misspelt would change nothing without a word. The
other dialects take those without which some tasks can't be asked (``Head.everywhere``), and ignore
the rest, as their protocols do, but for a name that is nearly one of these. The answer names what
was ignored.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from gateway.calls import EndpointView
from gateway.dialects.reading import decode_counted
from gateway.errors import BadRequestError, InvalidInputError
from gateway.http.messages import decode, field_first
from gateway.request_context import RequestContext
from preprocess.errors import MissingRangesError, ParameterError
from preprocess.tasks import HEADS
from preprocess.vectors import VectorPrecision

StructT = TypeVar("StructT", bound=msgspec.Struct)


class PipelineParameters(msgspec.Struct, frozen=True):
    """The parameters of ``transformers`` pipelines that are supported."""

    top_k: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType | None = msgspec.UNSET
    return_all_scores: bool | None = None  # of older pipelines: top_k of all labels
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = None
    ignore_labels: list[str] | None = None
    candidate_labels: list[str] | None = None
    hypothesis_template: str | None = None
    multi_label: bool | None = None
    labels: list[str] | None = None
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    normalize: bool | None = None
    precision: VectorPrecision | None = None
    kinds: list[Literal["dense", "sparse", "tokens"]] | None = None
    prompt_name: str | None = None
    handle_impossible_answer: bool | None = None
    max_answer_len: Annotated[int, msgspec.Meta(ge=1)] | None = None
    align_to_words: bool | None = None
    truncation: bool | None = None  # False: texts that are too long are refused, and not cut


NO_PARAMETERS = PipelineParameters()
_UNKNOWN_FIELD = "unknown field"  # in msgspec's message
_ODD = re.compile(r"[^A-Za-z0-9_-]")  # of names that go into a header
_LISTED_NAMES = 20
_NAME_CHARACTERS = 40
_NULLABLE = "top_k"  # null says something: all labels
_LISTS = ("candidate_labels", "labels", "kinds")
# Of pipelines' own parameters and the Hub's clients', those that mean nothing here.
_OF_PIPELINES = frozenset(
    {
        "add_special_tokens",
        "batch_size",
        "device",
        "doc_stride",
        "framework",
        "grouped_entities",
        "ignore_subwords",
        "max_length",
        "max_question_len",
        "max_seq_len",
        "num_workers",
        "padding",
        "return_tensors",
        "stride",
        "tokenize_kwargs",
        "tokenizer_kwargs",
        "use_cache",
        "wait_for_model",
    }
)
_MOST_COMPARED = 10  # names of one request, with those that are known
_MISSPELT, _RELATED = 0.8, 0.6  # how alike names are, from 0 to 1
_READ_BEFORE = frozenset({"truncation", "prompt_name", "return_all_scores"})
_names_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def checked(parameters: PipelineParameters, view: EndpointView) -> dict[str, Any]:
    """The parameters that the caller has set and the task's head takes.

    ``truncation`` and ``prompt_name``, which are of all tasks, and ``return_all_scores``, another
    name for ``top_k``, are not among them.

    Raises:
        InvalidInputError: this endpoint can't satisfy one of them.
    """
    head = HEADS[view.task]
    found: dict[str, Any] = {}
    if parameters is NO_PARAMETERS:  # as most callers send them
        check_form(view, found, "parameters.")
        return found
    for name in parameters.__struct_fields__:
        value = getattr(parameters, name)
        if value is msgspec.UNSET or name in _READ_BEFORE:
            continue
        if value is None and name != _NULLABLE:
            continue
        if name in head.parameters:
            found[name] = value
        elif value is not None:
            raise InvalidInputError(f"parameters.{name}: {view.name} does {view.task}.")
    functions = head.functions(len(view.labels), multi_label=view.multi_label)
    if found.get("function_to_apply") not in (None, *functions):
        raise InvalidInputError(
            f"parameters.function_to_apply: the scores of {view.name} are made by "
            f"{' or '.join(functions)}."
        )
    check_form(view, found, "parameters.")
    return found


def check_form(view: EndpointView, parameters: Mapping[str, Any], place: str = "") -> None:
    """Refuses parameters of a task that this endpoint can't meet, before anything is inferred.

    ``place`` is what comes before the field's name. Raises ``InvalidInputError``.
    """
    if reason := HEADS[view.task].refusal(parameters, view):
        raise InvalidInputError(place + reason)


def is_unknown_field(error: BadRequestError) -> bool:
    """Whether a body was refused for a field that its struct does not have."""
    return _UNKNOWN_FIELD in str(error)


class TolerantDecoder(Generic[StructT]):
    """Reads a struct from a body that may have other fields; it is parsed once if it has none."""

    def __init__(self, kind: type[StructT]) -> None:
        known = msgspec.defstruct(
            kind.__name__, (), bases=(kind,), frozen=True, forbid_unknown_fields=True
        )
        self._known: msgspec.json.Decoder[StructT] = msgspec.json.Decoder(known)
        self._any = msgspec.json.Decoder(kind)

    def read(
        self, view: EndpointView, context: RequestContext, body: bytes, *, most_ids: int = 0
    ) -> StructT:
        """The struct; fields that mean nothing here are ignored, or refused.

        Raises:
            GatewayError: see ``decode_counted`` and ``ignore_unknown``.
        """
        try:
            return decode_counted(self._known, view, body, most_ids=most_ids)
        except BadRequestError as error:
            if context.strict or not is_unknown_field(error):
                raise
        found = decode_counted(self._any, view, body, most_ids=most_ids)
        ignore_unknown(context, names_in(body), found.__struct_fields__)
        return found


def names_in(body: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a body, as they were sent; raises ``GatewayError``."""
    return decode(_names_decoder, body)


def ignore(context: RequestContext, names: Sequence[str], place: str = "") -> None:
    """Ignores names that mean nothing here; raises ``BadRequestError`` if the request is strict.

    ``place`` is what comes before them.
    """
    if names and context.strict:
        raise BadRequestError(f"{place}{names[0][:_NAME_CHARACTERS]}: it means nothing here.")
    context.ignored += tuple(
        place + _ODD.sub("?", name[:_NAME_CHARACTERS]) for name in names[: _LISTED_NAMES + 1]
    )


def ignore_unknown(
    context: RequestContext, names: Iterable[str], known: Sequence[str], place: str = ""
) -> None:
    """Ignores names that are not known; raises as ``ignore`` and ``refuse_misspelt`` do."""
    refuse_misspelt(names, known, place)
    ignore(context, [name for name in names if name not in known], place)


def ignored_headers(context: RequestContext) -> list[tuple[bytes, bytes]]:
    """What the answer says of ignored names: the first of them."""
    if not context.ignored:  # as of most requests
        return []
    listed = context.ignored[:_LISTED_NAMES] + ("...",) * (len(context.ignored) > _LISTED_NAMES)
    return [(b"x-headrace-ignored", ",".join(listed).encode())]


def refuse_unknown(names: Iterable[str], view: EndpointView) -> None:
    """Refuses parameters that neither this endpoint nor a pipeline has.

    Raises:
        InvalidInputError: names the one that was meant, or those that there are.
    """
    for name in names:
        if name in _OF_PIPELINES or name in PipelineParameters.__struct_fields__:
            continue
        taken = (*sorted(HEADS[view.task].parameters), "prompt_name", "truncation")
        meant = _nearest(name[:_NAME_CHARACTERS], taken, _RELATED)
        hint = f"did you mean {meant}?" if meant else f"{view.name} takes {', '.join(taken)}."
        raise InvalidInputError(f"parameters.{name[:_NAME_CHARACTERS]}: unknown; {hint}")


def refuse_misspelt(names: Iterable[str], known: Iterable[str], place: str = "") -> None:
    """Refuses a name that is nearly one of those that are known; others may mean something else.

    Raises:
        InvalidInputError: says which was meant.
    """
    known = tuple(sorted(known))
    unknown = (name[:_NAME_CHARACTERS] for name in names if name not in known)
    for name, _ in zip(unknown, range(_MOST_COMPARED), strict=False):
        if meant := _nearest(name, known, _MISSPELT):
            raise InvalidInputError(f"{place}{name}: unknown; did you mean {meant}?")


@lru_cache(maxsize=1024)
def _nearest(name: str, known: tuple[str, ...], least: float) -> str | None:
    """The known name that is most like another one, if any is; clients send the same again."""
    return next(iter(get_close_matches(name, known, 1, least)), None)


@contextmanager
def forms_refused() -> Iterator[None]:
    """Refuses a form that the version which answered can't give; stable could.

    Raises:
        InvalidInputError: says which field asked for it.
    """
    try:
        yield
    except MissingRangesError as error:
        raise InvalidInputError(f"precision: {error}.") from error
    except ParameterError as error:
        raise InvalidInputError(f"{error}.") from error


def prompt_name_in(given: Mapping[str, object]) -> str | None:
    """Which of the model's prompts a request's parameters name; raises ``BadRequestError``."""
    name = given.get("prompt_name")
    if name is not None and not isinstance(name, str):
        raise BadRequestError(f"parameters.prompt_name: expected a string, got {str(name)[:40]!r}.")
    return name


def of_any_dialect(
    given: Mapping[str, object],
    view: EndpointView,
    context: RequestContext,
    own: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Of a request's parameters, those that the task takes in every dialect.

    A list may come as JSON in a string: the Open Inference Protocol has no parameters of lists.
    ``own``: names that the dialect reads beside them.

    Raises:
        BadRequestError: a value of another type, or see ``ignore``.
        InvalidInputError: a name that is nearly one of these, or what the endpoint can't do.
    """
    everywhere = HEADS[view.task].everywhere
    taken = {name: given[name] for name in everywhere if name in given}
    if len(taken) < len(given):
        ignore_unknown(context, given, (*everywhere, "prompt_name", *own), "parameters.")
    if not taken:
        return {}
    for name in _LISTS:
        value = taken.get(name)
        if isinstance(value, str):
            try:
                taken[name] = msgspec.json.decode(value)
            except (msgspec.DecodeError, RecursionError) as error:
                raise BadRequestError(
                    f"parameters.{name}: expected a list, or one as JSON: {error}."
                ) from error
    try:
        return checked(msgspec.convert(taken, PipelineParameters), view)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"parameters.{field_first(str(error))}") from error

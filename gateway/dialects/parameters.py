"""What callers set beside their texts: the parameters of ``transformers``' pipelines.

The Hugging Face dialect takes all that the task's head takes. The others take those without which
some tasks can't be asked (``Head.everywhere``), and ignore the rest, as their protocols do.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import msgspec

from gateway.calls import EndpointView
from gateway.errors import BadRequestError, InvalidInputError
from gateway.http.messages import Request, field_first
from preprocess.errors import MissingRangesError
from preprocess.tasks import HEADS
from preprocess.vectors import VectorPrecision


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
_READ_BEFORE = frozenset({"truncation", "prompt_name", "return_all_scores"})


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


def is_strict(request: Request) -> bool:
    """Whether fields that mean nothing here are to be refused."""
    return request.headers.get(b"x-headrace-strict", b"").lower() == b"true"


def is_unknown_field(error: BadRequestError) -> bool:
    """Whether a body was refused for a field that its struct does not have."""
    return _UNKNOWN_FIELD in str(error)


def ignored_names(unknown: Sequence[tuple[str, str]]) -> str:
    """Fields that mean nothing here for ``x-headrace-ignored``, each with what is before it."""
    listed = [
        place + _ODD.sub("?", name[:_NAME_CHARACTERS]) for place, name in unknown[:_LISTED_NAMES]
    ]
    return ",".join(listed + ["..."] * (len(unknown) > _LISTED_NAMES))


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


def prompt_name_in(given: Mapping[str, object]) -> str | None:
    """Which of the model's prompts a request's parameters name; raises ``BadRequestError``."""
    name = given.get("prompt_name")
    if name is not None and not isinstance(name, str):
        raise BadRequestError(f"parameters.prompt_name: expected a string, got {str(name)[:40]!r}.")
    return name


def of_any_dialect(given: Mapping[str, object], view: EndpointView) -> dict[str, Any]:
    """Of a request's parameters, those that the task takes in every dialect.

    A list may come as JSON in a string: the Open Inference Protocol has no parameters of lists.

    Raises:
        BadRequestError: a value of another type.
    """
    taken = {name: given[name] for name in HEADS[view.task].everywhere if name in given}
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

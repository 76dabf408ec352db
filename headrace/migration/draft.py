"""The endpoint that a translation writes, and what it has to say about it.

KServe's words for tasks and precisions are translated here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from contracts.endpoint import API_VERSION, KIND, ModelEndpoint
from contracts.model import ENDPOINT_NAME, endpoint_name
from contracts.rollout import RolloutSpec, WeightStep
from headrace.errors import BadDocumentError, RefusedError
from headrace.migration.source import ManifestMapping, ObjectHead

_TASKS = {
    "sequence_classification": "text-classification",
    "text_classification": "text-classification",
    "sentiment_analysis": "text-classification",
    "token_classification": "token-classification",
    "ner": "token-classification",
    "question_answering": "question-answering",
    "zero_shot_classification": "zero-shot-classification",
    "text_embedding": "text-embedding",
    "embed": "text-embedding",
    "feature_extraction": "text-embedding",
    "sentence_similarity": "text-embedding",
    "text_ranking": "text-ranking",
    "text_generation": "text-generation",
    "text2text_generation": "text-generation",
}
_PRECISIONS = {
    "float32": "fp32", "float": "fp32", "fp32": "fp32",
    "float16": "fp16", "half": "fp16", "fp16": "fp16",
    "int8": "int8", "auto": "auto",
}  # fmt: skip
_LONGEST_TIMEOUT = 600.0

PODS = "the chart's values say so for all endpoints"
SCALING = (
    "pods are shared by all endpoints: gateway.autoscaling and triton.autoscaling in the chart's "
    "values. Nothing is scaled to zero"
)


@dataclass(frozen=True)
class Options:
    """What a person says about the endpoint, in place of what the manifest says; empty: nothing."""

    name: str = ""
    model: str = ""
    task: str = ""


@dataclass(frozen=True)
class Translation:
    """An endpoint, and what is to be known about it.

    Attributes:
        endpoint: as it is to be applied.
        source: what it was made of, as ``InferenceService tone``.
        register: what is to be registered in MLflow before it can serve.
        changed: a sentence for each thing that means something else than it did.
        left_out: (where it stands in the manifest, why it was not carried over).
    """

    endpoint: ModelEndpoint
    source: str
    register: str
    changed: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


class Draft:
    """Collects an endpoint field by field, then gives the whole translation."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.serving: dict[str, Any] = {}
        self.limits: dict[str, Any] = {}
        self.rollout: dict[str, Any] = {}
        self.annotations: dict[str, str] = {}
        self.model = ""
        self.version: dict[str, str] = {}
        self.task = ""
        self.register = ""
        self._changed: list[str] = []
        self._left_out: list[tuple[str, str]] = []

    def note_change(self, sentence: str) -> None:
        """Says that something means something else than it did."""
        self._changed.append(sentence)

    def left_out(self, where: str, why: str) -> None:
        """Says that something was not carried over."""
        self._left_out.append((where, why))

    def left_of(self, part: ManifestMapping, reasons: Mapping[str, str]) -> None:
        """Reports what nobody took of a part; ``reasons`` are by the field's own name."""
        for path in part.list_left():
            name = path.rpartition(".")[2].partition("[")[0]
            if path.startswith("metadata.annotations."):
                self.left_out(path, "an annotation of another tool")
            else:
                self.left_out(path, reasons.get(name, "an endpoint has no such setting"))

    def took_head(self, head: ObjectHead) -> None:
        """Takes annotations, and says what becomes of the namespace."""
        self.annotations = dict(head.annotations)
        if head.namespace:
            self.left_out(
                "metadata.namespace",
                f"apply it where Headrace runs: headrace -n {head.namespace} apply -f FILE",
            )

    def took_task(self, where: str, word: str) -> None:
        """Takes a task by another server's word for it.

        Raises:
            RefusedError: Headrace serves nothing like it.
        """
        if not word:
            return
        task = _TASKS.get(word.lower().replace("-", "_"))
        if task is None:
            raise RefusedError(
                f"{self.source} asks for {word} ({where}), which Headrace does not serve. "
                "docs/supported-models.md lists the tasks that it does."
            )
        self.task = task

    def took_precision(self, where: str, word: str) -> None:
        """Takes a precision by another server's word for it."""
        precision = _PRECISIONS.get(word.lower())
        if precision is not None:
            self.serving["precision"] = precision
        elif word:
            self.left_out(where, f"there is no {word}; serving.precision is at auto")

    def took_timeout(self, where: str, seconds: float | None) -> None:
        """Takes the time for an answer, as far as an endpoint may have it."""
        if seconds is None:
            return
        self.limits["timeoutSeconds"] = min(seconds, _LONGEST_TIMEOUT)
        if seconds > _LONGEST_TIMEOUT:
            self.note_change(f"{where} is {seconds:g} s; an endpoint may take 600 s at most.")

    def to_whole_number(self, where: str, value: str) -> int:
        """A value as a whole number.

        Raises:
            RefusedError: it is none.
        """
        if not value.isdecimal():
            raise RefusedError(f"{self.source}: {where} is {value}, and must be a whole number.")
        return int(value)

    def took_canary(self, percent: float) -> None:
        """Takes the share of a canary as the first weight of rollouts."""
        if not 0 < percent < 100:
            return
        usual = [step for step in RolloutSpec().steps if isinstance(step, WeightStep)]
        weights = [percent, *(step.weight for step in usual if step.weight > percent)]
        self.rollout["steps"] = [{"shadow": 100}, *({"weight": weight} for weight in weights)]
        self.note_change(
            f"The canary's {percent:g} % became the first weight of every rollout. Headrace takes "
            "each further step by itself when its checks pass, and goes back when one fails."
        )

    def note_canary(self, told: str, uri: str) -> None:
        """Says what becomes of a canary's model; ``told`` names the canary."""
        if not uri:
            self.note_change(f"{told} has no model of its own, and an endpoint tries models only.")
        elif self.model and uri.startswith((f"models:/{self.model}/", f"models:/{self.model}@")):
            self.note_change(f"{told} is {uri}: name it in spec.version to try it.")
        else:
            self.note_change(
                f"{told} is {uri}: register it as a further version of the model to try it."
            )

    def took_storage(self, where: str, uri: str) -> None:
        """Takes where a model's files lie: what is to be registered in MLflow, and as what."""
        parts = urlsplit(uri)
        if parts.scheme == "models":
            name, _, version = (parts.netloc + parts.path).strip("/").partition("/")
            name, _, alias = name.partition("@")
            self.model = name
            self._took_registered_version(where, version, alias)
        elif uri:
            self.register = uri

    def _took_registered_version(self, where: str, version: str, alias: str) -> None:
        if alias:
            self.version = {"alias": alias}
        elif version.isdigit():
            self.version = {"pin": version}
        elif version and version.lower() != "latest":
            self.left_out(
                where,
                f"MLflow has no stages any more: follow an alias in place of {version}, "
                "spec.version: {alias: NAME}",
            )

    def finish(self, name: str, options: Options) -> Translation:
        """The translation, whose endpoint is one that ``headrace apply`` takes.

        Args:
            name: the name that it had.
            options: what a person says in place of the manifest.

        Raises:
            BadDocumentError: a value is out of an endpoint's bounds.
        """
        wanted = options.name or name
        is_valid = ENDPOINT_NAME.fullmatch(wanted) is not None
        short = wanted if is_valid else endpoint_name(wanted)
        if not is_valid:
            self.note_change(f"The name {wanted} became {short}, as it stands in URLs.")
        further = {
            "version": self.version,
            "task": options.task or self.task,
            "serving": self.serving,
            "rollout": self.rollout,
            "limits": self.limits,
        }
        spec: dict[str, Any] = {"model": options.model or self.model or short}
        spec |= {field: value for field, value in further.items() if value}
        try:
            endpoint = ModelEndpoint.model_validate({
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": short, "annotations": self.annotations},
                "spec": spec,
            })  # fmt: skip
        except ValidationError as error:
            raise BadDocumentError(_out_of_bounds(self.source, error)) from None
        return Translation(
            endpoint=endpoint,
            source=self.source,
            register=self.register,
            changed=tuple(self._changed),
            left_out=tuple(self._left_out),
        )


def _out_of_bounds(source: str, error: ValidationError) -> str:
    lines = [
        f"  {'.'.join(str(step) for step in each['loc'])}: {each['msg']}" for each in error.errors()
    ]
    return "\n".join([f"{source} asks for what an endpoint can't have:", *lines])


def check_translations(
    found: Sequence[Translation],
    others: Sequence[ManifestMapping],
    source: str,
    kind: str,
    options: Options,
) -> list[Translation]:
    """All that was found in a file; what else was in it is reported with the first.

    Raises:
        BadDocumentError: nothing was found.
        RefusedError: several were, and a person gave one name for all.
    """
    if not found:
        raise BadDocumentError(f"{source} holds no {kind}.")
    if len(found) > 1 and options.name:
        raise RefusedError(
            f"{source} holds {len(found)} models: --name is for one. Name them in the file."
        )
    left = tuple(
        (
            f"{other.text('kind') or 'a document'} {other.part('metadata').text('name')}".rstrip(),
            f"it is no {kind}",
        )
        for other in others
    )
    first = replace(found[0], left_out=(*found[0].left_out, *left))
    return [first, *found[1:]]

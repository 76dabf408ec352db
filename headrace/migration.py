"""From KServe's ``InferenceService`` (v1beta1) to an endpoint; pure, text in and objects out.

The new schema (``predictor.model``), the old one (``predictor.sklearn``), canaries of standard mode
and a container that runs KServe's Hugging Face server are read. What no field below takes is
reported by its path, so that nothing is lost without a word; values are not, as some are secrets.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from contracts.endpoint import API_VERSION, ModelEndpoint
from contracts.endpoint import KIND as ENDPOINT
from contracts.model import ENDPOINT_NAME, endpoint_name
from contracts.rollout import RolloutSpec, WeightStep
from contracts.validation_errors import join_path
from headrace.endpoints import document
from headrace.errors import BadDocumentError, RefusedError

KIND = "InferenceService"
_SERVED = frozenset({"huggingface", "sklearn", "xgboost", "lightgbm", "mlflow", "onnx", "triton"})
_OF_OLD = (
    "sklearn", "xgboost", "lightgbm", "onnx", "triton", "huggingface", "tensorflow", "pytorch",
    "paddle", "pmml",
)  # fmt: skip
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
# What Kubernetes writes into an object by itself, and tools beside it.
_WRITTEN_BY_KUBERNETES = frozenset({
    "creationTimestamp", "finalizers", "generation", "managedFields", "ownerReferences",
    "resourceVersion", "selfLink", "uid",
})  # fmt: skip
_DOMAINS_OF_TOOLS = re.compile(
    r"(^|\.)(kubernetes\.io|k8s\.io|kserve\.io|kubeflow\.org|knative\.dev|istio\.io|seldon\.io|helm\.sh"
    r"|argoproj\.io|headrace\.dev)$"
)
_PODS = "the chart's values say so for all endpoints"
_SCALING = (
    "pods are shared by all endpoints: gateway.autoscaling and triton.autoscaling in the chart's "
    "values. Nothing is scaled to zero"
)
_OF_ALL_VERSIONS = "an endpoint's settings hold for all its versions"
# Why a field is left out, by its own name.
_REASONS: Mapping[str, str] = {
    "minReplicas": _SCALING,
    "maxReplicas": _SCALING,
    "scaleTarget": _SCALING,
    "scaleMetric": _SCALING,
    "autoScaling": _SCALING,
    "containerConcurrency": "admission counts tokens: spec.limits.maxTokensInFlight",
    "logger": "every answer is an event in Kafka already (docs/folding.md); texts are in none",
    "explainer": "Headrace explains no answers",
    "transformer": "write it as a preprocessor (docs/preprocessors.md); tokenising needs none",
    "maxLatency": "a batch goes as soon as an engine is free, without a time to wait",
    "resources": f"{_PODS}: triton.resources, triton.gpus",
    "serviceAccountName": f"{_PODS}: packages.serviceAccountAnnotations, mlflow.existingSecret",
    "nodeSelector": f"{_PODS}: triton.scheduling",
    "tolerations": f"{_PODS}: triton.scheduling",
    "affinity": f"{_PODS}: triton.scheduling",
    "priorityClassName": f"{_PODS}: triton.scheduling",
    "runtimeClassName": f"{_PODS}: triton.scheduling",
    "topologySpreadConstraints": f"{_PODS}: triton.scheduling",
    "imagePullSecrets": f"{_PODS}: images.pullSecrets",
    "env": f"{_PODS}: triton.pod.env",
    "labels": "labels of the endpoint: add them with kubectl label mep",
    "annotations": f"{_PODS}: triton.pod.annotations",
    "runtime": "Triton runs every model",
    "runtimeVersion": f"{_PODS}: triton.image",
    "image": "Triton runs every model",
    "protocolVersion": "every endpoint answers both protocols",
    "workerSpec": "a model runs within one pod",
    "deploymentStrategy": "pods are replaced one by one; models are rolled out by spec.rollout",
    "key": "the chart's packages.existingSecret reads the store",
    "timeout": _OF_ALL_VERSIONS,  # of a canary, as the next
    "args": _OF_ALL_VERSIONS,
}
_ARGUMENTS: Mapping[str, str] = {
    "trust_remote_code": "code of a model is refused, unless conversion.allowRemoteCode is set",
    "disable_lower_case": "the model's own tokeniser says so",
    "do_lower_case": "the model's own tokeniser says so",
    "disable_special_tokens": "special tokens are always added",
    "add_special_tokens": "special tokens are always added",
    "model_revision": "register the files of that revision",
    "tokenizer_revision": "register the files of that revision",
    "backend": "Triton runs every model",
    "return_probabilities": "classifiers always answer probabilities",
    "return_raw_logits": "classifiers always answer probabilities",
    "tensor_input_names": "the graph says it",
    "return_token_type_ids": "the graph says it",
    "predictor_host": "the gateway finds its Tritons",
    "predictor_protocol": "the gateway finds its Tritons",
}
_NEEDLESS = frozenset({"model_dir"})
_FORM = "(form)"  # no field of a manifest


class _Part(BaseModel):
    """A mapping of a manifest, with the fields that are used."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)

    def list_left(self, path: str = "") -> Iterator[str]:
        """The paths of what no field takes, here and below."""
        yield from (f"{path}{name}" for name in self.model_extra or ())
        for name in type(self).model_fields:
            value = getattr(self, name)
            where = f"{path}{getattr(self, 'form', name) if name == 'model' else name}"
            if isinstance(value, _Part):
                yield from value.list_left(f"{where}.")
            elif name == "canary":
                for at, each in enumerate(value):
                    yield from each.list_left(f"{where}[{at}].")


class _ModelFormat(_Part):
    name: str = ""
    version: Any = None


class _Storage(_Part):
    path: str = ""


class _ModelFiles(_Part):
    modelFormat: _ModelFormat = _ModelFormat()  # noqa: N815 - KServe's names, here and below
    storageUri: str = ""  # noqa: N815
    storage: _Storage = _Storage()

    @property
    def uri(self) -> str:
        """Where its files lie; empty if it does not say so."""
        return self.storageUri or self.storage.path


class _ServedModel(_ModelFiles):
    name: Any = None  # of the container
    command: list[str] = []
    args: list[str] = []


class _OfOneForm(_Part):
    """A predictor with its model, whichever of three forms it has.

    ``form`` is where the model stands: ``model``, the name of its format in the old schema, or a
    container.
    """

    form: str = Field("model", alias=_FORM)

    @model_validator(mode="before")
    @classmethod
    def _read_forms(cls, value: Any) -> Any:  # noqa: ANN401 - before it is validated
        if not isinstance(value, dict) or "model" in value:
            return value
        containers = value.get("containers")
        apart = {
            f"containers[{at}]": each
            for at, each in enumerate(containers if isinstance(containers, list) else ())
        }
        server = (at for at, each in apart.items() if "huggingfaceserver" in str(each))
        form = next((name for name in _OF_OLD if name in value), None) or next(server, None)
        if form is None:
            return value
        if form in apart:
            value = {name: each for name, each in value.items() if name != "containers"} | apart
        others = {name: each for name, each in value.items() if name != form}
        return {**others, "model": value[form], _FORM: form}


class _Batcher(_Part):
    maxBatchSize: float | None = None  # noqa: N815
    timeout: float | None = None


class _Predictor(_OfOneForm):
    timeout: float | None = None
    canaryTrafficPercent: float = 0  # noqa: N815
    batcher: _Batcher = _Batcher()
    model: _ServedModel | None = None


class _CanaryPredictor(_OfOneForm):
    """Is laid over the first predictor, so that it may name no model."""

    name: str = ""
    model: _ModelFiles = _ModelFiles()


class _Canary(_Part):
    trafficPercent: float = 0  # noqa: N815
    predictor: _CanaryPredictor = _CanaryPredictor()


class _Spec(_Part):
    predictor: _Predictor = _Predictor()
    canary: list[_Canary] = []


class _Metadata(_Part):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] = {}


class _Service(_Part):
    apiVersion: Any = None  # noqa: N815
    kind: str = ""
    status: Any = None
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


@dataclass(frozen=True)
class Options:
    """What a person says about the endpoint, in place of what the manifest says; empty: nothing."""

    name: str = ""
    model: str = ""
    task: str = ""


@dataclass
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
    register: str = ""
    changed: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def translate(text: str, source: str, options: Options) -> list[Translation]:
    """Each InferenceService of a YAML text as an endpoint; objects of other kinds are reported.

    Raises:
        BadDocumentError: there is none, or one can't be read.
        RefusedError: Headrace can't serve such a model, or a person gave one name for several.
    """
    documents = _documents(text, source)
    services = [each for each in documents if each.get("kind") == KIND]
    if not services:
        raise BadDocumentError(f"{source} holds no {KIND}.")
    if len(services) > 1 and options.name:
        raise RefusedError(
            f"{source} holds {len(services)} models: --name is for one. Name them in the file."
        )
    found = [_Draft(_parse(each)).finish(options) for each in services]
    for other in documents:
        if other not in services:
            name = str((other.get("metadata") or {}).get("name", ""))
            what = f"{other.get('kind', 'a document')} {name}".rstrip()
            found[0].left_out.append((what, f"it is no {KIND}"))
    return found


def _documents(text: str, source: str) -> list[dict[str, Any]]:
    """The documents of a YAML text; the items of a ``List`` are documents too."""
    try:
        found = [each for each in yaml.safe_load_all(text) if each is not None]
    except (yaml.YAMLError, ValueError) as error:
        raise BadDocumentError(f"{source} is no YAML: {error}") from None
    whole = []
    for each in found:
        items = each.get("items") if isinstance(each, dict) and each.get("kind") == "List" else None
        whole += items if isinstance(items, list) else [each]
    if not whole:
        raise BadDocumentError(f"{source} holds no document.")
    if not all(isinstance(each, dict) for each in whole):
        raise BadDocumentError(f"{source}: a manifest begins with apiVersion, kind and metadata.")
    return whole


def _parse(manifest: dict[str, Any]) -> _Service:
    try:
        return _Service.model_validate(_without_empty(manifest))
    except ValidationError as error:
        lines = [f"{join_path(each['loc'])}: {each['msg']}." for each in error.errors()]
        raise BadDocumentError("\n".join(lines)) from None


def _without_empty(value: Any) -> Any:  # noqa: ANN401 - a YAML value
    """Without the fields that hold nothing, which are as good as missing."""
    if isinstance(value, dict):
        made = {str(name): _without_empty(each) for name, each in value.items()}
        return {name: each for name, each in made.items() if each not in (None, "", [], {})}
    return [_without_empty(each) for each in value] if isinstance(value, list) else value


class _Draft:
    """Collects an endpoint field by field, then gives the whole translation."""

    def __init__(self, service: _Service) -> None:
        self._service = service
        self._source = f"{KIND} {service.metadata.name}"
        self._spec: dict[str, Any] = {}
        self._register = ""
        self._changed: list[str] = []
        self._left_out: list[tuple[str, str]] = []

    def finish(self, options: Options) -> Translation:
        """The translation, whose endpoint is one that ``headrace apply`` takes."""
        annotations = self._take_metadata()
        predictor = self._service.spec.predictor
        self._take_timeout("predictor.timeout", predictor.timeout)
        self._take_timeout("predictor.batcher.timeout", predictor.batcher.timeout)
        if predictor.batcher.maxBatchSize is not None:
            self._set("serving", "maxBatchSize", int(predictor.batcher.maxBatchSize))
        self._take_model(predictor)
        shares = [predictor.canaryTrafficPercent]
        shares += [self._take_canary(each) for each in self._service.spec.canary]
        self._take_share(min((share for share in shares if share > 0), default=0))
        self._report_left()
        wanted = options.name or self._service.metadata.name
        name = wanted if ENDPOINT_NAME.fullmatch(wanted) else endpoint_name(wanted)
        if name != wanted:
            self._changed.append(f"The name {wanted} became {name}, as it stands in URLs.")
        given = {"model": options.model, "task": options.task}
        self._spec |= {key: value for key, value in given.items() if value}
        endpoint = document.check_endpoint(
            {
                "apiVersion": API_VERSION,
                "kind": ENDPOINT,
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"model": name, **self._spec},
            },
            f"The endpoint of {self._source}",
        )
        return Translation(endpoint, self._source, self._register, self._changed, self._left_out)

    def _set(self, part: str, name: str, value: object) -> None:
        self._spec.setdefault(part, {})[name] = value

    def _take_metadata(self) -> dict[str, str]:
        """Says what becomes of the namespace, and gives the annotations that people wrote."""
        metadata = self._service.metadata
        if metadata.namespace:
            advice = f"apply it where Headrace runs: headrace -n {metadata.namespace} apply -f FILE"
            self._left_out.append(("metadata.namespace", advice))
        kept = {}
        for key, value in metadata.annotations.items():
            domain = key.partition("/")[0] if "/" in key else ""
            if not _DOMAINS_OF_TOOLS.search(domain):
                kept[key] = value
            elif domain != "kubectl.kubernetes.io":
                where = f"metadata.annotations.{key}"
                self._left_out.append((where, "an annotation of another tool"))
        return kept

    def _report_left(self) -> None:
        for path in self._service.list_left():
            name = path.rpartition(".")[2].partition("[")[0]
            if path.rpartition(".")[0] != "metadata" or name not in _WRITTEN_BY_KUBERNETES:
                why = _REASONS.get(name, "an endpoint has no such setting")
                self._left_out.append((path, why))

    def _take_timeout(self, where: str, seconds: float | None) -> None:
        if seconds is None:
            return
        self._set("limits", "timeoutSeconds", min(seconds, _LONGEST_TIMEOUT))
        if seconds > _LONGEST_TIMEOUT:
            self._changed.append(f"{where} is {seconds:g} s; an endpoint may take 600 s at most.")

    def _take_model(self, predictor: _Predictor) -> None:
        """Takes the model of a predictor, in whichever of its three forms it is written."""
        model, form = predictor.model, predictor.form
        where = f"spec.predictor.{form}"
        if model is None and "containers" in (predictor.model_extra or ()):
            raise RefusedError(
                f"{self._source} runs a container of your own. Headrace runs models from MLflow: "
                "register the model, and write what the container does to texts as a preprocessor "
                "(docs/preprocessors.md)."
            )
        if model is None:
            raise RefusedError(f"{self._source} names no model.")
        if form.startswith("containers"):
            form = "huggingface"
        elif form == "model":
            form = model.modelFormat.name
        else:
            self._changed.append(
                f"predictor.{form} is KServe's old schema; it was read all the same."
            )
        if form not in _SERVED:
            raise RefusedError(
                f"{self._source} is a model of the format {form or '(none)'}, which Headrace does "
                f"not serve. It serves: {', '.join(sorted(_SERVED))}. Another may be exported to "
                "ONNX."
            )
        if form == "triton":
            self._changed.append(
                "A folder of Triton's is not read: register the ONNX graph or the Hugging Face "
                "model that it was made of."
            )
        self._take_storage(f"{where}.storageUri", model.uri)
        self._take_arguments(f"{where}.args", flags([*model.command, *model.args]))

    def _take_storage(self, where: str, uri: str) -> None:
        """Takes where a model's files lie: what is to be registered in MLflow, and as what."""
        parts = urlsplit(uri)
        if parts.scheme != "models":
            self._register = uri
            return
        name, _, version = (parts.netloc + parts.path).strip("/").partition("/")
        name, _, alias = name.partition("@")
        self._spec["model"] = name
        if alias:
            self._spec["version"] = {"alias": alias}
        elif version.isdigit():
            self._spec["version"] = {"pin": version}
        elif version and version.lower() != "latest":
            why = (
                f"MLflow has no stages any more: follow an alias in place of {version}, "
                "spec.version: {alias: NAME}"
            )
            self._left_out.append((where, why))

    def _take_arguments(self, where: str, given: dict[str, str]) -> None:
        """Takes the arguments of KServe's Hugging Face server."""
        for name, value in given.items():
            place = f"{where} --{name}"
            if name == "model_id":
                self._register = self._register or value
            elif name == "model_name":
                self._changed.append(
                    f"Callers name the endpoint and not {value} (--model_name): "
                    "/v1/models/ENDPOINT:predict."
                )
            elif name == "task":
                self._take_task(place, value)
            elif name == "dtype" and value.lower() in _PRECISIONS:
                self._set("serving", "precision", _PRECISIONS[value.lower()])
            elif name == "dtype":
                why = f"there is no {value}; serving.precision is at auto"
                self._left_out.append((place, why))
            elif name in {"max_length", "max_model_len", "max_sequence_length"}:
                if not value.isdecimal():
                    raise RefusedError(
                        f"{self._source}: {place} is {value}, and must be a whole number."
                    )
                self._set("serving", "maxTokens", int(value))
            elif name not in _NEEDLESS:
                why = _ARGUMENTS.get(name, "Triton and the gateway have no such flag")
                self._left_out.append((place, why))

    def _take_task(self, where: str, word: str) -> None:
        task = _TASKS.get(word.lower().replace("-", "_"))
        if task is None:
            raise RefusedError(
                f"{self._source} asks for {word} ({where}), which Headrace does not serve. "
                "docs/supported-models.md lists the tasks that it does."
            )
        self._spec["task"] = task

    def _take_canary(self, canary: _Canary) -> float:
        """Says what becomes of a canary of standard mode, and gives its share."""
        uri, share = canary.predictor.model.uri, canary.trafficPercent
        told, model = f"The canary {canary.predictor.name} ({share:g} %)", self._spec.get("model")
        if not uri:
            said = "has no model of its own, and an endpoint tries models only."
        elif model and uri.startswith((f"models:/{model}/", f"models:/{model}@")):
            said = f"is {uri}: name it in spec.version to try it."
        else:
            said = f"is {uri}: register it as a further version of the model to try it."
        self._changed.append(f"{told} {said}")
        return share

    def _take_share(self, percent: float) -> None:
        """Takes the share of a canary as the first weight of rollouts."""
        if not 0 < percent < 100:
            return
        usual = [step for step in RolloutSpec().steps if isinstance(step, WeightStep)]
        weights = [percent, *(step.weight for step in usual if step.weight > percent)]
        steps = [{"shadow": 100}, *({"weight": weight} for weight in weights)]
        self._set("rollout", "steps", steps)
        self._changed.append(
            f"The canary's {percent:g} % became the first weight of every rollout. Headrace takes "
            "each further step by itself when its checks pass, and goes back when one fails."
        )


def flags(words: Sequence[str]) -> dict[str, str]:
    """The flags of a command line, without their dashes and with ``_`` for ``-``.

    ``--name value``, ``--name=value`` and a bare ``--name`` are read; the last has the value
    "true". ``-p`` is read like ``--p``. Words that belong to no flag are left out.

    >>> flags(["--model-id", "a/b", "--auto-truncate", "--dtype=float16"])
    {'model_id': 'a/b', 'auto_truncate': 'true', 'dtype': 'float16'}
    """
    found: dict[str, str] = {}
    last = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name, given, value = word.lstrip("-").partition("=")
            last = name.replace("-", "_")
            found[last] = value if given else "true"
            if given:
                last = ""
        elif last:
            found[last] = word
            last = ""
    return found

"""From KServe's ``InferenceService`` (v1beta1) to an endpoint.

The new schema (``predictor.model``), the old one (``predictor.sklearn``) and a container that runs
KServe's Hugging Face server are read.
"""

from collections.abc import Mapping

from headrace.errors import RefusedError
from headrace.migration.draft import PODS, SCALING, Draft, Options, Translation, check_translations
from headrace.migration.source import ManifestMapping, ObjectHead, documents, flags

KIND = "InferenceService"
_SERVED = frozenset({"huggingface", "sklearn", "xgboost", "lightgbm", "mlflow", "onnx", "triton"})
_OF_OLD = (
    "sklearn", "xgboost", "lightgbm", "onnx", "triton", "huggingface", "tensorflow", "pytorch",
    "paddle", "pmml",
)  # fmt: skip
_REASONS: Mapping[str, str] = {
    "minReplicas": SCALING,
    "maxReplicas": SCALING,
    "scaleTarget": SCALING,
    "scaleMetric": SCALING,
    "autoScaling": SCALING,
    "containerConcurrency": "admission counts tokens: spec.limits.maxTokensInFlight",
    "logger": "every answer is an event in Kafka already (docs/folding.md); texts are in none",
    "explainer": "Headrace explains no answers",
    "transformer": "write it as a preprocessor (docs/preprocessors.md); tokenising needs none",
    "maxLatency": "a batch goes as soon as an engine is free, without a time to wait",
    "resources": f"{PODS}: triton.resources, triton.gpus",
    "serviceAccountName": f"{PODS}: packages.serviceAccountAnnotations, mlflow.existingSecret",
    "nodeSelector": f"{PODS}: triton.scheduling",
    "tolerations": f"{PODS}: triton.scheduling",
    "affinity": f"{PODS}: triton.scheduling",
    "priorityClassName": f"{PODS}: triton.scheduling",
    "runtimeClassName": f"{PODS}: triton.scheduling",
    "topologySpreadConstraints": f"{PODS}: triton.scheduling",
    "imagePullSecrets": f"{PODS}: images.pullSecrets",
    "env": f"{PODS}: triton.pod.env",
    "labels": "labels of the endpoint: add them with kubectl label mep",
    "annotations": f"{PODS}: triton.pod.annotations",
    "runtime": "Triton runs every model",
    "runtimeVersion": f"{PODS}: triton.image",
    "image": "Triton runs every model",
    "protocolVersion": "every endpoint answers both protocols",
    "workerSpec": "a model runs within one pod",
    "deploymentStrategy": "pods are replaced one by one; models are rolled out by spec.rollout",
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


def translate(text: str, source: str, options: Options) -> list[Translation]:
    """Each InferenceService of a YAML text as an endpoint; objects of other kinds are reported.

    Raises:
        BadDocumentError: there is none, or one can't be read.
        RefusedError: Headrace can't serve such a model.
    """
    found: list[ManifestMapping] = []
    others: list[ManifestMapping] = []
    for document in documents(text, source):
        (found if document.take("kind") == KIND else others).append(document)
    done = []
    for document in found:
        draft, name = _draft(document)
        draft.left_of(document, _REASONS)
        done.append(draft.finish(name, options))
    return check_translations(done, others, source, KIND, options)


def _draft(document: ManifestMapping) -> tuple[Draft, str]:
    head = ObjectHead(document)
    draft = Draft(f"{KIND} {head.name}")
    draft.took_head(head)
    predictor = document.part("spec").part("predictor")
    draft.took_timeout("predictor.timeout", predictor.number("timeout"))
    shares = [predictor.number("canaryTrafficPercent") or 0]
    batcher = predictor.part("batcher")
    rows = batcher.number("maxBatchSize")
    if rows is not None:
        draft.serving["maxBatchSize"] = int(rows)
    draft.took_timeout("predictor.batcher.timeout", batcher.number("timeout"))
    _take_model(draft, predictor)
    shares += [_take_canary(draft, each) for each in document.part("spec").parts("canary")]
    draft.took_canary(min((share for share in shares if share > 0), default=0))
    return draft, head.name


def _take_canary(draft: Draft, canary: ManifestMapping) -> float:
    """Says what becomes of a canary of standard mode, and gives its share.

    A canary is a predictor laid over the first one, so that it may name no model.
    """
    share, predictor = canary.number("trafficPercent") or 0, canary.part("predictor")
    model = predictor.part(next((name for name in _OF_OLD if name in predictor), "model"))
    for name in ("name", "version"):
        model.part("modelFormat").take(name)
    draft.note_canary(
        f"The canary {predictor.text('name')} ({share:g} %)",
        model.text("storageUri") or model.part("storage").text("path"),
    )
    for part, name in ((predictor, "timeout"), (model, "args")):
        if name in part:
            part.take(name)
            draft.left_out(part.path_of(name), "an endpoint's settings hold for all its versions")
    return share


def _take_model(draft: Draft, predictor: ManifestMapping) -> None:
    """Takes the model of a predictor, in whichever of its three forms it is written."""
    if "model" in predictor:
        model = predictor.part("model")
        model_format = model.part("modelFormat")
        model_format.take("version")
        kind = model_format.text("name")
    elif old := next((name for name in _OF_OLD if name in predictor), ""):
        model, kind = predictor.part(old), old
        draft.note_change(f"predictor.{old} is KServe's old schema; it was read all the same.")
    else:
        model, kind = _server_of_hugging_face(draft, predictor), "huggingface"
    if kind not in _SERVED:
        raise RefusedError(
            f"{draft.source} is a model of the format {kind or '(none)'}, which Headrace does not "
            f"serve. It serves: {', '.join(sorted(_SERVED))}. Another may be exported to ONNX."
        )
    if kind == "triton":
        draft.note_change(
            "A folder of Triton's is not read: register the ONNX graph or the Hugging Face model "
            "that it was made of."
        )
    model.take("name")  # of the container
    _take_storage(draft, model)
    _take_arguments(
        draft, model.path_of("args"), flags([*model.texts("command"), *model.texts("args")])
    )


def _take_storage(draft: Draft, model: ManifestMapping) -> None:
    draft.took_storage(model.path_of("storageUri"), model.text("storageUri"))
    storage = model.part("storage")
    path = storage.text("path")
    if path and not draft.register:
        draft.register = path
    if "key" in storage:
        storage.take("key")
        draft.left_out(
            storage.path_of("key"), "the chart's packages.existingSecret reads the store"
        )


def _server_of_hugging_face(draft: Draft, predictor: ManifestMapping) -> ManifestMapping:
    containers = predictor.parts("containers")
    for container in containers:
        if "huggingfaceserver" in container.text("image"):
            return container
    if not containers:
        raise RefusedError(f"{draft.source} names no model.")
    raise RefusedError(
        f"{draft.source} runs a container of your own. Headrace runs models from MLflow: register "
        "the model, and write what the container does to texts as a preprocessor "
        "(docs/preprocessors.md)."
    )


def _take_arguments(draft: Draft, where: str, given: dict[str, str]) -> None:
    """Takes the arguments of KServe's Hugging Face server."""
    for name, value in given.items():
        place = f"{where} --{name}"
        if name == "model_id":
            draft.register = draft.register or value
        elif name == "model_name":
            draft.note_change(
                f"Callers name the endpoint and not {value} (--model_name): "
                "/v1/models/ENDPOINT:predict."
            )
        elif name == "task":
            draft.took_task(place, value)
        elif name == "dtype":
            draft.took_precision(place, value)
        elif name in {"max_length", "max_model_len", "max_sequence_length"}:
            draft.serving["maxTokens"] = draft.to_whole_number(place, value)
        elif name not in _NEEDLESS:
            draft.left_out(place, _ARGUMENTS.get(name, "Triton and the gateway have no such flag"))

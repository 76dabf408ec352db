"""From Text Embeddings Inference to an endpoint: its command line, or a manifest that runs it.

Every option may be an argument, or a variable of the environment by the same name in capitals.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from headrace.errors import BadDocumentError
from headrace.migration.draft import PODS, SCALING, Draft, Options, Translation, checked
from headrace.migration.source import ObjectHead, Part, documents, flags

_IMAGE = "text-embeddings-inference"
_PROGRAM = "text-embeddings-router"
_KINDS = ("Deployment", "StatefulSet", "DaemonSet", "Pod")
_WHAT = "Text Embeddings Inference"
_FILES = "the model's own files say so"
_REASONS: Mapping[str, str] = {
    "replicas": SCALING,
    "selector": PODS,
    "strategy": "pods are replaced one by one; models are rolled out by spec.rollout",
    "resources": f"{PODS}: triton.resources",
    "nodeSelector": f"{PODS}: triton.scheduling",
    "tolerations": f"{PODS}: triton.scheduling",
    "affinity": f"{PODS}: triton.scheduling",
    "runtimeClassName": f"{PODS}: triton.scheduling",
    "volumes": "packages come from the package store: packages.storeUrl",
    "volumeMounts": "packages come from the package store: packages.storeUrl",
    "ports": "gateways have ports of their own: gateway.service",
    "readinessProbe": "the chart has its own",
    "livenessProbe": "the chart has its own",
    "startupProbe": "the chart has its own",
    "env": f"{PODS}: gateway.pod.env, triton.pod.env",
    "labels": "labels of the endpoint: add them with kubectl label mep",
}
_OPTIONS: Mapping[str, str] = {
    "revision": "register the files of that revision",
    "tokenization_workers": "gateways tokenise: gateway.replicas",
    "dense_path": _FILES,
    "max_concurrent_requests": "admission counts tokens: spec.limits.maxTokensInFlight",
    "max_batch_tokens": "batches are bounded by rows (spec.serving.maxBatchSize) and by length",
    "auto_truncate": "longer texts are always cut off, and the answer says so",
    "default_prompt": "config_sentence_transformers.json of the model says so",
    "default_prompt_name": "config_sentence_transformers.json of the model says so",
    "hf_api_token": "nothing is fetched from the Hub: versions come from MLflow",
    "hf_token": "nothing is fetched from the Hub: versions come from MLflow",
    "hostname": PODS,
    "port": f"{PODS}: gateway.service",
    "p": f"{PODS}: gateway.service",
    "uds_path": "Triton has no such socket",
    "huggingface_hub_cache": "packages come from the package store: packages.storeUrl",
    "payload_limit": f"{PODS}: gateway.maxBodyBytes",
    "api_key": "API keys: headrace keys create, gateway.keys.existingSecret",
    "json_output": "logs are JSON",
    "disable_spans": "logs have no spans",
    "otlp_endpoint": f"{PODS}: gateway.traces.endpoint",
    "otlp_service_name": f"{PODS}: gateway.traces.endpoint",
    "prometheus_port": "gateways have an operations port: 9310",
    "cors_allow_origin": "gateways answer no browsers of other origins: a proxy in front can",
}


def translate(text: str, source: str, options: Options) -> list[Translation]:
    """Each pod template of a YAML text that runs Text Embeddings Inference, as an endpoint.

    Raises:
        BadDocumentError: there is none, or one can't be read.
    """
    done, others = [], []
    for document in documents(text, source):
        containers = _containers(document) if document.take("kind") in _KINDS else []
        chosen = [each for each in containers if _runs_it(each)]
        if chosen:
            done.append(_of_container(document, chosen[0], options))
        else:
            others.append(document)
    return checked(done, others, source, (f"pod that runs {_WHAT}",), options)


def translate_command(words: Sequence[str], options: Options) -> list[Translation]:
    """A command line that starts Text Embeddings Inference, with or without ``docker run``.

    Raises:
        BadDocumentError: it does not start it.
    """
    start = next((n for n, word in enumerate(words) if _IMAGE in word or _PROGRAM in word), None)
    if start is None and not any(word.startswith("--model-id") for word in words):
        raise BadDocumentError(
            f"The command names neither an image {_IMAGE} nor {_PROGRAM} nor --model-id."
        )
    before = words[: start or 0]
    after = words if start is None else words[start + 1 :]
    given = {**_environment(before), **flags(after)}
    draft = Draft(_WHAT)
    if start and any(word.startswith(("--gpus", "--runtime")) for word in before):
        draft.left_out("--gpus", f"{PODS}: triton.gpus")
    return [_finished(draft, "", given, options)]


def _environment(words: Sequence[str]) -> dict[str, str]:
    """What ``-e NAME=VALUE`` and ``--env`` say, as options."""
    joined = " ".join(words)
    found = re.findall(r"(?:^| )(?:-e|--env)[ =]([A-Z_]+)=(\S*)", joined)
    return {name.lower(): value for name, value in found if name.lower() in _KNOWN}


def _containers(document: Part) -> list[Part]:
    spec = document.part("spec")
    if "template" not in spec:
        return spec.parts("containers")
    template = spec.part("template")
    template.take("metadata")
    return template.part("spec").parts("containers")


def _runs_it(container: Part) -> bool:
    words = [container.text("image"), *container.texts("command"), *container.texts("args")]
    return any(_IMAGE in word or _PROGRAM in word for word in words)


def _of_container(document: Part, container: Part, options: Options) -> Translation:
    head = ObjectHead(document)
    draft = Draft(f"{document.text('kind')} {head.name}")
    draft.took_head(head)
    container.take("name")
    container.take("imagePullPolicy")
    given = flags([*container.texts("command"), *container.texts("args")])
    for variable in container.parts("env"):
        name = variable.text("name")
        if name.lower() in _KNOWN:
            value = variable.text("value")
            variable.take("valueFrom")
            given.setdefault(name.lower(), value)
        else:
            variable.take("value")
            variable.take("valueFrom")
            draft.left_out(f"{variable.path} {name}", _REASONS["env"])
    return _finished(draft, head.name, given, options, document)


def _finished(
    draft: Draft,
    name: str,
    given: Mapping[str, str],
    options: Options,
    document: Part | None = None,
) -> Translation:
    for option, value in given.items():
        place = f"--{option.replace('_', '-')}" if len(option) > 1 else f"-{option}"
        take = _TAKEN.get(option)
        if take is not None:
            take(draft, place, value)
        else:
            draft.left_out(place, _OPTIONS.get(option, "Headrace has no such option"))
    if not draft.register:
        draft.changed("The command names no model; its default was an embedding model of the Hub.")
    if not (draft.task or options.task):
        draft.changed(
            "The task is told from the model's config.json. For a reranker give --task "
            "text-ranking, else its one label is a class."
        )
    if document is not None:
        draft.left_of(document, _REASONS)
    served = given.get("served_model_name", "")
    model = draft.register.rstrip("/").rpartition("/")[2]
    return draft.finished(name or served or model or "embeddings", options)


def _take_model(draft: Draft, place: str, value: str) -> None:
    draft.took_storage(place, value)


def _take_precision(draft: Draft, place: str, value: str) -> None:
    draft.took_precision(place, value)


def _take_pooling(draft: Draft, place: str, value: str) -> None:
    if value == "splade":
        draft.task = "sparse-embedding"
    else:
        draft.left_out(place, f"{_FILES}: save the model with modules.json that says {value}")


def _take_texts(draft: Draft, place: str, value: str) -> None:
    draft.limits["maxTextsPerRequest"] = draft.whole(place, value)


def _take_rows(draft: Draft, place: str, value: str) -> None:
    draft.serving["maxBatchSize"] = draft.whole(place, value)


def _take_name(draft: Draft, _place: str, value: str) -> None:
    draft.changed(f"OpenAI's clients name the endpoint as their model, in place of {value}.")


_TAKEN: Mapping[str, Callable[[Draft, str, str], None]] = {
    "model_id": _take_model,
    "dtype": _take_precision,
    "pooling": _take_pooling,
    "max_client_batch_size": _take_texts,
    "max_batch_requests": _take_rows,
    "served_model_name": _take_name,
}
_KNOWN = frozenset({*_TAKEN, *_OPTIONS})

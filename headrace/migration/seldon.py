"""From Seldon to endpoints: Core 1's ``SeldonDeployment``, Core 2's ``Model`` and ``Experiment``.

Several predictors of a deployment, or several candidates of an experiment, are versions of one
registered model here: the one with most traffic becomes the endpoint, the others are reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import BadDocumentError, RefusedError
from headrace.migration.draft import PODS, SCALING, Draft, Options, Translation, checked
from headrace.migration.source import ObjectHead, Part, documents

DEPLOYMENT = "SeldonDeployment"
MODEL = "Model"
EXPERIMENT = "Experiment"
_SERVERS: Mapping[str, str] = {
    "HUGGINGFACE_SERVER": "huggingface",
    "MLFLOW_SERVER": "mlflow",
    "SKLEARN_SERVER": "sklearn",
    "XGBOOST_SERVER": "xgboost",
    "TRITON_SERVER": "triton",
}
_SERVED = frozenset({"huggingface", "sklearn", "xgboost", "lightgbm", "mlflow", "onnx", "triton"})
_REASONS: Mapping[str, str] = {
    "replicas": SCALING,
    "minReplicas": SCALING,
    "maxReplicas": SCALING,
    "componentSpecs": f"{PODS}: triton.resources, triton.scheduling, triton.autoscaling",
    "svcOrchSpec": "there is no orchestrator: the gateway asks Triton itself",
    "engineResources": "there is no orchestrator: the gateway asks Triton itself",
    "explainer": "Headrace explains no answers",
    "logger": "every answer is an event in Kafka already (docs/folding.md); texts are in none",
    "envSecretRefName": f"{PODS}: packages.existingSecret, mlflow.existingSecret",
    "storageInitializerImage": "conversion reads the files, from MLflow",
    "serviceAccountName": f"{PODS}: packages.serviceAccountAnnotations",
    "secretName": f"{PODS}: packages.existingSecret, mlflow.existingSecret",
    "memory": f"{PODS}: triton.resources",
    "server": "every Triton holds every model",
    "dataflow": "an endpoint is one model, without a pipeline around it",
    "labels": "labels of the endpoint: add them with kubectl label mep",
    "annotations": f"{PODS}: triton.pod.annotations",
    "protocol": "every endpoint answers each of its protocols",
    "transport": "every endpoint answers HTTP and gRPC",
    "oauth_key": "API keys: headrace keys create",
    "oauth_secret": "API keys: headrace keys create",
    "ssl": f"{PODS}: gateway.tls",
}
_NAMED: Mapping[str, str] = {
    "pretrained_tokenizer": "the tokeniser is a part of the registered version",
    "optimum_model": "conversion makes an ONNX graph of every model",
    "max_batch_size": "",
    "framework": "Triton runs every model",
}


@dataclass(frozen=True)
class _Trial:
    """An experiment of Core 2, on its default model."""

    document: Part
    name: str
    default: str
    weights: Mapping[str, float]
    mirror: tuple[str, float]


def translate(text: str, source: str, options: Options) -> list[Translation]:
    """Each deployment and model of a YAML text as an endpoint; other objects are reported.

    Raises:
        BadDocumentError: there is none, or one can't be read.
        RefusedError: Headrace can't serve such a model.
    """
    by_kind: dict[str, list[Part]] = {DEPLOYMENT: [], MODEL: [], EXPERIMENT: []}
    others: list[Part] = []
    for document in documents(text, source):
        by_kind.get(document.text("kind"), others).append(document)
    models = {ObjectHead(document).name: document for document in by_kind[MODEL]}
    if len(models) < len(by_kind[MODEL]):
        raise BadDocumentError(f"{source}: two of its Models have one name.")
    trials = [_trial(document) for document in by_kind[EXPERIMENT]]
    others += [trial.document for trial in trials if trial.default not in models]
    by_default = {trial.default: trial for trial in trials if trial.default in models}
    done = [
        _finished(document, *_deployment(document), options) for document in by_kind[DEPLOYMENT]
    ]
    candidates = {name for trial in by_default.values() for name in _candidates(trial)}
    for name, document in models.items():
        if name in candidates and name not in by_default:
            continue  # a version of another model's endpoint, which says so
        draft = _model(document, by_default.get(name), models)
        done.append(_finished(document, draft, name, options))
    return checked(done, others, source, (DEPLOYMENT, MODEL), options)


def _finished(document: Part, draft: Draft, name: str, options: Options) -> Translation:
    draft.left_of(document, _REASONS)
    return draft.finished(name, options)


def _deployment(document: Part) -> tuple[Draft, str]:
    """Core 1."""
    head = ObjectHead(document)
    draft = Draft(f"{DEPLOYMENT} {head.name}")
    draft.took_head(head)
    spec = document.part("spec")
    spec.take("name")  # a name of its own, which says nothing
    predictors = spec.parts("predictors")
    traffic = {
        predictor.path: -1.0 if predictor.text("shadow") == "true" else predictor.number("traffic")
        for predictor in predictors
    }
    shares = {path: 0.0 if share is None else share for path, share in traffic.items()}
    if not predictors:
        raise RefusedError(f"{draft.source} has no predictor.")
    main = max(predictors, key=lambda each: shares[each.path])
    for predictor in predictors:
        name = predictor.text("name")
        if predictor is main:
            continue
        graph = predictor.part("graph")
        uri = graph.text("modelUri") or _parameters(graph).get("pretrained_model", "")
        _took_other(draft, f"the predictor {name}", uri, shares[predictor.path])
    _graph(draft, main.part("graph"))
    return draft, head.name


def _took_other(draft: Draft, what: str, uri: str, share: float) -> None:
    """Takes the share of a predictor or candidate which becomes a version of the same model."""
    draft.took_canary(share)
    role = "a shadow" if share < 0 else f"{share:g} % of traffic"
    draft.changed(
        f"With {role}, {what} was another model. Here it is the next version of the same one"
        f"{f' (register {uri})' if uri else ''}: a rollout begins when it is registered."
    )


def _parameters(graph: Part) -> dict[str, str]:
    found = {}
    for parameter in graph.parts("parameters"):
        parameter.take("type")
        found[parameter.text("name")] = parameter.text("value")
    return found


def _graph(draft: Draft, graph: Part) -> None:
    graph.take("name")
    if graph.take("children"):
        raise RefusedError(
            f"{draft.source} is a graph of several steps. An endpoint is one model: make one of "
            "each model, and let the caller, or a preprocessor, put them together."
        )
    graph.take("endpoint")
    role = graph.text("type") or "MODEL"
    server = graph.text("implementation")
    if role != "MODEL" or server not in _SERVERS:
        raise RefusedError(
            f"{draft.source} runs {server or 'a container of your own'} as {role}. Headrace takes "
            f"models of {', '.join(sorted(_SERVERS))}: register the model in MLflow, and write "
            f"what the container does to texts as a preprocessor (docs/preprocessors.md)."
        )
    draft.took_storage(graph.at("modelUri"), graph.text("modelUri"))
    _take_parameters(draft, graph.at("parameters"), _parameters(graph))


def _take_parameters(draft: Draft, where: str, given: Mapping[str, str]) -> None:
    for name, value in given.items():
        place = f"{where} {name}"
        if name == "task":
            draft.took_task(place, value)
        elif name in {"pretrained_model", "model_uri"}:
            draft.register = draft.register or value
        elif name == "max_batch_size":
            draft.serving["maxBatchSize"] = draft.whole(place, value)
        else:
            draft.left_out(place, _NAMED.get(name, "an endpoint has no such setting"))


def _model(document: Part, trial: _Trial | None, models: Mapping[str, Part]) -> Draft:
    """Core 2."""
    head = ObjectHead(document)
    draft = Draft(f"{MODEL} {head.name}")
    draft.took_head(head)
    spec = document.part("spec")
    needs = spec.texts("requirements")
    if not _SERVED.intersection(need.lower() for need in needs):
        raise RefusedError(
            f"{draft.source} requires {', '.join(needs) or 'nothing'}. Headrace serves models of: "
            f"{', '.join(sorted(_SERVED))}."
        )
    for need in needs:
        if need.lower() not in _SERVED:
            draft.left_out(f"{spec.at('requirements')} {need}", "Triton runs every model")
    draft.took_storage(spec.at("storageUri"), spec.text("storageUri"))
    _take_parameters(draft, spec.at("parameters"), _parameters(spec))
    if trial is not None:
        _take_trial(draft, trial, models)
    return draft


def _trial(document: Part) -> _Trial:
    name = ObjectHead(document).name
    spec = document.part("spec")
    spec.take("resourceType")
    weights = {each.text("name"): each.number("weight") or 0 for each in spec.parts("candidates")}
    mirror = spec.part("mirror")
    return _Trial(
        document=document,
        name=name,
        default=spec.text("default") or max(weights, key=lambda each: weights[each], default=""),
        weights=weights,
        mirror=(mirror.text("name"), mirror.number("percent") or 0),
    )


def _candidates(trial: _Trial) -> set[str]:
    return {*trial.weights, trial.mirror[0]} - {trial.default, ""}


def _take_trial(draft: Draft, trial: _Trial, models: Mapping[str, Part]) -> None:
    whole = sum(trial.weights.values()) or 1
    for name, weight in trial.weights.items():
        if name != trial.default:
            _took_other(draft, f"the candidate {name}", _place(models, name), 100 * weight / whole)
    name, percent = trial.mirror
    if name:
        draft.took_shadow(percent or 100)
        _took_other(draft, f"the mirror {name}", _place(models, name), -1)
    draft.left_of(trial.document, _REASONS)


def _place(models: Mapping[str, Part], name: str) -> str:
    """Where the files of a model lie; empty where it is not in the file."""
    return models[name].part("spec").text("storageUri") if name in models else ""

"""What an endpoint names and MLflow lacks, in a sentence for its status. Pure.

Without it an endpoint with a mistyped model would wait for ever and not say for what.
"""

from contracts.endpoint import AliasVersion, EndpointSpec, EndpointStatus, PinnedVersion
from registry.mlflow.model_registry import MlflowSnapshot
from registry.reconcile.plan import Observed, version_numbered


def source_note(
    spec: EndpointSpec, status: EndpointStatus, seen: Observed, snapshot: MlflowSnapshot | None
) -> str:
    """What the endpoint names and MLflow, as it was last read, lacks; else empty.

    Empty, too, if MLflow or the model's versions were never read.
    """
    stable, model = status.stable, spec.model
    # One look that missed a model is believed at once if nothing is lost by it.
    is_new = stable is None and status.candidate is None
    if snapshot is None or (seen.versions is None and (model in snapshot.models or not is_new)):
        return ""
    serving = "" if stable is None else f"; version {stable.version} goes on serving"
    if model not in snapshot.models:
        return f"MLflow has no registered model {model}: register it, or change spec.model{serving}"
    if missing := _missing(spec, seen):
        return missing + serving
    if stable is None:
        return "" if seen.versions else f"MLflow's model {model} has no version: register one"
    if stable.model != model or version_numbered(seen, stable.version) is not None:
        return ""
    return (
        f"version {stable.version} serves and is not in MLflow any more: it goes on until a newer "
        "version, or one that is pinned, does"
    )


def _missing(spec: EndpointSpec, seen: Observed) -> str:
    """The version that the spec asks for, if MLflow has none such."""
    match spec.version:
        case PinnedVersion(pin=number) if version_numbered(seen, number) is None:
            return f"MLflow has no version {number} of {spec.model}: register it, or change the pin"
        case AliasVersion(alias=alias) if alias not in seen.aliases:
            return f"MLflow's model {spec.model} has no alias {alias}: set it to a version"
        case AliasVersion(alias=alias) if version_numbered(seen, seen.aliases[alias]) is None:
            number = seen.aliases[alias]
            return f"the alias {alias} of {spec.model} names version {number}, which MLflow lacks"
        case _:
            return ""

"""The Job of one conversion, out of the chart's template. Pure.

The chart says what a conversion's pod is: its image, resources,
credentials, nodes. Here it gets a name, what it is to convert, and what no template may leave out:
no token of the API server, no second try, a longest time.
"""

import copy
import hashlib
import json

from registry.conversions.messages import ConversionRequest
from service.cluster.collection import Object
from service.cluster.leases import Owner

LABEL = "headrace.dev/conversion"
REQUEST = "headrace.dev/request"  # annotation of the pod, mounted into it as a file
WORK = "/work"

_REQUEST_VOLUME = "conversion-request"
_REQUEST_FOLDER = "/etc/headrace/request"
_REQUEST_FILE = "request.json"
_RESULT = "/dev/termination-log"
_KEEP_FINISHED_SECONDS = 600


class BadTemplateError(ValueError):
    """The template is no Job; the message says what is missing."""


def template(text: str) -> Object:
    """A Job as a file holds it; raises ``BadTemplateError``."""
    try:
        job: Object = json.loads(text)
        spec = job["spec"]["template"]["spec"]
        kind, container = job["kind"], spec["containers"][0]
        container["image"]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadTemplateError(f"no Job with a container and its image: {error!r}") from error
    if kind != "Job":
        raise BadTemplateError(f"it is a {kind}, not a Job")
    return job


def name_of(request: ConversionRequest) -> str:
    """The Job's name: the same for the same conversion, so that a new controller finds it again."""
    text = request.model_copy(update={"work_dir": ""}).model_dump_json(by_alias=True)
    return f"headrace-convert-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def job(
    base: Object, request: ConversionRequest, *, owner: Owner | None, timeout_seconds: float
) -> Object:
    """The Job of one conversion.

    It is collected with its ``owner``, the controller's pod.
    """
    made = copy.deepcopy(base)
    name = name_of(request)
    filled = request.model_copy(update={"work_dir": WORK})
    _stamp(made.setdefault("metadata", {}), name)
    made["metadata"]["name"] = name
    made["metadata"]["annotations"]["headrace.dev/converts"] = f"{request.model} {request.version}"
    if owner is not None:
        made["metadata"]["ownerReferences"] = owner.references()
    spec = made["spec"]
    spec["backoffLimit"] = 0
    spec.setdefault("ttlSecondsAfterFinished", _KEEP_FINISHED_SECONDS)
    # Of the pod, not of the Job: a Job over its deadline takes its pod and what that said along.
    spec.pop("activeDeadlineSeconds", None)
    pod = spec["template"]
    _stamp(pod.setdefault("metadata", {}), name)
    pod["metadata"]["annotations"][REQUEST] = filled.model_dump_json(by_alias=True)
    _fill(pod["spec"], timeout_seconds)
    return made


def container_name(base: Object) -> str:
    """The name of the container that converts; empty if the template gives none."""
    return str(base["spec"]["template"]["spec"]["containers"][0].get("name", ""))


def memory_limit(base: Object) -> str:
    """What a conversion's container may use of memory, in the template's words; empty: no limit."""
    container = base["spec"]["template"]["spec"]["containers"][0]
    limits = (container.get("resources") or {}).get("limits") or {}
    return str(limits.get("memory", ""))


def _stamp(metadata: Object, name: str) -> None:
    metadata["labels"] = {**(metadata.get("labels") or {}), LABEL: name}
    metadata["annotations"] = dict(metadata.get("annotations") or {})


def _fill(pod: Object, timeout_seconds: float) -> None:
    pod["restartPolicy"] = "Never"
    pod["automountServiceAccountToken"] = False
    pod["activeDeadlineSeconds"] = max(1, round(timeout_seconds))
    field = {"fieldRef": {"fieldPath": f"metadata.annotations['{REQUEST}']"}}
    request = {
        "name": _REQUEST_VOLUME,
        "downwardAPI": {"items": [{"path": _REQUEST_FILE, **field}]},
    }
    pod["volumes"] = [*(pod.get("volumes") or ()), request]
    container = pod["containers"][0]
    container["args"] = [f"{_REQUEST_FOLDER}/{_REQUEST_FILE}", _RESULT]
    # The result's file: what is in it is the pod's own word, which no other pod can write. The log,
    # in which all that runs here may write, never takes its place.
    container["terminationMessagePath"] = _RESULT
    container["terminationMessagePolicy"] = "File"
    mounts = list(container.get("volumeMounts") or ())
    mounts.append({"name": _REQUEST_VOLUME, "mountPath": _REQUEST_FOLDER, "readOnly": True})
    if all(mount["mountPath"] != WORK for mount in mounts):
        pod["volumes"].append({"name": "conversion-work", "emptyDir": {}})
        mounts.append({"name": "conversion-work", "mountPath": WORK})
    container["volumeMounts"] = mounts

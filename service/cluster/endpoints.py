"""How endpoints lie in a cluster: custom resources whose status is ``EndpointStatus`` and more.

Pure.
"""

from pydantic import ValidationError

from contracts.endpoint import API_VERSION, KIND, EndpointStatus, ModelEndpoint
from contracts.validation_errors import validation_errors
from service.cluster.collection import Collection, Object

PLURAL = "modelendpoints"

# Names of fields as they are written; a cluster's status has others beside them.
_OF_STATUS = frozenset(field.alias or name for name, field in EndpointStatus.model_fields.items())


def collection(namespace: str) -> Collection:
    """The endpoints of a namespace."""
    return Collection(API_VERSION, PLURAL, namespace)


def read(item: Object) -> ModelEndpoint:
    """The endpoint that a resource holds; its revision is the resource's version.

    What the status holds only for people, such as conditions, is left out.

    Raises:
        ValueError: it is none; says each bad field and what may stand there.
    """
    metadata = item["metadata"]
    status = item.get("status") or {}
    document = {
        "apiVersion": item.get("apiVersion", API_VERSION),
        "kind": item.get("kind", KIND),
        "metadata": {
            "name": metadata["name"],
            "uid": metadata.get("uid", ""),
            "revision": metadata.get("resourceVersion", ""),  # none if nothing was stored
            "annotations": metadata.get("annotations") or {},
        },
        "spec": item.get("spec") or {},
        "status": {name: value for name, value in status.items() if name in _OF_STATUS}
        | {"outdated": _is_outdated(item)},
    }
    try:
        return ModelEndpoint.model_validate(document)
    except ValidationError as error:
        raise ValueError("; ".join(map(str, validation_errors(document, error)))) from None


def _is_outdated(item: Object) -> bool:
    """Whether the conditions are about an earlier spec, so that nobody can wait for them."""
    generation = item["metadata"].get("generation", 0)
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(condition.get("observedGeneration", 0) != generation for condition in conditions)

"""The pods behind a Service, as its EndpointSlices list them.

Kubernetes writes the slices; gateways read those of their own Service. Pure.
"""

from service.cluster.client import Object
from service.cluster.collection import Collection

VERSION = "discovery.k8s.io/v1"
LABEL = "kubernetes.io/service-name"


def collection(namespace: str, service: str) -> Collection:
    """The slices of one Service: one for each family of addresses, and more for many pods."""
    return Collection(VERSION, "endpointslices", namespace, f"{LABEL}={service}")


def read(item: Object) -> frozenset[str]:
    """The pods of a slice that are ready, each by a name that is the same in every slice.

    Raises:
        ValueError: it is no slice.
    """
    try:
        endpoints = item.get("endpoints") or []
        return frozenset(
            (each.get("targetRef") or {}).get("uid") or each["addresses"][0]
            for each in endpoints
            # Not said means ready, by the API's own words.
            if (each.get("conditions") or {}).get("ready") is not False
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no EndpointSlice: {error!r}") from error

"""How an endpoint's two records lie in a cluster: objects that the endpoint owns. Pure.

They are named after the endpoint's uid, so that one which is deleted and made again never meets the
records of before; Kubernetes removes those with their owner.
"""

from contracts.endpoint import API_VERSION, KIND, ModelEndpoint
from service.cluster.collection import Collection, Object

RECORD_KIND, PLURAL = "EndpointRecord", "endpointrecords"
ENDPOINT = "headrace.dev/endpoint"  # a label, for people


def collection(namespace: str) -> Collection:
    """The records of a namespace."""
    return Collection(API_VERSION, PLURAL, namespace)


def name(endpoint: ModelEndpoint, slot: str) -> str:
    """The name of one of an endpoint's records."""
    return f"{endpoint.metadata.uid}-{slot}"


def build_record(endpoint: ModelEndpoint, slot: str, text: str, revision: str) -> Object:
    """A record, to be written over that of a revision; to be made if that is empty."""
    owner = {
        "apiVersion": endpoint.api_version,
        "kind": KIND,
        "name": endpoint.name,
        "uid": endpoint.metadata.uid,
    }
    metadata: Object = {
        "name": name(endpoint, slot),
        "labels": {ENDPOINT: endpoint.name},
        "ownerReferences": [owner],
    }
    if revision:
        metadata["resourceVersion"] = revision
    return {
        "apiVersion": API_VERSION,
        "kind": RECORD_KIND,
        "metadata": metadata,
        "text": text,
    }

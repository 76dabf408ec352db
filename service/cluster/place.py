"""Where endpoints and reports lie: a folder, or ``kubernetes://NAMESPACE``.

Called by the mains with what a flag says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from service.cluster import access
from service.cluster.client import KubernetesClient

SCHEME = "kubernetes://"


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace of a cluster."""

    client: KubernetesClient
    namespace: str


def in_cluster(flag: str) -> bool:
    """Whether a flag names a namespace rather than a folder."""
    return flag.startswith(SCHEME)


def opened(flag: str, environment: Mapping[str, str]) -> Place:
    """The namespace that a flag names; without a name, this process's own.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    client = KubernetesClient(access.found(environment))
    return Place(client, flag.removeprefix(SCHEME).strip("/") or client.namespace)

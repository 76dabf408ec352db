"""Opens the endpoints where a flag says that they lie: in a folder, or in a cluster.

Called by the main of the evaluate role.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from contracts.endpoint import ModelEndpoint
from service.kubernetes import endpoints, place
from service.kubernetes.mirror import Mirror
from stats.endpoint_files import EndpointFiles


def opened(flag: str, environment: Mapping[str, str]) -> Callable[[], tuple[ModelEndpoint, ...]]:
    """What tells all endpoints as they are now; none while they were never reached.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not place.in_cluster(flag):
        return EndpointFiles(Path(flag).expanduser().absolute())
    found = place.opened(flag, environment)
    mirror = Mirror(found.client, endpoints.collection(found.namespace), endpoints.read)
    mirror.start()
    return mirror.values

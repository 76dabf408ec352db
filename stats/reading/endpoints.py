"""The endpoints as they are stored now, in a folder or in a cluster. It never writes."""

from collections.abc import Callable, Mapping
from pathlib import Path

from contracts.endpoint import ModelEndpoint
from service.cluster import access, endpoints
from service.cluster.mirror import Mirror
from stats.reading.object_files import ObjectFiles


def opened(flag: str, environment: Mapping[str, str]) -> Callable[[], tuple[ModelEndpoint, ...]]:
    """What tells all endpoints as they are now; none while they were never reached.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(flag):
        return EndpointFiles(Path(flag).expanduser().absolute())
    found = access.opened(flag, environment)
    mirror = Mirror(found.client, endpoints.collection(found.name), endpoints.read)
    mirror.start()
    return mirror.values


class EndpointFiles(ObjectFiles[ModelEndpoint]):
    """One JSON file an endpoint. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        """Takes a folder that need not exist yet."""
        super().__init__(folder, ModelEndpoint, "an endpoint")

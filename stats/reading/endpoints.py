"""The endpoints as they are stored now, in a folder or in a cluster. It never writes.

A file that can't be read keeps its last good object, a folder that is away keeps them all; both are
logged once.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from contracts.endpoint import ModelEndpoint
from service import json_files
from service.cluster import access, endpoints
from service.cluster.mirror import Mirror
from service.json_files import Stamp

log = logging.getLogger(__name__)


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


class EndpointFiles:
    """One JSON file an endpoint. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        """Takes a folder that need not exist yet."""
        self._folder = folder
        self._lock = threading.Lock()  # of the next two
        self._read: dict[str, tuple[Stamp, ModelEndpoint | None]] = {}
        self._away = False

    def __call__(self) -> tuple[ModelEndpoint, ...]:
        """Every endpoint, by name; cheap where nothing changed."""
        with self._lock:
            try:
                stamps = json_files.stamps(self._folder)
            except OSError as error:
                if not self._away:
                    log.warning("the endpoints are away", extra={"reason": str(error)})
                self._away = True
            else:
                self._away = False
                self._look(stamps)
            found = [endpoint for _, endpoint in self._read.values() if endpoint is not None]
        return tuple(sorted(found, key=lambda endpoint: endpoint.name))

    def _look(self, stamps: dict[str, Stamp]) -> None:
        for gone in self._read.keys() - stamps.keys():
            del self._read[gone]
        for name, stamp in stamps.items():
            seen, last = self._read.get(name, (None, None))
            if seen == stamp:
                continue
            try:
                last = ModelEndpoint.model_validate_json((self._folder / name).read_bytes())
            except (OSError, ValidationError) as error:
                log.warning(
                    "an endpoint can't be read; its last good state stays",
                    extra={"file": name, "reason": str(error)},
                )
            self._read[name] = (stamp, last)

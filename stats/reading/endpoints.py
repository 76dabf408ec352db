"""Endpoints and loaders' reports as they are now, in a folder or in a cluster. It never writes.

All endpoints are followed with the summaries of their statuses. The whole status of one, for code
that shows it, is read when it is asked for.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from service import endpoint_records
from service.cluster import access, endpoints
from service.cluster.mirror import CollectionMirror
from service.cluster.reports import ReportMirror
from service.endpoint_records import ClusterRecords, FileRecords, Records
from stats.reading.object_files import ObjectFiles

log = logging.getLogger(__name__)

_RETRY_SECONDS = 10.0


def open_endpoints(
    flag: str, environment: Mapping[str, str]
) -> Callable[[], tuple[ModelEndpoint, ...]]:
    """What tells all endpoints as they are now; none while they were never reached.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(flag):
        return ObjectFiles(Path(flag).expanduser().absolute(), ModelEndpoint, "an endpoint")
    found = access.open_namespace(flag, environment)
    mirror = CollectionMirror(found.client, endpoints.collection(found.name), endpoints.read)
    mirror.start()
    return mirror.values


def open_reports(
    flag: str, environment: Mapping[str, str]
) -> Callable[[], tuple[LoaderReport, ...]]:
    """What tells the last report of each loader; none if no place is named.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not flag:
        return tuple
    if not access.in_cluster(flag):
        return ObjectFiles(Path(flag).expanduser().absolute(), LoaderReport, "a loader's report")
    found = access.open_namespace(flag, environment)
    mirror = ReportMirror(found.client, found.name, costs=False)
    mirror.start()
    return mirror.values


class WholeStatus:
    """What gives an endpoint its whole status; without its record it keeps the summary.

    After a failure nothing is asked for a while: a page waits for it. Threads may share it.
    """

    def __init__(self, records: Records, clock: Callable[[], float] = time.monotonic) -> None:
        self._records = records
        self._clock = clock
        self._retry_at = -math.inf
        self._last: tuple[ModelEndpoint, ModelEndpoint] | None = None  # as asked, and whole

    def __call__(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        """The endpoint with all that its record holds."""
        if self._last is not None and self._last[0] is endpoint:
            return self._last[1]
        if self._clock() < self._retry_at:
            return endpoint
        try:
            found = endpoint_records.join_record(endpoint, self._records) or endpoint
        except OSError as error:
            log.warning("a record can't be read", extra={"of": endpoint.name, "reason": str(error)})
            self._retry_at = self._clock() + _RETRY_SECONDS
            return endpoint
        self._last = endpoint, found
        return found


def open_whole_status(flag: str, environment: Mapping[str, str]) -> WholeStatus:
    """What gives an endpoint that ``open_endpoints`` told its whole status.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(flag):
        return WholeStatus(FileRecords(Path(flag).expanduser().absolute()))
    found = access.open_namespace(flag, environment)
    return WholeStatus(ClusterRecords(found.client, found.name))

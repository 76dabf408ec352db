"""Loaders' reports as they are now, in a folder or in a cluster, for the page. It never writes."""

from collections.abc import Callable, Mapping
from pathlib import Path

from contracts.loading import LoaderReport
from service.cluster import access
from service.cluster.reports import ReportMirror
from stats.reading.object_files import ObjectFiles


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

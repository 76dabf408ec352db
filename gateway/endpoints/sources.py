"""Opens endpoints and reports where the settings say that they lie: in folders, or in a cluster.

Called by ``gateway/main.py``.
"""

from collections.abc import Mapping

from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from gateway.endpoints.files import FolderSource
from gateway.endpoints.kubernetes import ClusterSource
from gateway.endpoints.protocol import EndpointSource, ReportSource
from gateway.settings import Settings
from service.kubernetes import endpoints, place, reports
from service.kubernetes.mirror import Mirror


def endpoint_source(settings: Settings, environment: Mapping[str, str]) -> EndpointSource:
    """Where endpoints come from.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not place.in_cluster(settings.endpoints):
        return FolderSource(settings.endpoints_folder, ModelEndpoint)
    opened = place.opened(settings.endpoints, environment)
    collection = endpoints.collection(opened.namespace)
    return ClusterSource(Mirror(opened.client, collection, endpoints.read))


def report_source(settings: Settings, environment: Mapping[str, str]) -> ReportSource:
    """Where loaders' reports come from; with endpoints in a cluster, from beside them.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    flag = settings.reports
    if not flag and place.in_cluster(settings.endpoints):
        flag = settings.endpoints
    if not place.in_cluster(flag):
        return FolderSource(settings.reports_folder, LoaderReport)
    opened = place.opened(flag, environment)
    return ClusterSource(Mirror(opened.client, reports.collection(opened.namespace), reports.read))

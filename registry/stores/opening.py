"""Opens endpoints, reports and the controller's heartbeat where a flag says that they lie.

That is a folder, or a namespace of a cluster.
"""

from collections.abc import Mapping
from pathlib import Path

from registry.stores.cluster_endpoints import KubernetesEndpointStore
from registry.stores.cluster_reports import KubernetesReports
from registry.stores.endpoints import EndpointStore, FileEndpointStore
from registry.stores.heartbeats import FileHeartbeats, Heartbeats, KubernetesHeartbeats
from registry.stores.reports import FileReports, Reports
from registry.stores.whole_endpoints import WholeEndpoints
from service.cluster import access
from service.cluster.leases import Owner
from service.endpoint_records import ClusterRecords, FileRecords, Records


def endpoints(flag: str, environment: Mapping[str, str], *, watch: bool = True) -> EndpointStore:
    """The endpoints, each with the summary of its status.

    With ``watch``, a cluster's are watched, for processes that ask again and again.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(flag):
        return FileEndpointStore(_folder(flag))
    opened = access.open_namespace(flag, environment)
    store = KubernetesEndpointStore(opened.client, opened.name)
    if watch:
        store.start()
    return store


def records(flag: str, environment: Mapping[str, str]) -> Records:
    """The records of these endpoints.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(flag):
        return FileRecords(_folder(flag))
    opened = access.open_namespace(flag, environment)
    return ClusterRecords(opened.client, opened.name)


def whole_endpoints(flag: str, environment: Mapping[str, str]) -> WholeEndpoints:
    """The endpoints with their whole status, watched if they lie in a cluster.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    return WholeEndpoints(endpoints(flag, environment), records(flag, environment))


def reports(flag: str, environment: Mapping[str, str], *, costs: bool = True) -> Reports:
    """The loaders' reports; in a cluster, those that this process writes are its pod's.

    Without ``costs``, listed reports of a cluster may lack what batches cost.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(flag):
        return FileReports(_folder(flag))
    opened = access.open_namespace(flag, environment)
    return KubernetesReports(opened.client, opened.name, owner=own_pod(environment), costs=costs)


def heartbeats(flag: str, environment: Mapping[str, str]) -> Heartbeats:
    """The controller's heartbeat: beside the endpoints that the flag names.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(flag):
        return FileHeartbeats(_folder(flag))
    opened = access.open_namespace(flag, environment)
    return KubernetesHeartbeats(opened.client, opened.name, owner=own_pod(environment))


def own_pod(environment: Mapping[str, str]) -> Owner | None:
    """The pod that this process runs in, as its manifest says; None outside of one."""
    pod, uid = environment.get("POD_NAME", ""), environment.get("POD_UID", "")
    return Owner(pod, uid) if pod and uid else None


def _folder(flag: str) -> Path:
    return Path(flag).expanduser().absolute()

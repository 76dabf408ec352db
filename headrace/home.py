"""Where a command finds endpoints and the parts of a stack that runs.

Endpoints are in the home of a local stack, or in a namespace of a cluster.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from contracts.loading import LoaderReport
from headrace.errors import NotRunningError
from headrace.stack import state
from headrace.stack.state import Home, StackRecord
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from registry.stores.endpoints import EndpointStore, FileEndpointStore
from registry.stores.heartbeats import FileHeartbeats, Heartbeats, KubernetesHeartbeats
from registry.stores.reports import FileReports
from registry.stores.whole_endpoints import WholeEndpoints
from service.cluster import access
from service.cluster.access import SCHEME, ClusterNamespace
from service.cluster.errors import AccessError, ApiUnavailableError
from service.cluster.reports import ReportMirror
from service.endpoint_records import ClusterRecords, FileRecords

_FIRST_LIST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A namespace, reached as ``environment`` says (``KUBECONFIG``).

    Without a ``namespace`` it is that of the context, and without a ``context`` the current one.
    """

    namespace: str | None
    environment: Mapping[str, str]
    context: str | None = None

    def open(self) -> ClusterNamespace:
        """The namespace with a client of its API server; raises ``NotRunningError``."""
        flag = f"{SCHEME}{self.namespace or ''}"
        try:
            return access.open_namespace(flag, self.environment, context=self.context)
        except AccessError as error:
            raise NotRunningError(f"The cluster can't be reached: {error}.") from error


Where = Path | Cluster


@dataclass(frozen=True, slots=True)
class EndpointSite:
    """Endpoints, and what is known of the controller that brings them into service.

    Attributes:
        store: for reading and for writing.
        beats: where the controller's sign of life lies.
        reports: gives the loaders' reports; raises ``OSError``.
        user: gives the name under which the API server knows this user; empty on a home, and
            if the API server does not say.
        no_controller: why nothing moves there now; empty if a controller may run.
        auto_endpoints: whether models without an endpoint are given one.
    """

    store: EndpointStore
    beats: Heartbeats
    reports: Callable[[], tuple[LoaderReport, ...]]
    user: Callable[[], str] = str
    no_controller: str = ""
    auto_endpoints: bool = False


def site(where: Where) -> EndpointSite:
    """The endpoints of a home, whether its stack runs or not, or of a cluster."""
    if isinstance(where, Cluster):
        return of_namespace(where.open())
    home = open_home(where)
    record = state.read_record(home)
    return EndpointSite(
        store(home),
        FileHeartbeats(home.endpoints),
        reports=lambda: FileReports(home.reports).list() if home.reports.is_dir() else (),
        no_controller="" if state.is_locked(home) else "no stack runs on this home",
        auto_endpoints=True if record is None else record.auto_endpoints,
    )


def of_namespace(namespace: ClusterNamespace, *, dry_run: bool = False) -> EndpointSite:
    """The endpoints of a namespace; with ``dry_run`` the API server checks and stores nothing."""
    client, name = namespace.client, namespace.name

    def reports() -> tuple[LoaderReport, ...]:
        mirror = ReportMirror(client, name, heartbeats=True)
        mirror.start()
        try:
            if not mirror.wait(_FIRST_LIST_SECONDS):
                raise ApiUnavailableError("they could not be listed in time")
            return mirror.values()
        finally:
            mirror.close()

    summaries = KubernetesEndpointStore(client, name, dry_run=dry_run)
    store_there = WholeEndpoints(summaries, ClusterRecords(client, name), for_people=True)
    return EndpointSite(store_there, KubernetesHeartbeats(client, name), reports, client.user)


def open_home(root: Path) -> Home:
    """The home, whether its stack runs or not."""
    home = Home(root)
    if not home.marker.exists():
        raise NotRunningError(
            f"{root} is no Headrace home. Start a stack with headrace up, or name a namespace of a "
            "cluster with -n."
        )
    return home


def store(home: Home) -> EndpointStore:
    """The endpoints of the home, for reading and for writing."""
    summaries = FileEndpointStore(home.endpoints)
    return WholeEndpoints(summaries, FileRecords(home.endpoints), for_people=True)


def running(root: Path, instead: str = "") -> StackRecord:
    """The stack that runs on a home.

    ``instead`` goes on the refusal's sentence: what else the user can do.
    """
    record = state.read_record(Home(root))
    if record is None:
        raise NotRunningError(f"No stack runs on {root}. Start one with headrace up{instead}.")
    return record


def gateway_url(where: Where, given: str | None) -> str:
    """The gateway's HTTP address: as given, else that of the stack that runs on a home."""
    if given is not None:
        return given.rstrip("/")
    if isinstance(where, Cluster):
        raise NotRunningError(
            "Name the gateway of the cluster with --url: texts go there. kubectl "
            "port-forward reaches it."
        )
    return running(where, ", or name a gateway with --url").gateway_url


def kafka_of(where: Where, kafka: str | None) -> str:
    """``host:port`` of Kafka's brokers: those named, or those of the running stack.

    Raises:
        NotRunningError: nobody knows where it is.
    """
    if kafka:
        return kafka
    if isinstance(where, Cluster):
        raise NotRunningError("Name the Kafka of the cluster with --kafka: it is read.")
    return running(where, ", or name a Kafka with --kafka").kafka_bootstrap

"""Where a command finds endpoints and the parts of a stack that runs.

Endpoints are in the home of a local stack, or in a namespace of a cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import NotRunningError
from headrace.stack import state
from headrace.stack.state import Home, StackRecord
from registry.stores import opening
from registry.stores.endpoints import EndpointStore, FileEndpointStore
from registry.stores.heartbeats import FileHeartbeats, Heartbeats
from service.cluster.access import SCHEME
from service.cluster.errors import AccessError


@dataclass(frozen=True, slots=True)
class Cluster:
    """A namespace, reached as ``environment`` says (``KUBECONFIG``)."""

    namespace: str
    environment: Mapping[str, str]


Where = Path | Cluster


@dataclass(frozen=True, slots=True)
class Site:
    """Endpoints, and what is known of whoever brings them into service.

    Attributes:
        store: for reading and for writing.
        beats: where the controller's sign of life lies.
        no_controller: why nothing moves there now; empty where a controller may run.
        auto_endpoints: whether models without an endpoint are given one.
    """

    store: EndpointStore
    beats: Heartbeats
    no_controller: str = ""
    auto_endpoints: bool = False


def site(where: Where) -> Site:
    """The endpoints of a home, whether its stack runs or not, or of a cluster."""
    if isinstance(where, Cluster):
        try:
            flag = f"{SCHEME}{where.namespace}"
            store_there = opening.endpoints(flag, where.environment, watch=False)
            return Site(store_there, opening.heartbeats(flag, where.environment))
        except AccessError as error:
            raise NotRunningError(f"The cluster can't be reached: {error}.") from error
    home = opened(where)
    record = state.read_record(home)
    return Site(
        store(home),
        FileHeartbeats(home.endpoints),
        "" if state.is_locked(home) else "no stack runs on this home",
        auto_endpoints=True if record is None else record.auto_endpoints,
    )


def opened(root: Path) -> Home:
    """The home, whether its stack runs or not."""
    home = Home(root)
    if not home.marker.exists():
        raise NotRunningError(f"{root} is no Headrace home. Start a stack with headrace up.")
    return home


def store(home: Home) -> FileEndpointStore:
    """The endpoints of the home, for reading and for writing."""
    return FileEndpointStore(home.endpoints)


def running(root: Path, instead: str = "") -> StackRecord:
    """The stack that runs on a home.

    ``instead`` goes on the refusal's sentence: what else the user can do.
    """
    record = state.read_record(Home(root))
    if record is None:
        raise NotRunningError(f"No stack runs on {root}. Start one with headrace up{instead}.")
    return record


def gateway_url(root: Path, given: str | None) -> str:
    """The gateway's HTTP address: as given, else that of the stack that runs on a home."""
    if given is not None:
        return given.rstrip("/")
    return running(root, ", or name a gateway with --url").gateway_url


def kafka_bootstrap(root: Path, given: str | None) -> str:
    """``host:port`` of the brokers: as given, else those of the stack that runs on a home."""
    return given or running(root, ", or name a Kafka with --kafka").kafka_bootstrap


def kafka_of(where: Where, kafka: str | None) -> str:
    """``host:port`` of Kafka's brokers: those named, or those of the running stack.

    Raises:
        NotRunningError: nobody knows where it is.
    """
    if kafka:
        return kafka
    if isinstance(where, Cluster):
        raise NotRunningError("Name the Kafka of the cluster with --kafka: it is read.")
    return kafka_bootstrap(where, None)

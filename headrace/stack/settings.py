"""What ``headrace up`` is asked to run, as one frozen object built by the command line.

Nothing here reads the environment or touches a file.
"""

import re
from dataclasses import dataclass, fields
from pathlib import Path

from contracts.ceilings import NO_CEILINGS, Ceilings
from contracts.model import DEFAULT_POOL
from headrace.errors import ServicePortTakenError

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # every address of this machine
LOADER = "local"  # the first loader's name in its report
_LAST_PORT = 65_535
_GATEWAY_PORTS = ("gateway_http", "gateway_grpc", "gateway_operations")
_TRITON_PORTS = ("triton_http", "triton_grpc", "triton_metrics")
# For callers and people, so that they may listen on other addresses than loopback.
_OPEN_PORTS = frozenset({*_GATEWAY_PORTS, "mlflow", "stats"})


@dataclass(frozen=True, slots=True)
class Ports:
    """The TCP ports of the local stack. Each is a flag ``--port-<name>``.

    Those of gateways, Tritons and loaders are the first replica's; further replicas follow.
    """

    gateway_http: int = 8080
    gateway_grpc: int = 8081
    mlflow: int = 5000
    kafka: int = 9092
    kafka_controller: int = 9093
    triton_http: int = 8000
    triton_grpc: int = 8001
    triton_metrics: int = 8002
    stats: int = 9300
    controller_metrics: int = 9301
    fold_metrics: int = 9302
    loader_metrics: int = 9303
    gateway_operations: int = 9310

    def flag(self, name: str) -> str:
        """The command line's flag that changes port ``name``, also that of a further replica."""
        return f"--port-{_first_of(name).replace('_', '-')}"

    def by_name(self) -> dict[str, int]:
        """Every port by its field's name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def with_replicas(self, gateways: int, tritons: int) -> dict[str, int]:
        """Every port by name, with those of further replicas (``gateway_http_2``).

        A further replica takes the next ports above the first one's that no other part of the
        stack is given. This depends only on these settings, so that a replica has the same ports
        at every start.

        Raises:
            PortTakenError: there is no port left above the first one's.
        """
        found = self.by_name()
        wanted = [number_name(name, n) for n in range(2, gateways + 1) for name in _GATEWAY_PORTS]
        loaded = (*_TRITON_PORTS, "loader_metrics")
        wanted += [number_name(name, n) for n in range(2, tritons + 1) for name in loaded]
        given = set(found.values())
        for name in wanted:
            first = found[_first_of(name)]
            port = next((each for each in range(first, _LAST_PORT + 1) if each not in given), None)
            if port is None:
                raise ServicePortTakenError(
                    f"No port is left above {first} for {name.replace('_', ' ')}: choose a lower "
                    f"port with {self.flag(name)} PORT."
                )
            found[name] = port
            given.add(port)
        return found


@dataclass(frozen=True, slots=True)
class GatewayReplica:
    """One gateway; ``name`` is that of its process, its log and its folder."""

    name: str
    http_port: int
    grpc_port: int
    operations_port: int
    host: str = LOOPBACK

    @property
    def url(self) -> str:
        """Where callers reach it over HTTP."""
        return f"http://{self.host}:{self.http_port}"

    @property
    def operations_url(self) -> str:
        """Where probes, Prometheus (``/metrics``) and readers of ``/docs`` reach it."""
        return f"http://{self.host}:{self.operations_port}"

    @property
    def grpc(self) -> str:
        """Where callers reach it over gRPC, host:port."""
        return f"{self.host}:{self.grpc_port}"


@dataclass(frozen=True, slots=True)
class TritonReplica:
    """One embedded Triton; ``name`` is that of its process, its log and its folder."""

    name: str
    http_port: int
    grpc_port: int
    metrics_port: int

    @property
    def grpc(self) -> str:
        """Where gateways and its loader reach it, host:port."""
        return f"{LOOPBACK}:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus reaches it."""
        return f"http://{LOOPBACK}:{self.metrics_port}/metrics"


@dataclass(frozen=True, slots=True)
class LoaderReplica:
    """The loader beside one Triton.

    ``name`` is that of its process, its log and its folder, ``report`` that of its report.
    ``triton`` is the embedded one of ``pool``, None if it loads into an existing one.
    """

    name: str
    report: str
    metrics_port: int
    triton_grpc: str
    triton: TritonReplica | None
    pool: str = DEFAULT_POOL

    @property
    def metrics_url(self) -> str:
        """Where Prometheus reaches it."""
        return f"http://{LOOPBACK}:{self.metrics_port}/metrics"


def number_name(name: str, number: int, by: str = "_") -> str:
    """The name of a replica: the first one's is plain, so that adding one renames nothing."""
    return name if number == 1 else f"{name}{by}{number}"


def _first_of(name: str) -> str:
    return re.sub(r"_[0-9]+$", "", name)


@dataclass(frozen=True, slots=True)
class StackSettings:
    """One local stack.

    A part that lives and is not ready is waited for ``start_within_seconds``.

    ``kafka_bootstrap``, ``mlflow_uri`` and ``triton_grpc`` name existing services to use in place
    of the embedded ones; None starts ours. ``mlflow_sources`` are URLs below which the files of
    versions may lie, ``mlflow_workspaces`` those whose models are served. ``grafana`` gets the
    dashboards. ``package_store`` is a URL; None keeps packages in the home. ``cache`` holds
    downloads that homes share; ``parts`` is a folder like it that holds Triton and Kafka already.
    Gateways, MLflow and the page listen on ``listen``, an IPv4 address, and all else on loopback.
    With a ``keys_file`` the gateway asks callers for a key; pages in browsers may ask it if they
    are of ``allowed_origins``. With ``auto_endpoints`` a registered model that has no endpoint gets
    one with defaults. Statistics are kept in windows of
    ``window_seconds`` of event time. There are ``gateways`` gateways and embedded ``tritons``, each
    Triton with a loader. Texts to label are kept in Kafka for ``pair_texts_hours``, 0 for none.
    ``model_code``: the code that versions bring is run; ``pyfunc``: so are versions that are Python
    of their users' own. ``allow_remote_code`` and ``allow_pickle``: conversions run code of
    versions. Models that are idle for ``idle_seconds`` leave their Tritons,
    0: they stay. No endpoint gets more than ``ceilings``. All tokenisers of a gateway take
    ``tokeniser_megabytes``, 0 for half of the memory, and ``tokeniser_share_ahead`` of that those
    that it opens at its start.
    Tritons compute on ``device``: ``cpu``, ``gpu``, or ``auto`` for what the machine has.
    ``pools`` are those of the first Tritons, in order; further ones belong to the default pool.
    """

    home: Path
    cache: Path
    start_within_seconds: float = 1800.0
    ports: Ports = Ports()
    listen: str = LOOPBACK
    parts: Path | None = None
    kafka_bootstrap: str | None = None
    mlflow_uri: str | None = None
    grafana: str | None = None
    mlflow_sources: tuple[str, ...] = ()
    mlflow_workspaces: tuple[str, ...] = ()
    triton_grpc: str | None = None
    package_store: str | None = None
    keys_file: Path | None = None
    example: bool = True
    auto_endpoints: bool = True
    window_seconds: int = 10
    gateways: int = 1
    tritons: int = 1
    pair_texts_hours: float = 0.0
    model_code: bool = False
    pyfunc: bool = False
    allow_remote_code: bool = False
    allow_pickle: bool = False
    idle_seconds: float = 0.0
    tokeniser_megabytes: int = 0
    tokeniser_share_ahead: float = 0.75
    ceilings: Ceilings = NO_CEILINGS
    allowed_origins: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    device: str = "auto"

    @property
    def host(self) -> str:
        """Where this machine reaches what listens on ``listen``."""
        return LOOPBACK if self.listen == EVERYWHERE else self.listen

    def listens_on(self, port: str) -> str:
        """The address on which the port of this name is listened on."""
        return self.listen if _first_of(port) in _OPEN_PORTS else LOOPBACK

    @property
    def parts_folder(self) -> Path:
        """Where Triton and Kafka lie, or are downloaded to."""
        return self.cache if self.parts is None else self.parts

    @property
    def gateway_url(self) -> str:
        """Where callers reach the first gateway over HTTP."""
        return self.gateway_replicas[0].url

    @property
    def gateway_grpc(self) -> str:
        """Where callers reach the first gateway over gRPC, host:port."""
        return self.gateway_replicas[0].grpc

    @property
    def gateway_replicas(self) -> tuple[GatewayReplica, ...]:
        """Every gateway."""
        ports = self._ports()
        return tuple(
            GatewayReplica(
                name=number_name("gateway", number, "-"),
                http_port=ports[number_name("gateway_http", number)],
                grpc_port=ports[number_name("gateway_grpc", number)],
                operations_port=ports[number_name("gateway_operations", number)],
                host=self.host,
            )
            for number in range(1, self.gateways + 1)
        )

    @property
    def triton_replicas(self) -> tuple[TritonReplica, ...]:
        """Every embedded Triton; none if an existing one is used."""
        if self.triton_grpc is not None:
            return ()
        ports = self._ports()
        return tuple(
            TritonReplica(
                name=number_name("triton", number, "-"),
                http_port=ports[number_name("triton_http", number)],
                grpc_port=ports[number_name("triton_grpc", number)],
                metrics_port=ports[number_name("triton_metrics", number)],
            )
            for number in range(1, self.tritons + 1)
        )

    @property
    def loader_replicas(self) -> tuple[LoaderReplica, ...]:
        """The loader of every Triton, embedded or existing."""
        if self.triton_grpc is not None:
            port = self.ports.loader_metrics
            return (LoaderReplica("loader", LOADER, port, self.triton_grpc, None, *self.pools[:1]),)
        ports = self._ports()
        return tuple(
            LoaderReplica(
                name=number_name("loader", number, "-"),
                report=number_name(LOADER, number, "-"),
                metrics_port=ports[number_name("loader_metrics", number)],
                triton_grpc=triton.grpc,
                triton=triton,
                pool=self.pools[number - 1] if number <= len(self.pools) else DEFAULT_POOL,
            )
            for number, triton in enumerate(self.triton_replicas, 1)
        )

    @property
    def mlflow_url(self) -> str:
        """The MLflow server in use, ours or an existing one."""
        return self.mlflow_uri or f"http://{self.host}:{self.ports.mlflow}"

    @property
    def stats_url(self) -> str:
        """Where the statistics are: /metrics, and the page /ui."""
        return f"http://{self.host}:{self.ports.stats}"

    @property
    def kafka_address(self) -> str:
        """The Kafka bootstrap servers in use, ours or existing ones."""
        return self.kafka_bootstrap or f"{LOOPBACK}:{self.ports.kafka}"

    @property
    def triton_address(self) -> str:
        """The first Triton's gRPC address, host:port, ours or an existing one."""
        return self.triton_grpc or f"{LOOPBACK}:{self.ports.triton_grpc}"

    def needed_ports(self) -> dict[str, int]:
        """The ports that this stack itself will listen on, by name."""
        unused: set[str] = set()
        if self.kafka_bootstrap is not None:
            unused |= {"kafka", "kafka_controller"}
        if self.mlflow_uri is not None:
            unused |= {"mlflow"}
        if self.triton_grpc is not None:
            unused |= set(_TRITON_PORTS)
        return {name: port for name, port in self._ports().items() if name not in unused}

    def _ports(self) -> dict[str, int]:
        tritons = self.tritons if self.triton_grpc is None else 1
        return self.ports.with_replicas(self.gateways, tritons)

"""What ``headrace up`` is asked to run, as one frozen object built by the command line.

Nothing here reads the environment or touches a file.
"""

from dataclasses import dataclass, fields
from pathlib import Path

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """The TCP ports of the local stack, all on 127.0.0.1. Each is a flag ``--port-<name>``."""

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

    def flag(self, name: str) -> str:
        """The command line's flag that changes port ``name``."""
        return f"--port-{name.replace('_', '-')}"

    def named(self) -> dict[str, int]:
        """Every port by its field's name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(frozen=True, slots=True)
class StackSettings:
    """One local stack.

    ``kafka_bootstrap``, ``mlflow_uri`` and ``triton_grpc`` name existing services to use in place
    of the embedded ones; None starts ours. ``cache`` holds downloads that homes share. With a
    ``keys_file`` the gateway asks callers for a key. With ``auto_endpoints`` a registered
    model that has no endpoint gets one with defaults. Statistics are kept in windows of
    ``window_seconds`` of event time.
    """

    home: Path
    cache: Path
    ports: Ports = Ports()
    kafka_bootstrap: str | None = None
    mlflow_uri: str | None = None
    triton_grpc: str | None = None
    keys_file: Path | None = None
    example: bool = True
    auto_endpoints: bool = True
    window_seconds: int = 10

    @property
    def gateway_url(self) -> str:
        """Where callers reach the gateway over HTTP."""
        return f"http://{LOOPBACK}:{self.ports.gateway_http}"

    @property
    def gateway_grpc(self) -> str:
        """Where callers reach the gateway over gRPC, host:port."""
        return f"{LOOPBACK}:{self.ports.gateway_grpc}"

    @property
    def mlflow_url(self) -> str:
        """The MLflow server in use, ours or an existing one."""
        return self.mlflow_uri or f"http://{LOOPBACK}:{self.ports.mlflow}"

    @property
    def stats_url(self) -> str:
        """Where the statistics are: /metrics, and the page /ui."""
        return f"http://{LOOPBACK}:{self.ports.stats}"

    @property
    def kafka_address(self) -> str:
        """The Kafka bootstrap servers in use, ours or existing ones."""
        return self.kafka_bootstrap or f"{LOOPBACK}:{self.ports.kafka}"

    @property
    def triton_address(self) -> str:
        """The Triton gRPC address in use, host:port, ours or an existing one."""
        return self.triton_grpc or f"{LOOPBACK}:{self.ports.triton_grpc}"

    def needed_ports(self) -> dict[str, int]:
        """The ports that this stack itself will listen on, by name."""
        unused: set[str] = set()
        if self.kafka_bootstrap is not None:
            unused |= {"kafka", "kafka_controller"}
        if self.mlflow_uri is not None:
            unused |= {"mlflow"}
        if self.triton_grpc is not None:
            unused |= {"triton_http", "triton_grpc", "triton_metrics"}
        return {name: port for name, port in self.ports.named().items() if name not in unused}

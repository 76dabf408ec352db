"""All settings of the gateway, in one frozen object that ``main.py`` builds once.

Each field is a flag (``--http-port``) and an environment variable (``HEADRACE_HTTP_PORT``); the
flag wins. Nothing else in the gateway reads the environment. Units are in the names.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

PREFIX = "HEADRACE_"


def _option(default: Any, text: str, choices: Sequence[str] = ()) -> Any:  # noqa: ANN401
    return field(default=default, metadata={"help": text, "choices": tuple(choices)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator can set; every default suits the local stack."""

    # Where things are.
    home: str = _option("~/.headrace", "folder of the local stack's state")
    endpoints: str = _option(
        "", "folder of endpoint objects, or kubernetes://NAMESPACE; HOME/endpoints where empty"
    )
    reports: str = _option(
        "",
        "folder of loaders' reports, or kubernetes://NAMESPACE; HOME/reports where empty, or the "
        "namespace of the endpoints",
    )
    store_url: str = _option("", "package store, any fsspec URL; HOME/packages where empty")
    package_cache: str = _option("", "folder of opened packages; HOME/cache/gateway where empty")
    keys_file: str = _option("", "file of API keys; empty: anybody may ask")

    receipt_key_file: str = _option(
        "", "file of keys that sign answers, so that feedback can refer to them; empty: no feedback"
    )

    # Where it listens.
    host: str = _option("127.0.0.1", "address to listen on, HTTP and gRPC")
    http_port: int = _option(8080, "HTTP port; 0 takes a free one")
    grpc_port: int = _option(8081, "gRPC port; 0 takes a free one, -1 switches gRPC off")

    tls_certificate_file: str = _option(
        "", "certificate chain, PEM, for HTTP and gRPC; read again when it changes; empty: no TLS"
    )
    tls_key_file: str = _option("", "the certificate's key, PEM")

    # The engine.
    triton_grpc: tuple[str, ...] = _option(
        (), "host:port of Tritons beside those that loaders report, comma-separated"
    )
    engine: str = _option(
        "triton",
        "triton, or for benchmarks alone: echo (instant), simulated (an accelerator's cost)",
        ("triton", "echo", "simulated"),
    )
    echo_width: int = _option(2, "values a text that echo and simulated answer with")
    simulated_batch_seconds: float = _option(0.001, "what a batch takes, of engine simulated")
    simulated_token_seconds: float = _option(1.2e-6, "and each of its tokens, padding included")
    batches_ahead: int = _option(2, "batches in flight for each engine instance")
    tokens_in_flight: int = _option(262_144, "tokens in flight, all endpoints together")

    # Bounds of the HTTP front.
    max_body_bytes: int = _option(8 * 1024 * 1024, "largest body, after decompression as well")
    max_connections: int = _option(4096, "connections at once")
    body_seconds: float = _option(10.0, "time for a body to arrive")

    # Events.
    kafka_bootstrap: tuple[str, ...] = _option(
        (), "host:port of Kafka brokers, comma-separated; empty: no events"
    )
    kafka_login: str = _option(
        "", "folder of what signs in to Kafka, see service/kafka_login.py; empty: nothing does"
    )
    kafka_compression: str = _option("lz4", "codec of event messages", ("lz4", "zstd"))
    topic_partitions: int = _option(4, "partitions of the events' topic, where it is made")
    topic_replication: int = _option(1, "replicas of the events' topic, where it is made")
    topic_retention_hours: float = _option(168.0, "retention of the events' topic, where made")
    event_records: int = _option(
        200_000, "events, texts and observed values that wait for Kafka at most"
    )

    feedback_days: float = _option(30.0, "feedback on older answers is refused")

    # Going away.
    drain_seconds: float = _option(30.0, "time for requests on their way when told to stop")
    linger_seconds: float = _option(
        0.0, "time between turning not ready and closing the ports, for load balancers to notice"
    )
    flush_seconds: float = _option(5.0, "time for events to reach Kafka when told to stop")

    # What it says.
    log_level: str = _option("info", "least level logged", ("debug", "info", "warning", "error"))
    log_style: str = _option("auto", "auto: readable on a terminal", ("auto", "json", "terminal"))
    otlp_endpoint: str = _option("", "OpenTelemetry collector, http://host:4317; empty: no traces")
    trace_share: float = _option(1.0, "share of requests traced, of those without a traceparent")

    @property
    def home_folder(self) -> Path:
        """Folder of the local stack's state."""
        return Path(self.home).expanduser()

    @property
    def endpoints_folder(self) -> Path:
        """Folder of endpoint objects, where they lie in one."""
        return Path(self.endpoints) if self.endpoints else self.home_folder / "endpoints"

    @property
    def reports_folder(self) -> Path:
        """Folder of loaders' reports, where they lie in one."""
        return Path(self.reports) if self.reports else self.home_folder / "reports"

    @property
    def packages_url(self) -> str:
        """The package store's URL."""
        return self.store_url or (self.home_folder / "packages").absolute().as_uri()

    @property
    def cache_folder(self) -> Path:
        """Folder of opened packages."""
        return (
            Path(self.package_cache)
            if self.package_cache
            else self.home_folder / "cache" / "gateway"
        )


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """The settings that flags and environment give; ends the program on a mistake, as argparse.

    Args:
        arguments: the command line without the program's name.
        environment: where a flag that is not given is looked for.
    """
    parser = argparse.ArgumentParser(
        prog=f"{Path(sys.executable).name} -P -m gateway.main",
        description="Answers text over HTTP and gRPC from models that Triton holds.",
        epilog="Each flag can also be set as HEADRACE_<FLAG>, such as HEADRACE_HTTP_PORT.",
    )
    for entry in fields(Settings):
        default = environment.get(PREFIX + entry.name.upper())
        parser.add_argument(
            "--" + entry.name.replace("_", "-"),
            type=_parser(entry),
            default=entry.default if default is None else default,
            choices=entry.metadata["choices"] or None,
            metavar=None if entry.metadata["choices"] else entry.name.rpartition("_")[2].upper(),
            help=f"{entry.metadata['help']} (default: {_shown(entry.default)})".replace("%", "%%"),
        )
    values = vars(parser.parse_args(arguments))
    for entry in fields(Settings):  # argparse does not hold defaults to the choices
        choices = entry.metadata["choices"]
        if choices and values[entry.name] not in choices:
            parser.error(
                f"{PREFIX}{entry.name.upper()} is {values[entry.name]!r}, not one of "
                f"{', '.join(choices)}"
            )
    return Settings(**values)


def _parser(entry: "Field[Any]") -> Any:  # noqa: ANN401
    if isinstance(entry.default, tuple):
        return _addresses
    return type(entry.default)


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


def _shown(default: object) -> str:
    if isinstance(default, tuple) or default == "":
        return "none"
    return str(default)

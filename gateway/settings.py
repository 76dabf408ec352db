"""All settings of the gateway, in one frozen object that ``main.py`` builds once.

See ``service.flags`` for how each becomes a flag and a variable.
"""

from dataclasses import dataclass
from pathlib import Path

from contracts.ceilings import FLAG_HELP, NO_CEILINGS, Ceilings
from contracts.events import TOPIC
from contracts.pairs import TOPIC as PAIRS
from service.flags import option
from service.origins import read_origins


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Answers text over HTTP and gRPC from models that Triton holds."""

    # Every default suits the local stack.

    # Where things are.
    home: str = option("~/.headrace", "Folder of the local stack's state.")
    endpoints: str = option(
        "", "Folder of endpoint objects, or kubernetes://NAMESPACE; HOME/endpoints where empty."
    )
    reports: str = option(
        "",
        "Folder of loaders' reports, or kubernetes://NAMESPACE; HOME/reports where empty, or the "
        "namespace of the endpoints.",
    )
    peers: str = option(
        "",
        "Folder where gateways are counted, or kubernetes://NAMESPACE/SERVICE with their Service; "
        "HOME/gateways where empty. They share the rates of keys.",
    )
    store_url: str = option("", "Package store, any fsspec URL; HOME/packages where empty.")
    package_cache: str = option("", "Folder of opened packages; HOME/cache/gateway where empty.")
    keys_file: str = option("", "File of API keys; empty: anybody may ask.")
    ceilings: Ceilings = option(NO_CEILINGS, FLAG_HELP, read=Ceilings.read)
    receipt_key_file: str = option(
        "",
        "File of keys that sign answers, so that feedback can refer to them; empty: no feedback.",
    )

    # Where it listens.
    host: str = option("127.0.0.1", "Address to listen on, HTTP and gRPC.")
    http_port: int = option(8080, "HTTP port; 0 takes a free one.")
    grpc_port: int = option(8081, "gRPC port; 0 takes a free one, -1 switches gRPC off.")
    operations_port: int = option(
        9310,
        "Port of probes, metrics and documentation, which callers should not reach: no key is "
        "asked for; 0 takes a free one.",
    )

    allowed_origins: tuple[str, ...] = option(
        (),
        "Origins whose pages in browsers may ask, such as https://app.example.com, "
        "comma-separated; *: any; empty: none.",
        read=read_origins,
    )

    tls_certificate_file: str = option(
        "", "Certificate chain, PEM, for HTTP and gRPC; read again when it changes; empty: no TLS."
    )
    tls_key_file: str = option("", "The certificate's key, PEM.")

    # The engine.
    triton_tls_folder: str = option(
        "",
        "Folder with ca.crt, tls.crt and tls.key, for TLS to Triton with a certificate on both "
        "sides; empty: no TLS.",
    )
    triton_tls_name: str = option("triton", "The name in the certificates of Tritons.")
    triton_grpc: tuple[str, ...] = option(
        (), "host:port of Tritons beside those that loaders report, comma-separated."
    )
    triton_client: str = option(
        "own",
        "What calls Tritons: own (one connection to each, in the event loop; costs least), grpc "
        "(gRPC's channel, for a mesh that asks more of a client).",
        choices=("own", "grpc"),
    )
    batches_ahead: int = option(2, "Batches in flight for each engine instance.")
    bulk_delay_seconds: float = option(
        0.0,
        "A batch of bulk requests may delay an interactive one by this much; by more only as far "
        "as the p99 of these stays within a tenth.",
    )
    tokens_in_flight: int = option(262_144, "Tokens in flight, all endpoints together.")
    bytes_in_flight: int = option(
        384 * 1024 * 1024,
        "Bytes of bodies, texts and answers that callers hold, all together.",
    )

    # Tokenisers.
    tokeniser_megabytes: int = option(
        0,
        "Memory of all tokenisers; the longest unasked are closed for others; 0: half of what the "
        "process may use.",
    )
    tokeniser_share_ahead: float = option(
        0.75,
        "Share of it for those that are opened at the start, in this process; the others each get "
        "a process when they are asked for. 0: none is opened at the start.",
    )

    # Models that left their Tritons because nobody asked.
    wake_seconds: float = option(
        60.0, "Time that a caller waits at most for such a model to come back."
    )

    # Code that versions bring.
    model_code: bool = option(
        default=False, text="Run the code that versions bring, each in a process of its own."
    )
    model_code_seconds: float = option(0.5, "Longest time of one call of such code.")
    model_code_megabytes: int = option(1024, "Address space of each such process.")
    model_code_closed_off: bool = option(
        default=True,
        text="Run it only where the kernel closes off files, network and other processes.",
    )

    # Bounds of the HTTP front.
    max_body_bytes: int = option(8 * 1024 * 1024, "Largest body, after decompression as well.")
    max_connections: int = option(
        4096,
        "Connections at once, over HTTP and over gRPC each; idle ones are closed for new ones.",
    )
    max_connections_per_peer: int = option(
        2048, "Of them, those of one peer address, such as a proxy's; 0: as many as of all."
    )
    body_seconds: float = option(10.0, "Time for a body to arrive.")

    # Events.
    kafka_bootstrap: tuple[str, ...] = option(
        (), "host:port of Kafka brokers, comma-separated; empty: no events."
    )
    kafka_login: str = option(
        "", "Folder of what signs in to Kafka, see service/kafka.py; empty: nothing does."
    )
    kafka_compression: str = option("lz4", "Codec of event messages.", choices=("lz4", "zstd"))
    predictions_topic: str = option(TOPIC, "The events' topic; fold workers read it.")
    topic_partitions: int = option(4, "Partitions of the events' topic, where it is made.")
    topic_replication: int = option(1, "Replicas of the events' topic, where it is made.")
    topic_retention_hours: float = option(168.0, "Retention of the events' topic, where made.")
    event_records: int = option(
        200_000, "Events, texts and observed values that wait for Kafka at most."
    )

    pair_texts_hours: float = option(
        0.0,
        "Hours for which texts that stable and a candidate in shadow label differently stay on a "
        "topic of Kafka, for `headrace label`; 0: no text is ever kept.",
    )
    pairs_topic: str = option(PAIRS, "The topic of such texts, made with that retention.")

    feedback_days: float = option(30.0, "Feedback on older answers is refused.")

    # Files and batches of OpenAI's routes.
    batches_url: str = option(
        "",
        "Where files and batches (/v1/files, /v1/batches) lie: any fsspec URL that all gateways "
        "share and may write, such as a prefix of the packages' bucket; empty: none are taken.",
    )
    batch_file_bytes: int = option(100 * 1024 * 1024, "Largest file of a batch.")
    batch_days: float = option(7.0, "Days after which files and batches are removed.")

    # Going away.
    drain_seconds: float = option(30.0, "Time for requests on their way when told to stop.")
    linger_seconds: float = option(
        0.0,
        "Time between turning not ready and closing the ports, for load balancers to notice; "
        "connections over gRPC are renewed within it.",
    )
    flush_seconds: float = option(5.0, "Time for events to reach Kafka when told to stop.")

    # What it says.
    log_level: str = option(
        "info", "Least level logged.", choices=("debug", "info", "warning", "error")
    )
    log_style: str = option(
        "auto", "auto: readable on a terminal.", choices=("auto", "json", "terminal")
    )
    otlp_endpoint: str = option("", "OpenTelemetry collector, http://host:4317; empty: no traces.")
    trace_share: float = option(1.0, "Share of requests traced, of those without a traceparent.")

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
    def peers_folder(self) -> Path:
        """Folder where gateways are counted, where that is one."""
        return Path(self.peers) if self.peers else self.home_folder / "gateways"

    @property
    def packages_url(self) -> str:
        """The package store's URL."""
        return self.store_url or f"file://{(self.home_folder / 'packages').absolute()}"

    @property
    def cache_folder(self) -> Path:
        """Folder of opened packages."""
        return (
            Path(self.package_cache)
            if self.package_cache
            else self.home_folder / "cache" / "gateway"
        )

"""The settings of the roles of ``stats``, each built once in its main. Units are in the names."""

from dataclasses import dataclass

from contracts.events import TOPIC as PREDICTIONS
from contracts.windows import TOPIC as WINDOWS
from contracts.windows import WINDOW_SECONDS
from service.flags import option


@dataclass(frozen=True, slots=True)
class FoldSettings:
    """The fold role: counts prediction events into windows, as one of a consumer group."""

    kafka_bootstrap: str = option("127.0.0.1:9092", "host:port of Kafka brokers, comma-separated.")
    kafka_login: str = option(
        "", "Folder of what signs in to Kafka, see service/kafka_login.py; empty: nothing does."
    )
    group: str = option("headrace.fold", "Consumer group; its members share the partitions.")
    predictions_topic: str = option(PREDICTIONS, "Topic of prediction events; gateways make it.")
    windows_topic: str = option(WINDOWS, "Topic of window records; made where it is missing.")
    windows_partitions: int = option(4, "Partitions of the windows' topic, where it is made.")
    windows_replication: int = option(1, "Replicas of the windows' topic, where it is made.")
    windows_retention_hours: float = option(168.0, "Retention of that topic, where it is made.")
    window_seconds: int = option(WINDOW_SECONDS, "Length of a window of event time.")
    write_seconds: float = option(1.0, "A record that grows is written this often.")
    session_seconds: float = option(10.0, "A worker silent for so long loses its partitions.")
    request_seconds: float = option(5.0, "Deadline of one answer of a broker.")
    metrics_host: str = option("127.0.0.1", "Address that /metrics listens on.")
    metrics_port: int = option(0, "Port of /metrics; 0: off.")
    log_level: str = option("INFO", "Least severe level that is logged.")

"""The fold role's process: ``python -P -m stats.fold_main --help``.

Reads the environment once, here, and folds until SIGTERM or SIGINT. Any number of them share the
partitions of ``headrace.predictions``.
"""

import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass

from contracts.events import TOPIC as PREDICTIONS
from contracts.windows import TOPIC as WINDOWS
from contracts.windows import WINDOW_SECONDS
from service import flags, logs, pages
from service.flags import option
from service.kafka import KafkaAddress, KafkaLoginError, Topic
from service.loop_heartbeat import LoopHeartbeat
from stats.folding.fold import FoldCounts, FoldPace, run
from stats.folding.metrics import register
from stats.folding.prediction_log import KafkaPredictionLog
from stats.folding.record_sink import MAX_RECORD_BYTES, KafkaRecordSink
from stats.reading.group import GroupSettings

log = logging.getLogger(__name__)

# One round asks Kafka a dozen things at most, each with a deadline of seconds.
_ROUND_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class FoldSettings:
    """The fold role: counts prediction events into windows, as one of a consumer group."""

    kafka_bootstrap: str = option("127.0.0.1:9092", "host:port of Kafka brokers, comma-separated.")
    kafka_login: str = option(
        "", "Folder of what signs in to Kafka, see service/kafka.py; empty: nothing does."
    )
    group: str = option("headrace.fold", "Consumer group; its members share the partitions.")
    predictions_topic: str = option(PREDICTIONS, "Topic of prediction events; gateways make it.")
    windows_topic: str = option(WINDOWS, "Topic of window records; made if it is missing.")
    windows_partitions: int = option(4, "Partitions of the windows' topic, if it is made.")
    windows_replication: int = option(1, "Replicas of the windows' topic, if it is made.")
    windows_retention_hours: float = option(168.0, "Retention of that topic, if it is made.")
    window_seconds: int = option(WINDOW_SECONDS, "Length of a window of event time.")
    write_seconds: float = option(0.5, "A record that grows is written this often.")
    session_seconds: float = option(
        10.0, "A worker that is silent for this time loses its partitions."
    )
    request_seconds: float = option(5.0, "Deadline of one answer of a broker.")
    metrics_host: str = option("127.0.0.1", "Address that /metrics listens on.")
    metrics_port: int = option(0, "Port of /metrics; 0: off.")
    log_level: str = option("INFO", "Least severe level that is logged.")


def main() -> int:
    """Runs until SIGTERM or SIGINT."""
    settings = flags.parse(FoldSettings, sys.argv[1:], os.environ, program="stats.fold_main")
    if settings.window_seconds < 1:
        sys.exit("stats.fold_main: window-seconds must be at least 1")
    logs.configure("fold", settings.log_level)
    try:
        address = KafkaAddress.of(
            settings.kafka_bootstrap,
            login=settings.kafka_login,
            request_seconds=settings.request_seconds,
        )
    except KafkaLoginError as error:
        log.error("%s", error)
        return 1
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    counts, heartbeat = FoldCounts(), LoopHeartbeat(_ROUND_SECONDS)
    register(counts)
    if settings.metrics_port:
        pages.serve(settings.metrics_host, settings.metrics_port, {"/livez": heartbeat.fault})
    log.info("the fold role starts", extra={"bootstrap": settings.kafka_bootstrap})
    pace = FoldPace(settings.window_seconds, settings.write_seconds)
    run(lambda: _connect(settings, address), pace, counts, stop, heartbeat.beat)
    log.info("the fold role ends")
    return 0


def _connect(
    settings: FoldSettings, address: KafkaAddress
) -> tuple[KafkaPredictionLog, KafkaRecordSink]:
    source = KafkaPredictionLog(
        address, GroupSettings(settings.group, settings.session_seconds, settings.predictions_topic)
    )
    windows = Topic(
        settings.windows_topic,
        settings.windows_partitions,
        settings.windows_replication,
        settings.windows_retention_hours,
        MAX_RECORD_BYTES,
    )
    try:
        sink = KafkaRecordSink(address, windows)
    except BaseException:
        source.close()
        raise
    log.info("connected to Kafka", extra={"bootstrap": settings.kafka_bootstrap})
    return source, sink


if __name__ == "__main__":
    sys.exit(main())

"""The fold role's process: ``python -P -m stats.fold_main --help``.

Reads the environment once, here, and folds until SIGTERM or SIGINT. Any number of them share the
partitions of ``headrace.predictions``.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping

from service import flags, kafka_login, logs, pages
from service.turning import Turning
from stats.fold import FoldCounts, FoldPace, run
from stats.kafka_clients import KafkaAddress, Topic
from stats.metrics import register
from stats.prediction_log import GroupSettings, KafkaPredictionLog
from stats.record_sink import KafkaRecordSink
from stats.settings import FoldSettings

log = logging.getLogger(__name__)

# One turn asks Kafka a dozen things at most, each with a deadline of seconds.
_TURN_SECONDS = 180.0


def main() -> int:
    """Runs until SIGTERM or SIGINT."""
    settings = flags.parse(FoldSettings, sys.argv[1:], os.environ, program="stats.fold_main")
    if settings.window_seconds < 1:
        sys.exit("stats.fold_main: window-seconds must be at least 1")
    logs.configure("fold", settings.log_level)
    try:
        login = kafka_login.options(settings.kafka_login)
    except kafka_login.KafkaLoginError as error:
        log.error("%s", error)
        return 1
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    counts, turning = FoldCounts(), Turning(_TURN_SECONDS)
    register(counts)
    if settings.metrics_port:
        pages.serve(settings.metrics_host, settings.metrics_port, {"/livez": turning.fault})
    log.info("the fold role starts", extra={"bootstrap": settings.kafka_bootstrap})
    pace = FoldPace(settings.window_seconds, settings.write_seconds)
    run(lambda: _connect(settings, login), pace, counts, stop, turning.turned)
    log.info("the fold role ends")
    return 0


def _connect(
    settings: FoldSettings, login: Mapping[str, object]
) -> tuple[KafkaPredictionLog, KafkaRecordSink]:
    address = KafkaAddress(
        tuple(settings.kafka_bootstrap.split(",")),
        request_seconds=settings.request_seconds,
        options=login,
    )
    source = KafkaPredictionLog(
        address, GroupSettings(settings.group, settings.session_seconds, settings.predictions_topic)
    )
    windows = Topic(
        settings.windows_topic,
        settings.windows_partitions,
        settings.windows_replication,
        settings.windows_retention_hours,
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

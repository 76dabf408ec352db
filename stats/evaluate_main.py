"""The evaluate role's process: ``python -P -m stats.evaluate_main --help``.

Reads the environment once, here, builds the parts, and serves ``/metrics`` and the page ``/ui``
until SIGTERM or SIGINT. Several divide the endpoints among them (``stats.evaluation.sharding``).
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import uvicorn

from contracts.endpoint import ModelEndpoint
from contracts.events import TOPIC as PREDICTIONS
from contracts.windows import TOPIC as WINDOWS
from measures.rhythm import Week
from service import flags, listener, logs
from service.cluster.errors import AccessError
from service.flags import option
from service.kafka import KafkaAddress, KafkaLoginError
from stats.evaluation.app import application
from stats.evaluation.calibration_store import CalibrationFile
from stats.evaluation.drift import DriftSettings
from stats.evaluation.evaluation import Evaluation, WindowTiming
from stats.evaluation.evaluator import EvaluatePace, Evaluator
from stats.evaluation.references import StoredReferences
from stats.evaluation.sharding import Shard
from stats.evaluation.totals import SeriesLimits
from stats.reading.endpoints import open_endpoints, open_reports, open_whole_status
from stats.reading.published import KafkaEventLogEnds
from stats.reading.record_log import LAST_RECORDS, KafkaRecordLog
from stats.ui.app import router
from stats.ui.shards import Shards
from stats.ui.view import Links

log = logging.getLogger(__name__)

_CALIBRATIONS = "learnt.json"
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """The evaluate role: the exporter of traffic and drift, and the page /ui."""

    endpoints: str = field(
        metadata={"help": "Where endpoints lie: a folder, or kubernetes://NAMESPACE."}
    )
    store_url: str = field(metadata={"help": "Package store, any fsspec URL."})
    reports: str = option(
        "",
        "Where loaders' reports lie, for the page: a folder, or kubernetes://NAMESPACE; empty: it "
        "does not say what Tritons compute with.",
    )
    kafka_bootstrap: str = option("127.0.0.1:9092", "host:port of Kafka brokers, comma-separated.")
    kafka_login: str = option(
        "", "Folder of what signs in to Kafka, see service/kafka.py; empty: nothing does."
    )
    predictions_topic: str = option(
        PREDICTIONS, "Topic of prediction events; its ends tell what there is to be counted."
    )
    windows_topic: str = option(WINDOWS, "Topic of window records; fold workers make it.")
    host: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(9300, "Port of /metrics and /ui.")
    state_dir: str = option(
        "", "Folder that keeps drift's calibration; empty: it is calibrated again after each start."
    )
    gateway_url: str = option("", "Where browsers reach the gateway, for the page.")
    mlflow_url: str = option("", "Where browsers reach MLflow, for the page.")
    shards: int = option(1, "Processes among which endpoints are divided.")
    shard: str = option("0", "Which of them this one is: a number from 0, or a name that ends so.")
    shard_url: str = option(
        "", "Where each of them is found, with {shard} in place of its number; for several."
    )
    most_arms: int = option(256, "Arms of endpoints of this process that have series.")
    most_versions: int = option(64, "Versions that it watches for drift.")
    history_hours: float = option(24.0, "Age of the oldest records that are read at the start.")
    lateness_seconds: float = option(5.0, "Time after its end at which a window is closed.")
    keep_seconds: float = option(600.0, "Time after which series of an arm that is gone end.")
    drift_window_seconds: float = option(60.0, "Least length of a window that drift looks at.")
    drift_window_texts: int = option(1000, "Least texts in such a window.")
    false_alarm_days: float = option(
        30.0, "Expected days between false alarms of an endpoint, over all its statistics."
    )
    calibration_hours: float = option(
        24.0, "Traffic that tells how an endpoint moves without drift; no alarm before."
    )
    time_zone: str = option("UTC", "Clock of those who send texts, such as Europe/Berlin.")
    days_apart: str = option(
        "saturday,sunday", "Days of the week whose rhythm is their own; all others share one."
    )
    request_seconds: float = option(5.0, "Deadline of one answer of a Kafka broker.")
    log_level: str = option("INFO", "Least severe level that is logged.")


def main() -> int:
    """Runs until SIGTERM or SIGINT."""
    settings = flags.parse(
        EvaluateSettings, sys.argv[1:], os.environ, program="stats.evaluate_main"
    )
    if min(settings.false_alarm_days, settings.drift_window_seconds) <= 0:
        sys.exit("stats.evaluate_main: false-alarm-days and drift-window-seconds are above 0")
    try:
        week = week_of(settings.time_zone, settings.days_apart)
        shard = Shard.read(settings.shard, settings.shards)
    except ValueError as error:
        sys.exit(f"stats.evaluate_main: {error}")
    logs.configure("stats", settings.log_level)
    references = StoredReferences(settings.store_url)
    try:
        endpoints = open_endpoints(settings.endpoints, os.environ)
        whole_of = open_whole_status(settings.endpoints, os.environ)
        loaders = open_reports(settings.reports, os.environ)
        address = KafkaAddress.of(
            settings.kafka_bootstrap,
            login=settings.kafka_login,
            request_seconds=settings.request_seconds,
        )
    except (AccessError, KafkaLoginError) as error:
        log.error("%s", error)
        return 1
    shards = Shards(shard, settings.shard_url) if settings.shard_url and shard.of > 1 else None
    evaluator = _evaluator(
        settings, week, references, endpoints, address, shard=shard, shards=shards
    )
    links = Links(settings.gateway_url, settings.mlflow_url)
    page = router(endpoints, evaluator.board, links, shards=shards, reports=loaders, whole=whole_of)
    app = application(evaluator, page)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=3,
        )
    )
    # uvicorn raises the signal that ended it once more, for the handlers that were there before: by
    # default that would end the process here, before the calibration is saved.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)

    def end() -> None:
        server.should_exit = True

    try:
        socket = listener.listen(settings.host, settings.port)
    except OSError as error:
        log.error("can't listen on %s:%d: %s", settings.host, settings.port, error)
        return 1
    log.info("the evaluate role starts", extra={"bootstrap": settings.kafka_bootstrap})
    references.start()
    evaluator.start(on_fault=end)
    try:
        server.run(sockets=[socket])
    finally:
        evaluator.close()
        references.close()
    log.info("the evaluate role ends")
    return 0 if server.started and not evaluator.is_broken() else 1


def week_of(zone: str, days_apart: str) -> Week:
    """The week of these settings.

    Raises:
        ValueError: there is no such time zone or day.
    """
    names = [name.strip().lower() for name in days_apart.split(",") if name.strip()]
    for name in names:
        if name not in _DAYS:
            raise ValueError(f"days-apart names {name!r}, which is none of {', '.join(_DAYS)}")
    try:
        found = UTC if zone == "UTC" else ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"time-zone {zone!r} is not known here") from error
    return Week(found, tuple(sorted({_DAYS.index(name) for name in names})))


def _evaluator(
    settings: EvaluateSettings,
    week: Week,
    references: StoredReferences,
    endpoints: Callable[[], Sequence[ModelEndpoint]],
    address: KafkaAddress,
    *,
    shard: Shard,
    shards: Shards | None,
) -> Evaluator:
    drift = DriftSettings(
        window_seconds=settings.drift_window_seconds,
        window_texts=settings.drift_window_texts,
        false_alarm_seconds=settings.false_alarm_days * 86_400,
        calibration_seconds=settings.calibration_hours * 3600,
        week=week,
    )
    folder = Path(settings.state_dir) if settings.state_dir else None
    calibrations = CalibrationFile(folder and folder / _CALIBRATIONS)
    kept = calibrations.load()
    # Of endpoints that were another shard's until now. What lies here is what was learnt here last.
    learnt = {**(shards.read_learnt() if shards is not None else {}), **kept}
    pace = WindowTiming(
        lateness_seconds=settings.lateness_seconds, keep_seconds=settings.keep_seconds
    )
    most = SeriesLimits(settings.most_arms, settings.most_versions)
    return Evaluator(
        Evaluation(references, drift, pace, learnt, most=most),
        lambda since: KafkaRecordLog(
            address, since, settings.windows_topic, last_records=LAST_RECORDS
        ),
        KafkaEventLogEnds(address, settings.predictions_topic),
        endpoints,
        calibrations,
        false_alarm_seconds=drift.false_alarm_seconds,
        shard=shard,
        pace=EvaluatePace(history_seconds=settings.history_hours * 3600),
    )


if __name__ == "__main__":
    sys.exit(main())

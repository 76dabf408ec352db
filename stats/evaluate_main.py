"""The evaluate role's process: ``python -P -m stats.evaluate_main --help``.

Reads the environment once, here, builds the parts, and serves ``/metrics`` and the page ``/ui``
until SIGTERM or SIGINT. One replica: a second one would export every series twice.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvicorn

from contracts.endpoint import ModelEndpoint
from service import flags, kafka_login, logs
from service.kafka_login import KafkaLoginError
from service.kubernetes.errors import AccessError
from stats import endpoint_places
from stats.drift import DriftSettings
from stats.evaluate import EvaluatePace, Evaluator
from stats.evaluate_app import application
from stats.evaluate_settings import EvaluateSettings
from stats.evaluation import Evaluation, Pace
from stats.kafka_clients import KafkaAddress
from stats.learnt import Forgetful, Learnt, LearntFile
from stats.published import KafkaPublished
from stats.references import StoredReferences
from stats.ui.app import router
from stats.ui.view import Links
from stats.window_log import KafkaWindowLog

log = logging.getLogger(__name__)

_LEARNT = "learnt.json"


def main() -> int:
    """Runs until SIGTERM or SIGINT."""
    settings = flags.parse(
        EvaluateSettings, sys.argv[1:], os.environ, program="stats.evaluate_main"
    )
    if min(settings.false_alarm_days, settings.drift_window_seconds) <= 0:
        sys.exit("stats.evaluate_main: false-alarm-days and drift-window-seconds are above 0")
    logs.configure("stats", settings.log_level)
    references = StoredReferences(settings.store_url)
    try:
        endpoints = endpoint_places.opened(settings.endpoints, os.environ)
        login = kafka_login.options(settings.kafka_login)
    except (AccessError, KafkaLoginError) as error:
        log.error("%s", error)
        return 1
    evaluator = _evaluator(settings, references, endpoints, login)
    links = Links(settings.gateway_url, settings.mlflow_url)
    app = application(evaluator, router(endpoints, evaluator.board, links))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=3,
        )
    )
    # uvicorn raises the signal that ended it once more, for the handlers that were there before: by
    # default that would end the process here, before what drift learnt is saved.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)

    def end() -> None:
        server.should_exit = True

    log.info("the evaluate role starts", extra={"bootstrap": settings.kafka_bootstrap})
    references.start()
    evaluator.start(on_fault=end)
    try:
        server.run()
    finally:
        evaluator.close()
        references.close()
    log.info("the evaluate role ends")
    return 0 if server.started and not evaluator.broken() else 1


def _evaluator(
    settings: EvaluateSettings,
    references: StoredReferences,
    endpoints: Callable[[], Sequence[ModelEndpoint]],
    login: Mapping[str, object],
) -> Evaluator:
    address = KafkaAddress(
        tuple(settings.kafka_bootstrap.split(",")),
        request_seconds=settings.request_seconds,
        options=login,
    )
    drift = DriftSettings(
        window_seconds=settings.drift_window_seconds,
        window_texts=settings.drift_window_texts,
        false_alarm_seconds=settings.false_alarm_days * 86_400,
        calibration_seconds=settings.calibration_hours * 3600,
    )
    learnt: Learnt = Forgetful()
    if settings.state_dir:
        learnt = LearntFile(Path(settings.state_dir) / _LEARNT)
    pace = Pace(lateness_seconds=settings.lateness_seconds, keep_seconds=settings.keep_seconds)
    return Evaluator(
        Evaluation(references, drift, pace, learnt.load()),
        lambda since: KafkaWindowLog(address, since, settings.windows_topic),
        KafkaPublished(address, settings.predictions_topic),
        endpoints,
        learnt,
        false_alarm_seconds=drift.false_alarm_seconds,
        pace=EvaluatePace(history_seconds=settings.history_hours * 3600),
    )


if __name__ == "__main__":
    sys.exit(main())

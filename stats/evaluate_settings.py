"""The settings of the evaluate role, built once in its main. Units are in the names."""

from dataclasses import dataclass, field

from contracts.events import TOPIC as PREDICTIONS
from contracts.windows import TOPIC as WINDOWS
from service.flags import option


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """The evaluate role: the one exporter of traffic and drift, and the page /ui. One replica."""

    endpoints: str = field(
        metadata={"help": "Where endpoints lie: a folder, or kubernetes://NAMESPACE."}
    )
    store_url: str = field(metadata={"help": "Package store, any fsspec URL."})
    kafka_bootstrap: str = option("127.0.0.1:9092", "host:port of Kafka brokers, comma-separated.")
    kafka_login: str = option(
        "", "Folder of what signs in to Kafka, see service/kafka_login.py; empty: nothing does."
    )
    predictions_topic: str = option(
        PREDICTIONS, "Topic of prediction events; its ends tell what there is to be counted."
    )
    windows_topic: str = option(WINDOWS, "Topic of window records; fold workers make it.")
    host: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(9300, "Port of /metrics and /ui.")
    state_dir: str = option(
        "", "Folder where what drift learnt is kept; empty: it is learnt anew after each start."
    )
    gateway_url: str = option("", "Where browsers reach the gateway, for the page.")
    mlflow_url: str = option("", "Where browsers reach MLflow, for the page.")
    history_hours: float = option(24.0, "Records of so long ago are read at the start.")
    lateness_seconds: float = option(5.0, "A window is closed so long after its end.")
    keep_seconds: float = option(600.0, "Series of an arm that is gone end after so long.")
    drift_window_seconds: float = option(60.0, "Least length of a window that drift looks at.")
    drift_window_texts: int = option(1000, "Least texts in such a window.")
    false_alarm_days: float = option(
        30.0, "Expected days between false alarms of an endpoint, over all its statistics."
    )
    calibration_hours: float = option(
        24.0, "Traffic that tells how an endpoint moves without drift; no alarm before."
    )
    request_seconds: float = option(5.0, "Deadline of one answer of a Kafka broker.")
    log_level: str = option("INFO", "Least severe level that is logged.")

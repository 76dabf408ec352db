"""The settings of the controller, built once in its main.

Units are in the names. The code that uses a folder makes it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from contracts.ceilings import FLAG_HELP, NO_CEILINGS, Ceilings
from contracts.events import TOPIC as PREDICTIONS
from contracts.windows import TOPIC as WINDOWS
from service.flags import option


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The controller: brings registered versions into service, and judges them on the way."""

    endpoints: str = field(
        metadata={"help": "Where endpoints lie: a folder, or kubernetes://NAMESPACE."}
    )
    reports: str = field(
        metadata={"help": "Where loaders leave their reports: a folder, or kubernetes://NAMESPACE."}
    )
    store_url: str = field(metadata={"help": "Package store, any fsspec URL."})
    work_dir: Path = field(metadata={"help": "Folder for conversions' scratch files."})
    mlflow_uri: str = option(
        "http://127.0.0.1:5000", "MLflow's address; credentials as its own client reads them."
    )
    kafka_bootstrap: str = option(
        "127.0.0.1:9092", "Kafka's bootstrap servers, whence the windows of statistics come."
    )
    kafka_login: str = option(
        "", "Folder of what signs in to Kafka, see service/kafka.py; empty: nothing does."
    )
    predictions_topic: str = option(
        PREDICTIONS, "Topic of prediction events; its ends tell what there is to be counted."
    )
    windows_topic: str = option(WINDOWS, "Topic of window records; fold workers make it.")
    auto_endpoints: bool = option(
        default=False, text="Make an endpoint for every registered model that has none."
    )
    tick_seconds: float = option(0.25, "Time between two looks at endpoints and reports.")
    poll_seconds: float = option(1.0, "Time between two questions to MLflow.")
    poll_with_webhooks_seconds: float = option(
        30.0, "The same while its webhooks are seen to arrive; a webhook has it asked at once."
    )
    mlflow_sources: tuple[str, ...] = option(
        (),
        "URLs below which the artifacts of versions may lie, beside those that MLflow serves "
        "itself, comma-separated.",
    )
    mlflow_workspaces: tuple[str, ...] = option(
        (),
        "Workspaces of MLflow that are followed, comma-separated: models are WORKSPACE/MODEL then; "
        "empty: the client's own (MLFLOW_WORKSPACE).",
    )
    alias_models: tuple[str, ...] = option(
        (),
        "Models whose aliases endpoints may move on promotion, as patterns, comma-separated; * for "
        "all.",
    )
    ceilings: Ceilings = option(NO_CEILINGS, FLAG_HELP, read=Ceilings.read)
    mlflow_timeout_seconds: float = option(5.0, "Deadline of one question to MLflow.")
    loader_silence_seconds: float = option(15.0, "A loader silent for so long is not waited for.")
    keep_seconds: float = option(600.0, "Time that the previous stable version stays loaded.")
    keep_packages: int = option(
        0, "Packages kept of each model beside those that endpoints name; 0: none is removed."
    )
    conversions: int = option(1, "Conversions at a time; of one tenant half of them, at least one.")
    conversion_timeout_seconds: float = option(1800.0, "Longest time of one conversion.")
    conversion_memory_megabytes: int = option(6144, "Most memory of one conversion's processes.")
    conversion_threads: int = option(1, "CPU threads of a conversion and of the engine.")
    allow_pickle: bool = option(default=False, text="Convert versions that hold pickles.")
    allow_remote_code: bool = option(default=False, text="Run code that a version brings.")
    model_code: bool = option(
        default=False,
        text="Gateways run the code that versions bring for them; without, such are refused.",
    )
    pyfunc: bool = option(
        default=False, text="Convert versions that are Python of their users' own (pyfunc)."
    )
    pyfunc_megabytes: int = option(2048, "Address space of each process of a pyfunc.")
    pyfunc_closed_off: bool = option(
        default=True,
        text="Run pyfuncs only if the kernel closes them off (Landlock and seccomp).",
    )
    conversion_job_template: str = option(
        "", "File with the Job of a conversion, as JSON; empty: conversions are subprocesses."
    )
    export_command: str = option(
        "",
        "Program that installs torch and transformers, see "
        "registry/conversions/export_environment.py.",
    )
    index_key_file: str = option(
        "",
        "File of the keys that sign which conversion made which package, see service/key_files.py; "
        "empty: one is made in the work folder.",
    )
    release: str = option("", "NAMESPACE/NAME of this release, of several that share such a key.")
    webhook_host: str = option("127.0.0.1", "Address that MLflow's webhook listens on.")
    webhook_port: int = option(0, "Port of MLflow's webhook; 0: off.")
    webhook_secret: str = option("", "Secret that MLflow signs its webhooks with.")
    webhook_secret_file: str = option(
        "",
        "File of such secrets, see service/key_files.py: the first is told to MLflow, all are "
        "taken. Instead of --webhook-secret.",
    )
    webhook_url: str = option(
        "",
        "Where MLflow reaches the webhook: it is registered there under this address; empty: "
        "somebody else registers it.",
    )
    metrics_host: str = option("127.0.0.1", "Address that /metrics listens on.")
    metrics_port: int = option(0, "Port of /metrics; 0: off.")
    log_level: str = option("INFO", "Least severe level that is logged.")

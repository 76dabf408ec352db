"""The settings of the loader, built once in its main.

Units are in the names. The code that uses a folder makes it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from contracts.ceilings import FLAG_HELP, NO_CEILINGS, Ceilings
from contracts.loading import LEAST_IDLE_SECONDS
from contracts.model import DEFAULT_POOL, pool_named
from registry.pyfunc.process import PyfuncLimits
from service.flags import option


def idle_seconds(text: str) -> float:
    """The time after which a model leaves, as a flag has it; raises ``ValueError``."""
    seconds = float(text)
    if seconds != 0 and not seconds >= LEAST_IDLE_SECONDS:
        raise ValueError(f"{text} s are too short: 0, or at least {LEAST_IDLE_SECONDS:g} s.")
    return seconds


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """The loader: keeps one Triton's models as the endpoints say."""

    endpoints: str = field(
        metadata={"help": "Where endpoints lie: a folder, or kubernetes://NAMESPACE."}
    )
    reports: str = field(
        metadata={"help": "Where loaders leave their reports: a folder, or kubernetes://NAMESPACE."}
    )
    store_url: str = field(metadata={"help": "Package store, any fsspec URL."})
    state_dir: Path = field(
        metadata={"help": "Folder for what this loader keeps: local packages, its ledger."}
    )
    triton_grpc: str = option("127.0.0.1:8001", "Triton's gRPC address, host:port.")
    triton_key_file: str = option(
        "", "File with the key that Triton asks for before it loads a model; empty: it asks none."
    )
    triton_tls_folder: str = option(
        "",
        "Folder with ca.crt, tls.crt and tls.key, for TLS to Triton with a certificate on both "
        "sides; empty: no TLS.",
    )
    triton_tls_name: str = option("triton", "The name in the certificates of Tritons.")
    advertise_grpc: str = option("", "Address at which gateways reach it; empty: the same.")
    model_repository: str = option(
        "", "Model repository folder that Triton reads too; empty: upload the files to it."
    )
    loader_name: str = option("local", "Name of this loader, unique for each Triton.")
    pool: str = option(
        DEFAULT_POOL,
        "Pool that this Triton belongs to: it holds the versions of its endpoints.",
        read=pool_named,
    )
    backend: str = option(
        "auto",
        "Triton's backend; auto: the native one if Triton has it, else Python.",
        choices=("auto", "python", "onnxruntime"),
    )
    device: str = option(
        "auto",
        "What Triton computes with; gpu: not ready, with the reason, without one that it can use; "
        "auto: a GPU if there is one, for the packages that it can run.",
        choices=("auto", "cpu", "gpu"),
    )
    poll_seconds: float = option(0.25, "Time between two looks at endpoints and Triton.")
    heartbeat_seconds: float = option(2.0, "Longest time between two reports.")
    call_timeout_seconds: float = option(2.0, "Deadline of a short call to Triton.")
    load_timeout_seconds: float = option(120.0, "Deadline of one load and of one warm-up batch.")
    unload_after_seconds: float = option(600.0, "Time that a model stays after nobody names it.")
    idle_seconds: float = option(
        0.0,
        "Time without a request after which a model leaves Triton until somebody asks for it, at "
        "least 60; 0: models stay.",
        read=idle_seconds,
    )
    wake_address: str = option(
        "",
        "host:port at which gateways reach the port of /metrics, to have a model come back.",
    )
    warmup_seconds: float = option(1.5, "Time to measure a model's batches after its load.")
    auto_instances: int = option(
        0,
        "Copies of a model on CPUs whose endpoint names no number; 0: as many as do most work by "
        "measurement, each by as many threads as the cores allow.",
    )
    ceilings: Ceilings = option(NO_CEILINGS, FLAG_HELP, read=Ceilings.read)
    pyfunc: bool = option(
        default=False, text="Have Triton run versions that are Python of their users' own (pyfunc)."
    )
    pyfunc_seconds: float = option(2.0, "Longest time of one batch of a pyfunc.")
    pyfunc_megabytes: int = option(2048, "Address space of each process of a pyfunc.")
    pyfunc_closed_off: bool = option(
        default=True,
        text="Run pyfuncs only if the kernel closes them off (Landlock and seccomp).",
    )
    cores: int = option(0, "CPUs that Triton may use; 0: those that this process may use.")
    memory_megabytes: int = option(
        0,
        "Memory that Triton may use, which bounds copies and what is loaded; 0: what this process "
        "may use, and of a Triton elsewhere all that is loaded.",
    )
    disk_megabytes: int = option(
        0, "Disk that packages may take; what does not fit is not fetched. 0: what is free."
    )
    metrics_host: str = option("127.0.0.1", "Address that /metrics listens on.")
    metrics_port: int = option(
        0, "Port of /metrics and of /readyz and /triton/livez for probes; 0: off."
    )
    log_level: str = option("INFO", "Least severe level that is logged.")

    @property
    def pyfunc_limits(self) -> PyfuncLimits:
        """What a pyfunc may take."""
        return PyfuncLimits(
            call_seconds=self.pyfunc_seconds,
            megabytes=self.pyfunc_megabytes,
            closed_off=self.pyfunc_closed_off,
        )

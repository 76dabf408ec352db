"""The processes of the local stack: what each is started with, and how it shows that it is ready.

``plan`` needs the parts that were fetched. It lays out what a part needs on disk (Kafka's settings,
MLflow's folders) and starts nothing. All but Triton and Java run on this program's own interpreter.
"""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from headrace.stack import kafka, mlflow, probes, provision, triton
from headrace.stack.settings import (
    LOOPBACK,
    GatewayReplica,
    LoaderReplica,
    StackSettings,
    TritonReplica,
)
from headrace.stack.state import Home
from headrace.stack.supervisor import Service
from service import machine
from service.key_files import make_key_file

# What the services and their libraries must not take from the shell that ``up`` runs in.
# Compiled modules are kept: without them every start takes twice as long.
_NOT_INHERITED = (
    "CLASSPATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONWARNINGS",
)
_OURS = "HEADRACE_"
_MLFLOW_SECONDS = 5.0  # its first answer makes the database
# The processes share few cores: each keeps to the threads it needs.
_THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
}


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """What every process of the stack inherits from the user's environment.

    Services are set only by their flags, so that none of our own variables reaches them.
    """
    kept = {
        name: value
        for name, value in base.items()
        if name not in _NOT_INHERITED and not name.startswith(_OURS)
    }
    return {**kept, **_THREADS}


def plan(settings: StackSettings, home: Home, base: Mapping[str, str]) -> tuple[Service, ...]:
    """The services to run, in the order in which they are named to the user.

    All start at once: each of ours does its work as soon as what it talks to is there, and goes
    on when that goes away.

    Raises:
        HeadraceError: a part can't be had or its state is damaged.
    """
    clean = environment(base)
    services: list[Service] = []
    if settings.mlflow_uri is None:
        clean.pop("MLFLOW_WORKSPACE", None)  # of another MLflow: this one's client would fail
        services.append(_mlflow(settings, home, clean))
    if settings.kafka_bootstrap is None:
        services.append(_kafka(settings, home, clean))
    loaders = settings.loader_replicas
    services += [
        _triton(settings, home, clean, loader.triton, loader)
        for loader in loaders
        if loader.triton is not None
    ]
    services += [_loader(settings, home, clean, loader) for loader in loaders]
    services += [
        _controller(settings, home, clean),
        _fold(settings, home, clean),
        _stats(settings, home, clean),
    ]
    services += [_gateway(settings, home, clean, each) for each in settings.gateway_replicas]
    limit = settings.start_within_seconds
    return tuple(replace(each, ready_within_seconds=limit) for each in services)


def _mlflow(settings: StackSettings, home: Home, env: Mapping[str, str]) -> Service:
    server = mlflow.LocalMlflowServer(home.mlflow, settings.ports.mlflow, settings.listen)
    mlflow.lay_out(server)
    return Service(
        name="mlflow",
        argv=tuple(mlflow.command(server)),
        env=mlflow.environment(server, env),
        cwd=home.mlflow,
        ready=probes.http_ok(mlflow.readiness_url(settings.mlflow_url), _MLFLOW_SECONDS),
    )


def _kafka(settings: StackSettings, home: Home, env: Mapping[str, str]) -> Service:
    files = kafka.prepare(settings.parts_folder)
    ports = settings.ports
    node = kafka.KafkaNode(home.kafka, port=ports.kafka, controller_port=ports.kafka_controller)
    kafka.lay_out(node)

    def before_start() -> None:
        kafka.remove_leftovers(node)
        kafka.format_storage(files, node, timeout_seconds=settings.start_within_seconds)

    return Service(
        name="kafka",
        argv=tuple(kafka.server_command(files, node)),
        env=kafka.environment(env),
        cwd=home.kafka,
        ready=probes.accepts(LOOPBACK, ports.kafka),
        before_start=before_start,
    )


def _triton(
    settings: StackSettings,
    home: Home,
    env: Mapping[str, str],
    replica: TritonReplica,
    loader: LoaderReplica,
) -> Service:
    files = triton.prepare(settings.parts_folder, lambda _: None)
    server = triton.TritonServer(
        home.repository_of(replica.name),
        http_port=replica.http_port,
        grpc_port=replica.grpc_port,
        metrics_port=replica.metrics_port,
        control_key=triton.control_key(home.control_key_of(replica.name)),
        gpu_metrics=settings.device != "cpu" and triton.has_gpu_driver(),
    )
    python = triton.python_with(
        home.python_of(replica.name), provision.export_folder(settings.cache)
    )
    return Service(
        name=replica.name,
        argv=tuple(triton.command(files, server)),
        env=triton.environment(files, env, python),
        cwd=home.root,
        ready=probes.http_ok(triton.readiness_url(server)),
        # It says that it is ready even when a model's process is gone; the loader runs inferences.
        stuck=probes.http_unwell(f"http://{LOOPBACK}:{loader.metrics_port}/triton/livez"),
        before_start=lambda: triton.remove_leftovers(server),
    )


def triton_cores(cores: int, tritons: int) -> int:
    """Cores for each Triton: all else on the machine needs half of them.

    >>> triton_cores(2, 1), triton_cores(6, 1), triton_cores(16, 2), triton_cores(64, 1)
    (1, 3, 4, 32)
    """
    return max(1, cores // (2 * tritons))


def _loader(
    settings: StackSettings, home: Home, env: Mapping[str, str], replica: LoaderReplica
) -> Service:
    # An existing Triton need not share our disk: its models are sent to it.
    repository = key_file = ""
    if replica.triton is not None:
        repository = str(home.repository_of(replica.triton.name))
        key_file = str(home.control_key_of(replica.triton.name))
    return Service(
        name=replica.name,
        argv=_python(
            "registry.loader_main",
            endpoints=home.endpoints,
            reports=home.reports,
            store_url=_store_url(settings, home),
            state_dir=home.root / replica.name,
            triton_grpc=replica.triton_grpc,
            triton_key_file=key_file,
            model_repository=repository,
            loader_name=replica.report,
            pool=replica.pool,
            device=settings.device,
            metrics_port=replica.metrics_port,
            idle_seconds=settings.idle_seconds,
            wake_address=f"{LOOPBACK}:{replica.metrics_port}",
            ceilings=str(settings.ceilings),
            pyfunc=str(settings.pyfunc).lower(),
            cores=triton_cores(machine.cores(), len(settings.loader_replicas)),
            memory_megabytes=machine.memory_bytes() // len(settings.loader_replicas) // 1024**2,
        ),
        env=env,
        cwd=home.root,
        ready=probes.was_written(home.reports / f"{replica.report}.json"),
        uses=() if replica.triton is None else (replica.triton.name,),
    )


def _controller(settings: StackSettings, home: Home, env: Mapping[str, str]) -> Service:
    cache = str(settings.cache)
    install = ["-m", "headrace.stack.provision", "export", "--json", "--cache", cache]
    return Service(
        name="controller",
        argv=_python(
            "controller.main",
            endpoints=home.endpoints,
            reports=home.reports,
            store_url=_store_url(settings, home),
            work_dir=home.root / "work",
            mlflow_uri=settings.mlflow_url,
            mlflow_sources=",".join(settings.mlflow_sources),
            mlflow_workspaces=",".join(settings.mlflow_workspaces),
            kafka_bootstrap=settings.kafka_address,
            auto_endpoints=str(settings.auto_endpoints).lower(),
            model_code=str(settings.model_code).lower(),
            pyfunc=str(settings.pyfunc).lower(),
            allow_remote_code=str(settings.allow_remote_code).lower(),
            allow_pickle=str(settings.allow_pickle).lower(),
            alias_models="*",  # one person's stack
            ceilings=str(settings.ceilings),
            metrics_port=settings.ports.controller_metrics,
            export_command=shlex.join([sys.executable, "-P", *install]),
        ),
        env=env,
        cwd=home.root,
        ready=probes.has_grown(home.logs / "controller.log"),
        stuck=probes.http_unwell(f"http://{LOOPBACK}:{settings.ports.controller_metrics}/livez"),
        uses=("mlflow",),
    )


def _fold(settings: StackSettings, home: Home, env: Mapping[str, str]) -> Service:
    return Service(
        name="fold",
        argv=_python(
            "stats.fold_main",
            kafka_bootstrap=settings.kafka_address,
            window_seconds=settings.window_seconds,
            metrics_port=settings.ports.fold_metrics,
        ),
        env=env,
        cwd=home.root,
        ready=probes.has_grown(home.logs / "fold.log"),
        stuck=probes.http_unwell(f"http://{LOOPBACK}:{settings.ports.fold_metrics}/livez"),
        uses=("kafka",),
    )


def _stats(settings: StackSettings, home: Home, env: Mapping[str, str]) -> Service:
    return Service(
        name="stats",
        argv=_python(
            "stats.evaluate_main",
            endpoints=home.endpoints,
            reports=home.reports,
            store_url=_store_url(settings, home),
            kafka_bootstrap=settings.kafka_address,
            host=settings.listen,
            port=settings.ports.stats,
            state_dir=home.root / "stats",
            gateway_url=settings.gateway_url,
            mlflow_url=settings.mlflow_url,
        ),
        env=env,
        cwd=home.root,
        ready=probes.http_ok(f"{settings.stats_url}/livez"),
        stuck=probes.http_unwell(f"{settings.stats_url}/livez"),
        uses=("kafka",),
    )


def _gateway(
    settings: StackSettings, home: Home, env: Mapping[str, str], replica: GatewayReplica
) -> Service:
    return Service(
        name=replica.name,
        argv=_python(
            "gateway.main",
            home=home.root,
            endpoints=home.endpoints,
            reports=home.reports,
            store_url=_store_url(settings, home),
            package_cache=home.root / "cache" / replica.name,
            host=settings.listen,
            http_port=replica.http_port,
            grpc_port=replica.grpc_port,
            operations_port=replica.operations_port,
            kafka_bootstrap=settings.kafka_address,
            keys_file="" if settings.keys_file is None else settings.keys_file,
            allowed_origins=",".join(settings.allowed_origins),
            receipt_key_file=home.receipt_keys,
            ceilings=str(settings.ceilings),
            pair_texts_hours=str(settings.pair_texts_hours),
            model_code=str(settings.model_code).lower(),
            tokeniser_megabytes=settings.tokeniser_megabytes,
            tokeniser_share_ahead=settings.tokeniser_share_ahead,
            drain_seconds=5,
            bulk_delay_seconds=0.01,  # to try it out: of one Triton little else would be idle
            log_style="json",
        ),
        env=env,
        cwd=home.root,
        ready=probes.http_ok(f"{replica.operations_url}/livez"),
        # One file for all gateways: each reads the receipts that another one signed.
        before_start=lambda: make_key_file(home.receipt_keys),
        uses=("kafka", *(triton.name for triton in settings.triton_replicas)),
        stop_within_seconds=15.0,
    )


def _store_url(settings: StackSettings, home: Home) -> str:
    """Where packages lie: the existing store, else a folder of the home, which fsspec reads raw."""
    return settings.package_store or f"file://{home.packages}"


def _python(module: str, **flags: str | float | Path) -> tuple[str, ...]:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    return (sys.executable, "-P", "-m", module, *words)

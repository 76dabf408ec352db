"""``headrace up``: shows the steps, then what to try."""

import asyncio
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from contracts.ceilings import Ceilings
from contracts.device_words import in_words
from contracts.loading import LEAST_IDLE_SECONDS
from contracts.model import pool_named
from headrace.commands.steps import Steps
from headrace.options import (
    CACHE,
    HOME,
    SEVERAL_PANEL,
    Cache,
    Gateways,
    Home,
    Tritons,
    checked_brokers,
    checked_url,
    make_absolute,
)
from headrace.program import App, environment, refuse_cluster
from headrace.stack import example
from headrace.stack.settings import Ports, StackSettings
from headrace.stack.up import RunningStack, StackRun
from service.origins import read_origins

_EXISTING = "Existing services"
T = TypeVar("T")
app = App()
KafkaBootstrap = Annotated[
    str | None,
    typer.Option(
        callback=checked_brokers, help="Use this Kafka (host:port).", rich_help_panel=_EXISTING
    ),
]
MlflowUri = Annotated[
    str | None,
    typer.Option(
        callback=checked_url, help="Use this MLflow server (URL).", rich_help_panel=_EXISTING
    ),
]
Grafana = Annotated[
    str | None,
    typer.Option(
        callback=checked_url,
        help="Bring the dashboards into this Grafana (URL, with name:password@, or a token in "
        "HEADRACE_GRAFANA_TOKEN).",
        rich_help_panel=_EXISTING,
    ),
]
MlflowSource = Annotated[
    list[str] | None,
    typer.Option(
        help="URL below which the files of versions may lie, beside what MLflow serves itself.",
        rich_help_panel=_EXISTING,
    ),
]
MlflowWorkspaces = Annotated[
    list[str] | None,
    typer.Option(
        "--mlflow-workspace",
        metavar="NAME",
        help="Serve the models of this workspace, named NAME/MODEL; may be given several times.",
        rich_help_panel=_EXISTING,
    ),
]
Pools = Annotated[
    list[str] | None,
    typer.Option(
        "--pool",
        metavar="NAME",
        help="The pool of the first Triton, and so on: --pool cpu --pool gpu. Endpoints name one "
        "in spec.pool; Tritons without one, and endpoints, belong to the pool default.",
        rich_help_panel=SEVERAL_PANEL,
    ),
]
TritonGrpc = Annotated[
    str | None, typer.Option(help="Use this Triton (host:port of gRPC).", rich_help_panel=_EXISTING)
]
PackageStore = Annotated[
    str | None,
    typer.Option(
        help="Keep packages there (a URL, for instance s3://BUCKET/FOLDER).",
        rich_help_panel=_EXISTING,
    ),
]
KeysFile = Annotated[
    Path | None, typer.Option(help="Ask callers for a key of this file (headrace keys create).")
]
Listen = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="IPv4 address on which gateways, MLflow and the page listen, 0.0.0.0 for all.",
    ),
]
Parts = Annotated[
    Path | None,
    typer.Option(
        envvar="HEADRACE_PARTS",
        help="Folder that holds Triton and Kafka already; by default they come into --cache.",
    ),
]
StartWithin = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="How long to wait for a running part to become ready, and for MLflow's answers.",
    ),
]
Example = Annotated[bool, typer.Option(help="Register the example model when MLflow has no model.")]
AutoEndpoints = Annotated[
    bool, typer.Option(help="Make an endpoint for each registered model that has none.")
]
WindowSeconds = Annotated[
    int, typer.Option(min=1, help="Length of the windows that statistics are kept in.")
]
PairTextsHours = Annotated[
    float,
    typer.Option(
        min=0,
        help="How long Kafka keeps texts that two versions label differently, to label them.",
    ),
]
ModelCode = Annotated[
    bool,
    typer.Option(
        "--model-code",
        help="Run the code that versions bring for gateways, in processes of their own.",
    ),
]
Pyfunc = Annotated[
    bool,
    typer.Option(
        "--pyfunc",
        help="Serve versions that are Python of their users' own, in processes of their own.",
    ),
]
AllowRemoteCode = Annotated[
    bool,
    typer.Option("--allow-remote-code", help="Run code of versions (auto_map) to convert them."),
]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Convert versions with pickles, which can run code.")
]
IdleSeconds = Annotated[
    float,
    typer.Option(
        help="Time without a request after which a model leaves its Tritons until somebody asks "
        "for it, at least 60; 0: models stay.",
    ),
]
TokeniserMegabytes = Annotated[
    int,
    typer.Option(
        min=0,
        help="Memory of a gateway's tokenisers; the least recently used are closed; 0: half "
        "of the machine's.",
    ),
]
TokeniserShareAhead = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="Share of it for those that are opened at the start; the others each get a process "
        "when they are asked for.",
    ),
]
Ceiling = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER",
        help="The most of something that an endpoint may ask for, for instance instances=2.",
    ),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN",
        help="Whose pages in browsers may ask the gateway, for instance http://localhost:3000.",
    ),
]
Port = Annotated[int, typer.Option(min=1, max=65535, rich_help_panel="Ports")]


class ComputeDevice(StrEnum):
    """What Tritons compute with."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


DeviceFlag = Annotated[
    ComputeDevice,
    typer.Option(
        "--device",
        help="What Triton computes with. gpu: it is not ready, and says why, if it can't use one; "
        "torch is installed at the start. auto: a GPU if there is one, for what can run on it.",
    ),
]


@app.declare()
def up(
    home: Home = HOME,
    cache: Cache = CACHE,
    parts: Parts = None,
    listen: Listen = "127.0.0.1",
    kafka_bootstrap: KafkaBootstrap = None,
    mlflow_uri: MlflowUri = None,
    mlflow_source: MlflowSource = None,
    mlflow_workspace: MlflowWorkspaces = None,
    grafana: Grafana = None,
    triton_grpc: TritonGrpc = None,
    package_store: PackageStore = None,
    keys_file: KeysFile = None,
    gateways: Gateways = 1,
    tritons: Tritons = 1,
    pool: Pools = None,
    port_gateway_http: Port = 8080,
    port_gateway_grpc: Port = 8081,
    port_mlflow: Port = 5000,
    port_kafka: Port = 9092,
    port_kafka_controller: Port = 9093,
    port_triton_http: Port = 8000,
    port_triton_grpc: Port = 8001,
    port_triton_metrics: Port = 8002,
    port_stats: Port = 9300,
    port_controller_metrics: Port = 9301,
    port_fold_metrics: Port = 9302,
    port_loader_metrics: Port = 9303,
    port_gateway_operations: Port = 9310,
    start_within: StartWithin = 1800.0,
    example: Example = True,
    auto_endpoints: AutoEndpoints = True,
    window_seconds: WindowSeconds = 10,
    pair_texts_hours: PairTextsHours = 0.0,
    model_code: ModelCode = False,
    pyfunc: Pyfunc = False,
    allow_remote_code: AllowRemoteCode = False,
    allow_pickle: AllowPickle = False,
    idle_seconds: IdleSeconds = 0.0,
    tokeniser_megabytes: TokeniserMegabytes = 0,
    tokeniser_share_ahead: TokeniserShareAhead = 0.75,
    ceiling: Ceiling = None,
    allow_origin: AllowOrigin = None,
    device: DeviceFlag = ComputeDevice.AUTO,
) -> None:
    """Starts the whole stack on this machine and runs it until Ctrl-C."""
    refuse_cluster(
        "headrace up runs a stack on this machine; a cluster gets one by the Helm chart: "
        "helm install headrace charts/headrace."
    )
    pools = tuple(_read(pool_named, each, "--pool") for each in pool or ())
    ceilings = _read(Ceilings.read, ",".join(ceiling or ()), "--ceiling")
    origins = _read(read_origins, ",".join(allow_origin or ()), "--allow-origin")
    try:
        IPv4Address(listen)
    except ValueError as error:
        raise typer.BadParameter(f"no IPv4 address: {error}", param_hint="--listen") from error
    if triton_grpc is not None and tritons > 1:
        raise typer.BadParameter(
            "it counts embedded Tritons, and --triton-grpc names one to use in their place",
            param_hint="--tritons",
        )
    if idle_seconds and idle_seconds < LEAST_IDLE_SECONDS:
        raise typer.BadParameter(
            f"0, or at least {LEAST_IDLE_SECONDS:g}", param_hint="--idle-seconds"
        )
    if mlflow_workspace and mlflow_uri is None:
        raise typer.BadParameter(
            "the embedded MLflow has none: name yours with --mlflow-uri",
            param_hint="--mlflow-workspace",
        )
    if len(pool or ()) > tritons:
        raise typer.BadParameter("there are fewer Tritons than pools", param_hint="--pool")

    settings = StackSettings(
        home=make_absolute(home),
        cache=make_absolute(cache),
        ports=Ports(
            gateway_http=port_gateway_http,
            gateway_grpc=port_gateway_grpc,
            mlflow=port_mlflow,
            kafka=port_kafka,
            kafka_controller=port_kafka_controller,
            triton_http=port_triton_http,
            triton_grpc=port_triton_grpc,
            triton_metrics=port_triton_metrics,
            stats=port_stats,
            controller_metrics=port_controller_metrics,
            fold_metrics=port_fold_metrics,
            loader_metrics=port_loader_metrics,
            gateway_operations=port_gateway_operations,
        ),
        listen=listen,
        parts=None if parts is None else make_absolute(parts),
        kafka_bootstrap=kafka_bootstrap,
        mlflow_uri=mlflow_uri,
        mlflow_sources=tuple(mlflow_source or ()),
        mlflow_workspaces=tuple(dict.fromkeys(mlflow_workspace or ())),
        grafana=grafana,
        triton_grpc=triton_grpc,
        package_store=package_store,
        keys_file=None if keys_file is None else make_absolute(keys_file),
        example=example and not mlflow_workspace,  # nobody would follow its workspace
        auto_endpoints=auto_endpoints,
        window_seconds=window_seconds,
        pair_texts_hours=pair_texts_hours,
        model_code=model_code,
        pyfunc=pyfunc,
        allow_remote_code=allow_remote_code,
        allow_pickle=allow_pickle,
        idle_seconds=idle_seconds,
        tokeniser_megabytes=tokeniser_megabytes,
        tokeniser_share_ahead=tokeniser_share_ahead,
        ceilings=ceilings,
        allowed_origins=origins,
        start_within_seconds=start_within,
        gateways=gateways,
        tritons=tritons,
        pools=pools,
        device=device.value,
    )
    run(settings, environment())


def _read(reader: Callable[[str], T], text: str, flag: str) -> T:
    """What a flag's text means, in the words of what reads it if that is nothing."""
    try:
        return reader(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from error


def run(settings: StackSettings, environment: Mapping[str, str]) -> None:
    """Runs the stack until Ctrl-C; its processes inherit of ``environment`` what may reach them."""
    console = Console()
    steps = Steps(console)
    console.print(f"Headrace, in {escape(str(settings.home))}", highlight=False)

    def announce(started: RunningStack) -> None:
        steps.clear()
        for line in invitation(started):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    with steps.live():
        asyncio.run(StackRun(settings, environment, steps, announce).run())
    console.print("Stopped.", highlight=False)


def invitation(started: RunningStack) -> list[str]:
    """What a user sees once the stack answers: addresses, and commands that work as printed."""
    settings = started.settings
    lines = [
        "",
        f"Up in {started.seconds:.1f} s. Ctrl-C stops it; what it stores is kept.",
        "",
        *(
            f"  {each.name:<9} {each.url}   (gRPC {each.grpc}, docs {each.operations_url}/docs)"
            for each in settings.gateway_replicas
        ),
        f"  MLflow    {settings.mlflow_url}",
        f"  page      {settings.stats_url}/ui/   (statistics, drift, rollouts; /metrics beside it)",
        *([f"  Grafana   {started.grafana}"] if started.grafana else []),
        f"  Kafka     {settings.kafka_address}",
        *_tritons(started),
        f"  logs      {settings.home / 'logs'}",
        *_open_to_others(settings),
    ]
    for name, why in started.unready.items():
        lines += ["", f"Not answering yet: {name} ({why}). Watch it: headrace status --watch"]
    if started.serving:
        name = example.ENDPOINT if example.ENDPOINT in started.serving else started.serving[0]
        body = f'{{"inputs": "{example.TEXT}"}}'
        address = f"{settings.gateway_url}/endpoints/{name}"
        curl = ["curl", "-s", address, "-H", "content-type: application/json", "-d", body]
        lines += ["", "Try it:", f"  {shlex.join(curl)}"]
    if settings.example:
        lines += second_version(settings)
    lines += [
        "",
        "Register a model of your own, with the standard MLflow client:",
        f"  export MLFLOW_TRACKING_URI={settings.mlflow_url}",
        "",
    ]
    return lines


def _open_to_others(settings: StackSettings) -> list[str]:
    """What a user who listens on more than loopback should know."""
    if IPv4Address(settings.listen).is_loopback:
        return []
    who = "Gateways ask callers for a key" if settings.keys_file else "Nobody is asked for a key"
    return [
        "",
        f"Gateways, MLflow and the page listen on {settings.listen}. {who}; MLflow and the page",
        "ask nobody who they are: keep these ports from people whom you do not trust.",
    ]


def _tritons(started: RunningStack) -> list[str]:
    settings = started.settings
    names = [each.name.capitalize() for each in settings.triton_replicas] or ["Triton"]
    addresses = [each.triton_grpc for each in settings.loader_replicas]
    devices = started.devices or (None,) * len(names)
    return [
        f"  {name:<9} {address} (gRPC)" + (f", {words}" if (words := in_words(device)) else "")
        for name, address, device in zip(names, addresses, devices, strict=True)
    ]


def second_version(settings: StackSettings) -> list[str]:
    """How to register another version of the example, and what becomes of it.

    It is a rollout, and one without traffic stays where it is: nobody should wait for it in vain.
    """
    name, folder = example.ENDPOINT, example.script().parent
    register = example.command(settings.mlflow_url, "--variant", "v2")
    looser = ["apply", "-f", str(folder / "endpoint.yaml")]
    texts = str(folder / "texts" / "replay.txt")
    replay = ["replay", texts, "--endpoint", name, "--rate", "30", "--callers", "300"]
    status = ["rollout", "status", name, "--watch"]
    promote = ["rollout", "promote", name, "--full"]
    return [
        "",
        "Register a second version:",
        f"  {shlex.join(register)}",
        "It is compared with the first one on traffic, and gets callers step by step. To see that",
        "in minutes, loosen its checks, send traffic and watch; or give it all callers at once:",
        *(f"  {_own_command(settings, words)}" for words in (looser, replay, status, promote)),
    ]


def _own_command(settings: StackSettings, words: list[str]) -> str:
    program = (
        "headrace" if shutil.which("headrace") else str(Path(sys.executable).with_name("headrace"))
    )
    home = [] if settings.home == make_absolute(HOME) else ["--home", str(settings.home)]
    return shlex.join([program, *words, *home])

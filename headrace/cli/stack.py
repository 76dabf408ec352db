"""Words of the commands about the local stack as a whole, ``up`` and ``status`` among them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import (
    CACHE,
    HOME,
    Cache,
    Details,
    Home,
    Json,
    Port,
    absolute,
    names,
    where,
)
from headrace.cli.program import environment

_MOST_REPLICAS = 16
_SEVERAL = "Several of each"
_EXISTING = "Existing services"
Gateways = Annotated[
    int,
    typer.Option(
        min=1,
        max=_MOST_REPLICAS,
        help="How many gateways; further ones take the next ports.",
        rich_help_panel=_SEVERAL,
    ),
]
Tritons = Annotated[
    int,
    typer.Option(
        min=1,
        max=_MOST_REPLICAS,
        help="How many Tritons, each with a loader; further ones take the next ports.",
        rich_help_panel=_SEVERAL,
    ),
]
KafkaBootstrap = Annotated[
    str | None, typer.Option(help="Use this Kafka (host:port).", rich_help_panel=_EXISTING)
]
MlflowUri = Annotated[
    str | None, typer.Option(help="Use this MLflow server (URL).", rich_help_panel=_EXISTING)
]
MlflowSource = Annotated[
    list[str] | None,
    typer.Option(
        help="URL below which the files of versions may lie, beside what MLflow serves itself.",
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
        rich_help_panel=_SEVERAL,
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
        help="Wait so long for a part that lives and is not ready, and for MLflow's answers.",
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
        help="Keep texts that two versions label differently in Kafka for so long, to label them.",
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
        help="Memory of a gateway's tokenisers; the longest unasked are closed for others; 0: half "
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


class Computing(StrEnum):
    """What Tritons compute with."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


DeviceFlag = Annotated[
    Computing,
    typer.Option(
        "--device",
        help="What Triton computes with. gpu: it is not ready, and says why, if it can't use one; "
        "torch is installed at the start. auto: a GPU if there is one, for what can run on it.",
    ),
]


def up(
    home: Home = HOME,
    cache: Cache = CACHE,
    parts: Parts = None,
    listen: Listen = "127.0.0.1",
    kafka_bootstrap: KafkaBootstrap = None,
    mlflow_uri: MlflowUri = None,
    mlflow_source: MlflowSource = None,
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
    idle_seconds: IdleSeconds = 0.0,
    tokeniser_megabytes: TokeniserMegabytes = 0,
    tokeniser_share_ahead: TokeniserShareAhead = 0.75,
    ceiling: Ceiling = None,
    device: DeviceFlag = Computing.AUTO,
) -> None:
    """Starts the whole stack on this machine and runs it until Ctrl-C."""
    from ipaddress import IPv4Address

    from contracts.ceilings import Ceilings
    from contracts.loading import LEAST_IDLE_SECONDS
    from contracts.model import pool_named
    from headrace.commands import up as command
    from headrace.stack.settings import Ports, StackSettings

    try:
        pools = tuple(map(pool_named, pool or ()))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--pool") from error
    try:
        ceilings = Ceilings.read(",".join(ceiling or ()))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ceiling") from error
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
    if len(pool or ()) > tritons:
        raise typer.BadParameter("there are fewer Tritons than pools", param_hint="--pool")

    settings = StackSettings(
        home=absolute(home),
        cache=absolute(cache),
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
        parts=None if parts is None else absolute(parts),
        kafka_bootstrap=kafka_bootstrap,
        mlflow_uri=mlflow_uri,
        mlflow_sources=tuple(mlflow_source or ()),
        triton_grpc=triton_grpc,
        package_store=package_store,
        keys_file=None if keys_file is None else absolute(keys_file),
        example=example,
        auto_endpoints=auto_endpoints,
        window_seconds=window_seconds,
        pair_texts_hours=pair_texts_hours,
        model_code=model_code,
        pyfunc=pyfunc,
        idle_seconds=idle_seconds,
        tokeniser_megabytes=tokeniser_megabytes,
        tokeniser_share_ahead=tokeniser_share_ahead,
        ceilings=ceilings,
        start_within_seconds=start_within,
        gateways=gateways,
        tritons=tritons,
        pools=pools,
        device=device.value,
    )
    command.run(settings, environment())


def status(
    endpoint: Annotated[
        str | None, typer.Argument(help="Only this endpoint.", autocompletion=names)
    ] = None,
    home: Home = HOME,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it.")] = False,
    details: Details = False,
    json: Json = False,
) -> None:
    """Shows what runs, and where each endpoint's versions are on their way."""
    from headrace.commands import status as command

    command.run(where(home), endpoint, watch=watch, as_json=json, details=details)


def models(
    home: Home = HOME,
    mlflow_uri: Annotated[
        str | None,
        typer.Option(help="URL of MLflow; by default that of the stack that runs on --home."),
    ] = None,
    json: Json = False,
) -> None:
    """Lists registered models, their versions, and what became of each."""
    from headrace.commands import models as command

    command.show(where(home), mlflow_uri, as_json=json)


def doctor(
    home: Home = HOME,
    cache: Cache = CACHE,
    gateways: Gateways = 1,
    tritons: Tritons = 1,
    json: Json = False,
) -> None:
    """Says what of this machine is missing for the local stack."""
    from headrace.commands import doctor as command
    from headrace.stack.settings import StackSettings

    settings = StackSettings(
        home=absolute(home), cache=absolute(cache), gateways=gateways, tritons=tritons
    )
    command.run(settings, as_json=json)


def version(json: Json = False) -> None:
    """Shows which Headrace this is, and what it runs on."""
    import platform
    from importlib.metadata import version as version_of

    from headrace.commands.output import print_json, print_line

    found = {"headrace": version_of("headrace"), "python": platform.python_version()}
    found["kubernetes client"] = version_of("kubernetes")
    if json:
        print_json({name.replace(" ", "_"): said for name, said in found.items()})
    else:
        for name, said in found.items():
            print_line(f"{name} {said}")


class Shell(StrEnum):
    """A shell that can complete words."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Whose script: bash, zsh or fish.")],
) -> None:
    """Prints a script for a shell, which then completes commands, names, versions, namespaces.

    For this shell alone: source <(headrace completion bash).
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(
        prog_name="headrace", complete_var="_HEADRACE_COMPLETE", shell=shell.value
    )
    typer.echo(script)


def gc(
    home: Home = HOME,
    keep: Annotated[int, typer.Option(min=1, help="Packages to keep of each model.")] = 5,
    json: Json = False,
) -> None:
    """Removes old packages, keeping the newest and all that an endpoint names."""
    from headrace.commands import models as command

    command.collect(absolute(home), keep=keep, as_json=json)

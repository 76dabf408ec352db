"""The command line ``headrace``: declares the commands and turns every error into a sentence.

Each command's work is in ``headrace.commands.<name>``, imported when it is run, so that ``--help``
and completion stay quick. A failure that a person can act on is printed without a traceback and
ends with the error's own exit status.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from headrace.errors import HeadraceError

errors = Console(stderr=True)


class SentenceGroup(TyperGroup):
    """Prints a ``HeadraceError`` as its message."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's context, which typer brings along
        """Runs a command.

        Raises:
            typer.Exit: with the error's exit status.
        """
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            errors.print(error.message, style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(error.exit_status) from None


app = typer.Typer(
    cls=SentenceGroup,
    no_args_is_help=True,
    help="Serves Hugging Face encoder models: registered in MLflow, run by Triton.",
    pretty_exceptions_show_locals=False,
)
keys = typer.Typer(no_args_is_help=True, help="API keys of the gateway.")
app.add_typer(keys, name="keys")

Home = Annotated[
    Path,
    typer.Option(
        envvar="HEADRACE_HOME",
        help="Folder with everything that the local stack keeps.",
        file_okay=True,
    ),
]
Cache = Annotated[
    Path, typer.Option(envvar="HEADRACE_CACHE", help="Folder of downloads, shared by all homes.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Gateway = Annotated[
    str | None,
    typer.Option(
        envvar="HEADRACE_URL",
        help="The gateway's address; by default that of the stack that runs on --home.",
    ),
]
ApiKey = Annotated[str | None, typer.Option(envvar="HEADRACE_KEY", help="API key, if needed.")]
Port = Annotated[int, typer.Option(min=1, max=65535, rich_help_panel="Ports on 127.0.0.1")]

HOME = Path("~/.headrace")
CACHE = Path("~/.cache/headrace")


def _print_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if asked:
        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Serves Hugging Face encoder models: registered in MLflow, run by Triton."""


@app.command()
def up(
    home: Home = HOME,
    cache: Cache = CACHE,
    kafka_bootstrap: Annotated[
        str | None,
        typer.Option(help="Use this Kafka (host:port).", rich_help_panel="Existing services"),
    ] = None,
    mlflow_uri: Annotated[
        str | None,
        typer.Option(help="Use this MLflow server (URL).", rich_help_panel="Existing services"),
    ] = None,
    triton_grpc: Annotated[
        str | None,
        typer.Option(
            help="Use this Triton (host:port of gRPC).", rich_help_panel="Existing services"
        ),
    ] = None,
    keys_file: Annotated[
        Path | None, typer.Option(help="Ask callers for a key of this file (headrace keys create).")
    ] = None,
    port_gateway_http: Port = 8080,
    port_gateway_grpc: Port = 8081,
    port_mlflow: Port = 5000,
    port_kafka: Port = 9092,
    port_kafka_controller: Port = 9093,
    port_triton_http: Port = 8000,
    port_triton_grpc: Port = 8001,
    port_triton_metrics: Port = 8002,
    example: Annotated[
        bool, typer.Option(help="Register the example model when MLflow has no model.")
    ] = True,
) -> None:
    """Starts the whole stack on this machine and runs it until Ctrl-C."""
    from headrace.commands import up as command
    from headrace.stack.settings import Ports, StackSettings

    settings = StackSettings(
        home=_absolute(home),
        cache=_absolute(cache),
        ports=Ports(
            gateway_http=port_gateway_http,
            gateway_grpc=port_gateway_grpc,
            mlflow=port_mlflow,
            kafka=port_kafka,
            kafka_controller=port_kafka_controller,
            triton_http=port_triton_http,
            triton_grpc=port_triton_grpc,
            triton_metrics=port_triton_metrics,
        ),
        kafka_bootstrap=kafka_bootstrap,
        mlflow_uri=mlflow_uri,
        triton_grpc=triton_grpc,
        keys_file=None if keys_file is None else _absolute(keys_file),
        example=example,
    )
    command.run(settings)


@app.command()
def status(
    endpoint: Annotated[str | None, typer.Argument(help="Only this endpoint.")] = None,
    home: Home = HOME,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it.")] = False,
    json: Json = False,
) -> None:
    """Shows what runs, and where each endpoint's versions are on their way."""
    from headrace.commands import status as command

    command.run(_absolute(home), endpoint, watch=watch, as_json=json)


@app.command()
def predict(
    endpoint: Annotated[str, typer.Argument(help="Name of the endpoint.")],
    texts: Annotated[list[str], typer.Argument(help="Texts to classify or embed.")],
    home: Home = HOME,
    url: Gateway = None,
    key: ApiKey = None,
    json: Json = False,
) -> None:
    """Sends texts to an endpoint and shows its answers."""
    from headrace.commands import predict as command

    command.run(_absolute(home), endpoint, texts, url=url, key=key, as_json=json)


@app.command()
def models(home: Home = HOME, json: Json = False) -> None:
    """Lists registered models, their versions, and what became of each."""
    from headrace.commands import models as command

    command.run(_absolute(home), as_json=json)


@app.command()
def doctor(home: Home = HOME, cache: Cache = CACHE, json: Json = False) -> None:
    """Says what of this machine is missing for the local stack."""
    from headrace.commands import doctor as command
    from headrace.stack.settings import StackSettings

    command.run(StackSettings(home=_absolute(home), cache=_absolute(cache)), as_json=json)


@app.command()
def gc(
    home: Home = HOME,
    keep: Annotated[int, typer.Option(min=1, help="Packages to keep of each model.")] = 5,
    json: Json = False,
) -> None:
    """Removes old packages, keeping the newest and all that an endpoint names."""
    from headrace.commands import gc as command

    command.run(_absolute(home), keep=keep, as_json=json)


@keys.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="Whose key it is; appears in metrics and logs.")],
    file: Annotated[Path, typer.Option(help="The gateway's key file, made if need be.")],
    endpoint: Annotated[
        list[str] | None, typer.Option(help="An endpoint that it opens; all, unless given.")
    ] = None,
    requests_per_second: Annotated[
        float | None, typer.Option(help="Most requests a second.")
    ] = None,
    json: Json = False,
) -> None:
    """Makes an API key, adds its hash to the key file and prints the key, this once."""
    from headrace.commands import keys as command

    command.create(
        _absolute(file),
        name,
        endpoint or ["*"],
        requests_per_second=requests_per_second,
        as_json=json,
    )


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()

"""Words of the commands about gateways: ``predict``, ``replay`` and ``keys``."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import (
    HOME,
    ApiKey,
    Endpoint,
    Gateway,
    Home,
    Json,
    absolute,
    duration,
    names,
    where,
)
from headrace.cli.program import App

keys = App(help="API keys of the gateway.")


def predict(
    endpoint: Endpoint,
    texts: Annotated[list[str], typer.Argument(help="Texts to classify or embed.")],
    home: Home = HOME,
    url: Gateway = None,
    key: ApiKey = None,
    json: Json = False,
) -> None:
    """Sends texts to an endpoint and shows its answers."""
    from headrace.commands import predict as command

    command.run(where(home), endpoint, texts, url=url, key=key, as_json=json)


def replay(
    file: Annotated[Path, typer.Argument(help="Texts: .txt, .csv, .tsv or .jsonl, also with .gz.")],
    endpoint: Annotated[str, typer.Option(help="Name of the endpoint.", autocompletion=names)],
    rate: Annotated[float, typer.Option(min=0.001, max=100_000, help="Requests a second.")],
    duration: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="TIME", help="E.g. 30s or 5m; else until Ctrl-C."),
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=10_000, help="Most requests on their way at once.")
    ] = 256,
    callers: Annotated[
        int, typer.Option(min=0, help="Make up so many callers; 0: callers are not named.")
    ] = 0,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="Tell the true labels to POST /feedback.")
    ] = False,
    text_field: Annotated[
        str | None, typer.Option(help="Column of the text.", rich_help_panel="Columns")
    ] = None,
    label_field: Annotated[
        str | None, typer.Option(help="Column of the true label.", rich_help_panel="Columns")
    ] = None,
    key_field: Annotated[
        str | None,
        typer.Option(help="Column of the caller, to stick to.", rich_help_panel="Columns"),
    ] = None,
    timeout: Annotated[
        float, typer.Option(parser=duration, metavar="TIME", help="Of one request.")
    ] = 30.0,
    home: Home = HOME,
    url: Gateway = None,
    key: ApiKey = None,
    json: Json = False,
) -> None:
    """Sends a file's texts to an endpoint at an even pace, again and again, and sums it up."""
    from headrace.commands import replay as command
    from headrace.replay.sender import Plan
    from headrace.replay.texts import Columns

    plan = Plan(
        url="",
        endpoint=endpoint,
        rate=rate,
        seconds=duration,
        requests=requests,
        concurrency=concurrency,
        callers=callers,
        feedback=feedback,
        api_key=key,
        timeout_seconds=timeout,
    )
    columns = Columns(text=text_field, label=label_field, key=key_field)
    command.run(where(home), url, absolute(file), columns, plan, as_json=json)


KeyFile = Annotated[Path, typer.Option(help="The gateway's key file.")]
KeyName = Annotated[str, typer.Argument(help="Whose keys.")]


@keys.declare("create")
def create(
    name: Annotated[str, typer.Argument(help="Whose key it is; appears in metrics and logs.")],
    file: Annotated[Path, typer.Option(help="The gateway's key file, made if need be.")],
    endpoint: Annotated[
        list[str] | None, typer.Option(help="An endpoint that it opens; all, unless given.")
    ] = None,
    requests_per_second: Annotated[
        float | None,
        typer.Option(help="Most requests a second, of all endpoints and gateways together."),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(min=0, help="It expires after so many days; never, unless given."),
    ] = None,
    force_version: Annotated[
        bool, typer.Option("--force-version", help="It may name a version: x-headrace-version.")
    ] = False,
    json: Json = False,
) -> None:
    """Makes an API key, adds its hash to the key file and prints the key, this once."""
    from headrace.commands import keys as command

    command.create(
        absolute(file),
        name,
        endpoint or ["*"],
        requests_per_second=requests_per_second,
        days=days,
        force_version=force_version,
        as_json=json,
    )


@keys.declare("list", names=True)
def list_keys(file: KeyFile, json: Json = False) -> None:
    """Lists whose keys there are, for which endpoints and until when; never the keys."""
    from headrace.commands import keys as command

    command.show(absolute(file), as_json=json)


@keys.declare("rotate")
def rotate(
    name: KeyName,
    file: KeyFile,
    hours: Annotated[float, typer.Option(min=0, help="For which the old keys go on.")] = 24.0,
    json: Json = False,
) -> None:
    """Makes another key with the same rights; the old ones expire after some hours."""
    from headrace.commands import keys as command

    command.rotate(absolute(file), name, hours=hours, as_json=json)


@keys.declare("revoke")
def revoke(name: KeyName, file: KeyFile, json: Json = False) -> None:
    """Takes all keys of a name out of the file; gateways that read it refuse them."""
    from headrace.commands import keys as command

    command.revoke(absolute(file), name, as_json=json)

"""Words of ``headrace rollout``."""

from typing import Annotated

import typer

from headrace.cli.options import HOME, Home, Json, where

app = typer.Typer(
    no_args_is_help=True, help="A new version's way to all callers, and what people decide of it."
)

Name = Annotated[str, typer.Argument(help="Name of the endpoint.", metavar="ENDPOINT")]
Reason = Annotated[str, typer.Option("--reason", help="Why; goes into the history.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides; by default your login.")]
Version = Annotated[
    str | None, typer.Option("--version", help="Refuse unless it is this version's rollout.")
]


@app.command()
def status(
    name: Name,
    home: Home = HOME,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it.")] = False,
    json: Json = False,
) -> None:
    """Shows where the newest version is, with each check and what it rests on."""
    from headrace.commands import rollout as command

    command.show(where(home), name, watch=watch, as_json=json)


@app.command()
def history(name: Name, home: Home = HOME, json: Json = False) -> None:
    """Shows every transition with its time, reason, who and figures."""
    from headrace.commands import rollout as command

    command.history(where(home), name, as_json=json)


@app.command()
def promote(
    name: Name,
    version: Version = None,
    reason: Reason = "",
    by: By = None,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Gives the new version all callers now, whatever its checks say."""
    _decide("promote", name, version, reason, by, home, json)


@app.command()
def pause(
    name: Name,
    version: Version = None,
    reason: Reason = "",
    by: By = None,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Stops at this step, and the deadline with it."""
    _decide("pause", name, version, reason, by, home, json)


@app.command()
def resume(
    name: Name,
    version: Version = None,
    reason: Reason = "",
    by: By = None,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Goes on after a pause."""
    _decide("resume", name, version, reason, by, home, json)


@app.command()
def abort(
    name: Name,
    version: Version = None,
    reason: Reason = "",
    by: By = None,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Takes the new version away from all callers; it is not tried again."""
    _decide("abort", name, version, reason, by, home, json)


@app.command()
def undo(
    name: Name,
    version: Version = None,
    reason: Reason = "",
    by: By = None,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Goes back to the version before the one that was promoted last."""
    _decide("undo", name, version, reason, by, home, json)


@app.command()
def retry(
    name: Name,
    version: Annotated[
        str | None, typer.Argument(help="By default the one that was rejected last.")
    ] = None,
    reason: Reason = "",
    by: By = None,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Lets a version that was rejected or rolled back be tried again."""
    _decide("retry", name, version, reason, by, home, json)


@app.command()
def pin(
    name: Name,
    version: Annotated[str, typer.Argument(help="Number of the version to stay on.")],
    reason: Reason = "",
    by: By = None,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Stays on one version, whatever is registered."""
    _decide("pin", name, version, reason, by, home, json)


@app.command()
def unpin(
    name: Name, reason: Reason = "", by: By = None, home: Home = HOME, json: Json = False
) -> None:
    """Follows again what was followed before the pin."""
    _decide("unpin", name, None, reason, by, home, json)


def _decide(
    verb: str, name: str, version: str | None, reason: str, by: str | None, home: Home, json: Json
) -> None:
    from headrace.commands import rollout as command

    command.decide(where(home), name, verb, version=version, reason=reason, by=by, as_json=json)

"""Words of ``headrace rollout``."""

from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.options import (
    HOME,
    Details,
    Home,
    Json,
    Kafka,
    duration,
    moment,
    names,
    rejected_versions,
    versions,
    where,
)
from headrace.cli.program import App

app = App(help="A new version's way to all callers, and what people decide of it.")

Name = Annotated[
    str, typer.Argument(help="Name of the endpoint.", metavar="ENDPOINT", autocompletion=names)
]
Reason = Annotated[str, typer.Option("--reason", help="Why; goes into the history.")]
By = Annotated[
    str | None,
    typer.Option("--by", help="Who decides, beside your user, which the history has in any case."),
]
Wait = Annotated[
    bool, typer.Option(help="Fail where no controller takes it; else leave it for one.")
]


class Until(StrEnum):
    """What to wait for."""

    PROMOTED = "promoted"
    SETTLED = "settled"


Version = Annotated[
    str | None,
    typer.Option(
        "--version", help="Refuse unless it is this version's rollout.", autocompletion=versions
    ),
]


@app.declare(names=True)
def status(
    name: Name,
    home: Home = HOME,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it.")] = False,
    details: Details = False,
    json: Json = False,
) -> None:
    """Shows where the newest version is, with each check and what it waits for."""
    from headrace.commands import rollout as command

    command.show(where(home), name, watch=watch, as_json=json, details=details)


@app.declare()
def plan(
    name: Name,
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Traffic since, e.g. 24h (ago).")
    ] = "24h",
    home: Home = HOME,
    kafka: Kafka = None,
    json: Json = False,
) -> None:
    """Tells before a rollout which faults it would find, and after how long.

    From the windows of the traffic that the endpoint had, as far as Kafka keeps them, and the
    endpoint's own settings. It draws traffic like that and lets the tests of a rollout judge it.
    Requests are taken to come evenly and independently of one another, and a fault to be there from
    a step's first request on. Hours are medians. Shadow is told for errors alone.
    """
    from headrace.commands import rollout_plan as command

    command.show(where(home), kafka, name, moment(since, "--from"), as_json=json)


@app.declare()
def history(name: Name, home: Home = HOME, details: Details = False, json: Json = False) -> None:
    """Shows every transition: when, which version, what, who and why."""
    from headrace.commands import rollout as command

    command.history(where(home), name, as_json=json, details=details)


@app.declare(names=True)
def wait(
    name: Name,
    version: Annotated[
        str | None,
        typer.Option(
            "--version", help="This version; by default the newest one.", autocompletion=versions
        ),
    ] = None,
    until: Annotated[
        Until, typer.Option("--for", help="Settled: also the end of its bake.")
    ] = Until.PROMOTED,
    timeout: Annotated[
        float, typer.Option(parser=duration, metavar="TIME", help="The longest wait: 30m, 2h.")
    ] = 3600.0,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Waits until a version has the callers: ends with 0, 13 (taken back) or 14 (time over)."""
    from headrace.commands import rollout as command

    command.wait(
        where(home), name, version=version, until=until.value, seconds=timeout, as_json=json
    )


@app.declare(names=True)
def promote(
    name: Name,
    full: Annotated[
        bool, typer.Option("--full", help="All callers now, whatever steps are left.")
    ] = False,
    version: Version = None,
    reason: Reason = "",
    by: By = None,
    wait: Wait = True,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Sends the new version to its next step, whatever its checks say; behind the last: to all."""
    _decide("promote", name, version, reason, by, home, json, wait=wait, full=full)


def _declare(verb: str, told: str) -> None:
    """A decision about the rollout that goes on."""

    @app.declare(verb, names=True, help=told)
    def decision(
        name: Name,
        version: Version = None,
        reason: Reason = "",
        by: By = None,
        wait: Wait = True,
        home: Home = HOME,
        json: Json = False,
    ) -> None:
        _decide(verb, name, version, reason, by, home, json, wait=wait)


_declare("pause", "Stops at this step, and the deadline with it.")
_declare("resume", "Goes on after a pause.")
_declare("abort", "Takes the new version away from all callers; it is not tried again.")
_declare("undo", "Goes back to the version before the one that was promoted last.")


@app.declare(names=True)
def retry(
    name: Name,
    version: Annotated[
        str | None,
        typer.Argument(
            help="By default the one that was rejected or expired last.",
            autocompletion=rejected_versions,
        ),
    ] = None,
    reason: Reason = "",
    by: By = None,
    wait: Wait = True,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Lets a version that was rejected, rolled back or expired be tried again."""
    _decide("retry", name, version, reason, by, home, json, wait=wait)


@app.declare(names=True)
def pin(
    name: Name,
    version: Annotated[
        str,
        typer.Argument(help="Number of the version to stay on.", autocompletion=versions),
    ],
    reason: Reason = "",
    by: By = None,
    wait: Wait = True,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Stays on one version, whatever is registered."""
    _decide("pin", name, version, reason, by, home, json, wait=wait)


@app.declare(names=True)
def unpin(
    name: Name,
    reason: Reason = "",
    by: By = None,
    wait: Wait = True,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Follows again what was followed before the pin."""
    _decide("unpin", name, None, reason, by, home, json, wait=wait)


def _decide(
    verb: str,
    name: str,
    version: str | None,
    reason: str,
    by: str | None,
    home: Home,
    json: Json,
    *,
    wait: bool,
    full: bool = True,
) -> None:
    from headrace.commands import rollout as command

    decision = command.Decision(verb, version, reason, by, full=full, wait=wait)
    command.decide(where(home), name, decision, as_json=json)

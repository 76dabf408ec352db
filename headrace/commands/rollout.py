"""``headrace rollout``: shows a rollout, and tells the controller what a person decides."""

import getpass
import json
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from contracts.endpoint import ModelEndpoint, Transition
from contracts.rollout import Command, CommandOutcome, Verb
from headrace.commands import home as homes
from headrace.commands.home import Site, Where
from headrace.commands.output import console, print_json
from headrace.commands.rollout_picture import picture
from headrace.endpoints import edits
from headrace.errors import RefusedError
from headrace.rollouts import pins, wishes
from headrace.rollouts.view import view
from registry.endpoint_store import EndpointStore
from rollout.plots import number

ANSWER_SECONDS = 10.0
_REFRESH_SECONDS = 0.5
_FIGURES_SHOWN = 4  # of a check; --json has them all


def show(where: Where, name: str, *, watch: bool, as_json: bool) -> None:
    """Shows where the rollout is, once or until Ctrl-C; as JSON, a line for each change.

    Raises:
        NotRunningError: there is no such home, or no way to the cluster.
        RequestFailedError: there is no such endpoint.
    """
    site = homes.site(where)
    store = site.store
    if not watch:
        if as_json:
            print_json(view(edits.existing(store, name), time.time()).document())
        else:
            console.print(_shown(site, name))
        return
    try:
        if as_json:
            _print_changes(store, name)
        else:
            _live(site, name)
    except KeyboardInterrupt:
        return


def _live(site: Site, name: str) -> None:
    with Live(_shown(site, name), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(_REFRESH_SECONDS)
            live.update(_shown(site, name), refresh=True)


def _shown(site: Site, name: str) -> Group:
    drawn = picture(view(edits.existing(site.store, name), time.time()))
    if not site.asleep:
        return drawn
    return Group(drawn, "[yellow]No stack runs on this home: nothing moves until headrace up.[/]")


def _print_changes(store: EndpointStore, name: str) -> None:
    told = None
    while True:
        endpoint = edits.existing(store, name)
        if endpoint.metadata.revision != told:
            told = endpoint.metadata.revision
            line = json.dumps(view(endpoint, time.time()).document(), ensure_ascii=False)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        time.sleep(_REFRESH_SECONDS)


def history(where: Where, name: str, *, as_json: bool) -> None:
    """Shows every transition: when, what, why, who and the figures, oldest first.

    Raises:
        NotRunningError: there is no such home, or no way to the cluster.
        RequestFailedError: there is no such endpoint.
    """
    endpoint = edits.existing(homes.site(where).store, name)
    lines = endpoint.status.history
    if as_json:
        print_json([line.model_dump(mode="json", by_alias=True) for line in lines])
        return
    refused = tuple(answer for answer in endpoint.status.commands if not answer.accepted)
    if not lines and not refused:
        console.print(f"Nothing has happened to {name} yet.")
    else:
        console.print(_history(lines, refused))


def _history(lines: tuple[Transition, ...], refused: tuple[CommandOutcome, ...]) -> RenderableType:
    """Transitions and, among them, what was asked in vain: who asked may have left by then."""
    table = Table(box=None, pad_edge=False)
    for heading in ("time (UTC)", "version", "phase", "by", "reason"):
        table.add_column(heading, overflow="fold")
    told: list[Transition | CommandOutcome] = [*lines, *refused]
    for line in sorted(told, key=lambda line: line.at):
        at = datetime.fromtimestamp(line.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        by = escape(line.by or "headrace")
        if isinstance(line, CommandOutcome):
            table.add_row(at, "", "", by, escape(f"{line.verb.value} was refused: {line.said}"))
            continue
        figures = dict(line.figures)
        percent = figures.pop("percent", None)
        phase = line.phase.value if percent is None else f"{line.phase.value} {percent:g} %"
        table.add_row(at, line.version, phase, by, escape(line.reason))
        if figures:
            table.add_row("", "", "", "", f"[dim]{escape(_figures(figures))}[/]")
    return table


def _figures(figures: dict[str, float]) -> str:
    """A line for each check, with the first of its figures: the counts that it rests on."""
    by_check: dict[str, list[str]] = {}
    for path, value in figures.items():
        check, dot, name = path.partition(".")
        by_check.setdefault(check if dot else "", []).append(
            f"{(name or check).replace('_', ' ')} {number(value)}"
        )
    return "\n".join(
        f"{check}{': ' if check else ''}{', '.join(told[:_FIGURES_SHOWN])}"
        for check, told in by_check.items()
    )


def decide(
    where: Where,
    name: str,
    word: str,
    *,
    version: str | None,
    reason: str,
    by: str | None,
    as_json: bool,
) -> None:
    """Notes a person's decision and says what the controller says to it.

    Raises:
        NotRunningError: there is no such home, or no way to the cluster.
        RequestFailedError: there is no such endpoint.
        RefusedError: the controller refuses.
        BrokenHomeError: the endpoint can't be read or written.
    """
    site = homes.site(where)
    store = site.store
    verb = Verb(word)
    command = Command(
        id=uuid.uuid4().hex,
        verb=verb,
        by=by or _login(),
        at=time.time(),
        version=version,
        reason=reason,
    )
    wishes.ask(store, name, command, _change(verb, version))
    # Without a stack there is nobody to wait for.
    seconds = 0.0 if site.asleep else ANSWER_SECONDS
    outcome = wishes.answer(store, name, command, within_seconds=seconds)
    said = _noted(verb, name, seconds, site.asleep) if outcome is None else outcome.said
    if as_json:
        print_json(
            {
                "id": command.id,
                "verb": verb.value,
                "by": command.by,
                "accepted": None if outcome is None else outcome.accepted,
                "said": said,
            }
        )
    if outcome is not None and not outcome.accepted:
        raise RefusedError(f"{verb.value} was refused: {said}.")
    if not as_json:
        console.print(_sentence(said), markup=False, highlight=False, soft_wrap=True)


def _change(verb: Verb, version: str | None) -> Callable[[ModelEndpoint], ModelEndpoint]:
    """What a verb changes in the spec."""
    if verb is Verb.PIN:
        return partial(pins.pinned, version=version or "")
    if verb is Verb.UNPIN:
        return pins.unpinned
    return lambda endpoint: endpoint


def _noted(verb: Verb, name: str, seconds: float, asleep: str) -> str:
    why = asleep or f"it did not answer within {seconds:.0f} s"
    return (
        f"{verb.value} is noted on {name} and is taken when the controller is back; {why}. "
        f"See headrace rollout status {name}."
    )


def _sentence(said: str) -> str:
    text = said[:1].upper() + said[1:]
    return text if text.endswith(".") else f"{text}."


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return "unknown"

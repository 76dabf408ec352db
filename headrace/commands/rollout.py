"""``headrace rollout``: shows a rollout, and tells the controller what a person decides."""

import getpass
import json
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from contracts.durations import humanise
from contracts.endpoint import ModelEndpoint, Phase
from contracts.rollout import Command, CommandOutcome, Outcome, Verb
from headrace import home as homes
from headrace.commands import rollout_picture
from headrace.commands.layout import Sentence
from headrace.commands.output import (
    REFRESH_SECONDS,
    console,
    display,
    print_json,
    print_line,
)
from headrace.commands.rollout_picture import document, picture
from headrace.endpoints import edits, rollouts
from headrace.errors import NotPromotedError, RefusedError, TimedOutError, UndeliveredError
from headrace.home import EndpointSite, Where
from headrace.invocation import is_structured
from headrace.options import (
    HOME,
    Details,
    Home,
    Kafka,
    duration,
    find_place,
    moment,
    names,
    rejected_versions,
    versions,
)
from headrace.program import App
from registry.stores.endpoints import EndpointStore
from registry.stores.heartbeats import show_beat
from rollout.view import newest

ANSWER_SECONDS = 10.0

app = App(help="A new version's way to all callers, and what people decide of it.")

Name = Annotated[
    str, typer.Argument(help="Name of the endpoint.", metavar="ENDPOINT", autocompletion=names)
]
Reason = Annotated[str, typer.Option("--reason", help="Why; goes into the history.")]
By = Annotated[
    str | None,
    typer.Option("--by", help="Who decides, beside your user, which the history has in any case."),
]
Wait = Annotated[bool, typer.Option(help="Fail if no controller takes it; else leave it for one.")]
Version = Annotated[
    str | None,
    typer.Option(
        "--version", help="Refuse unless it is this version's rollout.", autocompletion=versions
    ),
]


class WaitGoal(StrEnum):
    """What to wait for."""

    PROMOTED = "promoted"
    SETTLED = "settled"


@app.declare()
def status(
    name: Name,
    home: Home = HOME,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it.")] = False,
    details: Details = False,
) -> None:
    """Shows where the newest version is, with each check and what it waits for."""
    site = homes.site(find_place(home))
    if not is_structured():
        display(lambda: _draw_rollout(site, name, details=details), watch=watch)
    elif watch:
        with suppress(KeyboardInterrupt):
            _print_changes(site.store, name)
    else:
        print_json(document(newest(edits.find_existing(site.store, name)), time.time()))


def _draw_rollout(site: EndpointSite, name: str, *, details: bool) -> Group:
    endpoint, now = edits.find_existing(site.store, name), time.time()
    drawn = picture(newest(endpoint), now, details=details)
    sentence = "No stack runs on this home: nothing moves until headrace up."
    if not site.no_controller:
        sentence = rollouts.silence_warning(endpoint, show_beat(site.beats), now)
    return Group(drawn, Sentence(sentence, style="yellow")) if sentence else drawn


def _print_changes(store: EndpointStore, name: str) -> None:
    told = None
    while True:
        endpoint = edits.find_existing(store, name)
        if endpoint.metadata.revision != told:
            told = endpoint.metadata.revision
            line = json.dumps(document(newest(endpoint), time.time()), ensure_ascii=False)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        time.sleep(REFRESH_SECONDS)


@app.declare()
def plan(
    name: Name,
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Traffic since, e.g. 24h (ago).")
    ] = "24h",
    home: Home = HOME,
    kafka: Kafka = None,
) -> None:
    """Tells before a rollout which faults it would find, and after how long.

    From the windows of the traffic that the endpoint had, as far as Kafka keeps them, and the
    endpoint's own settings. It draws traffic like that and lets the tests of a rollout judge it.
    Requests are taken to come evenly and independently of one another, and a fault to be there from
    a step's first request on. Hours are medians. Shadow is told only for errors.
    """
    from headrace.commands.rollout_plan import show_plan  # noqa: PLC0415 - with Kafka and SciPy

    show_plan(find_place(home), kafka, name, moment(since, "--from"))


@app.declare("wait")
def wait_for(
    name: Name,
    version: Annotated[
        str | None,
        typer.Option(
            "--version", help="This version; by default the newest one.", autocompletion=versions
        ),
    ] = None,
    until: Annotated[
        WaitGoal, typer.Option("--for", help="With settled, wait for the end of its bake too.")
    ] = WaitGoal.PROMOTED,
    timeout: Annotated[
        float, typer.Option(parser=duration, metavar="TIME", help="The longest wait: 30m, 2h.")
    ] = 3600.0,
    home: Home = HOME,
) -> None:
    """Waits until a version has the callers: ends with 0, 13 (rolled back) or 14 (time over)."""
    wait(find_place(home), name, version=version, until=until, seconds=timeout)


def wait(
    place: Where,
    name: str,
    *,
    version: str | None,
    until: str,
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Waits until a version has the callers, and shows each phase on its way.

    For programs only the last state is shown, as ``rollout status`` shows it.

    Raises:
        NotPromotedError: it ended in another way.
        TimedOutError: the time was over first.
    """
    store = homes.site(place).store
    deadline, told = time.monotonic() + seconds, ""
    while True:
        endpoint = edits.find_existing(store, name)
        now = standing(endpoint, version, until)
        if now.said != told and not is_structured():
            told = now.said
            print_line(_as_sentence(now.said))
        is_late = time.monotonic() >= deadline
        if now.is_there is not None or is_late:
            break
        sleep(REFRESH_SECONDS)
    if is_structured():
        print_json(document(newest(endpoint), time.time()))
    if now.is_there is False:
        raise NotPromotedError(_as_sentence(f"not promoted: {now.said}"))
    if now.is_there is None:
        raise TimedOutError(_as_sentence(f"{humanise(seconds)} are over: {now.said}"))


@dataclass(frozen=True, slots=True)
class VersionStanding:
    """Where a version is: there, lost for good (``is_there`` False), or on its way (None)."""

    is_there: bool | None
    said: str


_THERE = frozenset({Phase.SERVING.value, Outcome.SETTLED.value})
_LOST = frozenset(
    {Phase.REJECTED.value, Outcome.ROLLED_BACK.value, Outcome.SUPERSEDED.value}
    | {Outcome.REVERTED.value, Outcome.EXPIRED.value}
)


def standing(endpoint: ModelEndpoint, version: str | None, until: str) -> VersionStanding:
    """Where a version of an endpoint stands, the newest one unless it is named."""
    seen = newest(endpoint)
    if version is not None and seen.version != version:
        return _of_another(endpoint, version, seen.version)
    if seen.version is None:
        return VersionStanding(None, "no version yet")
    said = f"version {seen.version} {seen.phase}" + (f": {seen.reason}" if seen.reason else "")
    if seen.phase in _LOST:
        return VersionStanding(False, said)
    is_there = seen.phase in _THERE or (until == "promoted" and seen.phase == Phase.PROMOTED.value)
    return VersionStanding(True if is_there else None, said)


def _of_another(endpoint: ModelEndpoint, version: str, newest_one: str | None) -> VersionStanding:
    stable = endpoint.status.stable
    if stable is not None and stable.version == version:
        return VersionStanding(is_there=True, said=f"version {version} Serving")
    for gone in endpoint.status.rejected:
        if gone.version == version:
            said = f"version {version} {gone.phase.value}: {gone.reason}"
            return VersionStanding(is_there=False, said=said)
    lines = (line for line in reversed(endpoint.status.history) if line.version == version)
    last = next(lines, None)
    if last is not None and last.phase is Phase.SUPERSEDED:
        said = f"version {version} {last.phase.value}: {last.reason}"
        return VersionStanding(is_there=False, said=said)
    if newest_one is not None and _is_later(newest_one, version):
        said = f"version {version} gave way to version {newest_one}"
        return VersionStanding(is_there=False, said=said)
    return VersionStanding(is_there=None, said=f"version {version} is not seen yet")


def _is_later(version: str, other: str) -> bool:
    return version.isdigit() and other.isdigit() and int(version) > int(other)


@app.declare()
def history(name: Name, home: Home = HOME, details: Details = False) -> None:
    """Shows every transition: when, which version, what, who and why."""
    endpoint = edits.find_existing(homes.site(find_place(home)).store, name)
    lines = endpoint.status.history
    if is_structured():
        print_json([line.model_dump(mode="json", by_alias=True) for line in lines])
        return
    refused = tuple(answer for answer in endpoint.status.commands if not answer.accepted)
    if not lines and not refused:
        console.print(f"Nothing has happened to {name} yet.")
    else:
        console.print(rollout_picture.history(lines, refused, details=details))


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    """What a person decided, as the command line has it."""

    verb: Verb
    name: str
    version: str | None = None
    reason: str = ""
    stated: str | None = None
    full: bool = True
    wait: bool = True
    space: str = ""  # see ``Command``


@app.declare()
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
) -> None:
    """Sends the new version to its next step, whatever its checks say; behind the last: to all."""
    decide(RolloutDecision(Verb.PROMOTE, name, version, reason, by, full=full, wait=wait), home)


def declare_decision(group: App, verb: Verb, told: str) -> None:
    """Declares a verb whose command has no options but those of every decision."""

    @group.declare(verb.value, help=told)
    def command(
        name: Name,
        version: Version = None,
        reason: Reason = "",
        by: By = None,
        wait: Wait = True,
        home: Home = HOME,
    ) -> None:
        decide(RolloutDecision(verb, name, version, reason, by, wait=wait), home)


declare_decision(app, Verb.PAUSE, "Stops at this step, and the deadline with it.")
declare_decision(app, Verb.RESUME, "Goes on after a pause.")
declare_decision(
    app, Verb.ABORT, "Takes the new version away from all callers; it is not tried again."
)
declare_decision(app, Verb.UNDO, "Goes back to the version before the one that was promoted last.")


@app.declare()
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
) -> None:
    """Lets a version that was rejected, rolled back or expired be tried again."""
    decide(RolloutDecision(Verb.RETRY, name, version, reason, by, wait=wait), home)


@app.declare()
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
) -> None:
    """Stays on one version, whatever is registered."""
    decide(RolloutDecision(Verb.PIN, name, version, reason, by, wait=wait), home)


@app.declare()
def unpin(
    name: Name,
    reason: Reason = "",
    by: By = None,
    wait: Wait = True,
    home: Home = HOME,
) -> None:
    """Follows again what was followed before the pin."""
    decide(RolloutDecision(Verb.UNPIN, name, None, reason, by, wait=wait), home)


def decide(decision: RolloutDecision, home: Path) -> None:
    """Notes a person's decision and says what the controller says to it; see ``carry_out``."""
    command, outcome, sentence = carry_out(decision, home)
    if is_structured():
        document_of = {
            "id": command.id,
            "verb": command.verb.value,
            "by": command.by,
            "stated": command.stated,
            "accepted": None if outcome is None else outcome.accepted,
            "said": sentence,
        }
        print_json(document_of)
    require_accepted(decision, outcome, sentence)
    if not is_structured():
        print_line(_as_sentence(sentence))


def require_accepted(
    decision: RolloutDecision, outcome: CommandOutcome | None, sentence: str
) -> None:
    """Ends in an error what was not accepted.

    Raises:
        RefusedError: the controller refuses it.
        UndeliveredError: no controller took it; it was withdrawn.
    """
    if outcome is None and decision.wait:
        raise UndeliveredError(sentence)
    if outcome is not None and not outcome.accepted:
        raise RefusedError(f"{decision.verb.value} was refused: {sentence}.")


def cutover_of(endpoint: ModelEndpoint, reason: str) -> RolloutDecision:
    """The decision that makes the next vector space that of all callers.

    Raises:
        RefusedError: none has passed its checks.
    """
    name, state = endpoint.name, endpoint.status.rollout
    if state is None or state.passed_at is None:
        raise RefusedError(
            f"No space of {name} waits for its cutover: see headrace rollout status {name}. "
            f"headrace rollout promote {name} --full asks no check."
        )
    new = state.candidate
    return RolloutDecision(Verb.PROMOTE, name, new.version, reason, space=new.space)


def carry_out(decision: RolloutDecision, home: Path) -> tuple[Command, CommandOutcome | None, str]:
    """Notes a person's decision: the command, what became of it, and a sentence about that.

    There is no outcome if nobody waits, or no controller took it; then it was withdrawn.
    """
    site = homes.site(find_place(home))
    verb, name = decision.verb, decision.name
    by = site.user() or _login()
    command = Command(
        id=uuid.uuid4().hex,
        verb=verb,
        by=by,
        at=time.time(),
        version=decision.version,
        reason=decision.reason,
        full=decision.full,
        stated="" if decision.stated in {None, by} else decision.stated or "",
        space=decision.space,
    )
    before = rollouts.ask(site.store, name, command, _change(verb, decision.version))
    outcome, sentence = None, _say_noted(verb, name)
    if decision.wait:
        # Without a stack there is nobody to wait for.
        seconds = 0.0 if site.no_controller else ANSWER_SECONDS
        outcome = rollouts.answer(site.store, name, command, within_seconds=seconds)
        outcome = outcome or rollouts.withdraw(site.store, name, command, before)
        sentence = _say_undelivered(verb, seconds, site.no_controller)
    if outcome is not None:
        sentence = outcome.said
    return command, outcome, sentence


def _change(verb: Verb, version: str | None) -> Callable[[ModelEndpoint], ModelEndpoint]:
    if verb is Verb.PIN:
        return partial(rollouts.pin_version, version=version or "")
    if verb is Verb.UNPIN:
        return rollouts.unpin_version
    return lambda endpoint: endpoint


def _say_noted(verb: Verb, name: str) -> str:
    return f"{verb.value} is noted on {name}. See headrace rollout status {name}."


def _say_undelivered(verb: Verb, seconds: float, no_controller: str) -> str:
    why = no_controller or f"the controller did not answer within {seconds:.0f} s"
    return (
        f"{verb.value} was not delivered, and nothing is decided: {why}. With --no-wait it is "
        "noted, and taken when the controller is back."
    )


def _as_sentence(sentence: str) -> str:
    text = sentence[:1].upper() + sentence[1:]
    return text if text.endswith(".") else f"{text}."


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return "unknown"

"""``headrace rollout``: shows a rollout, and tells the controller what a person decides."""

import getpass
import json
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from rich.console import Group

from contracts.endpoint import ModelEndpoint
from contracts.rollout import Command, Verb
from headrace.commands import home as homes
from headrace.commands import rollout_picture
from headrace.commands.home import Site, Where
from headrace.commands.layout import Sentence
from headrace.commands.output import REFRESH_SECONDS, console, display, print_json, print_line
from headrace.commands.rollout_picture import document, picture
from headrace.endpoints import edits, rollouts
from headrace.errors import RefusedError
from registry.stores.endpoints import EndpointStore
from rollout.view import newest

ANSWER_SECONDS = 10.0


def show(where: Where, name: str, *, watch: bool, as_json: bool, details: bool = False) -> None:
    """Shows where the rollout is, once or until Ctrl-C; as JSON, a line for each change.

    ``details`` adds the sentence and the figures of every check; JSON always has them.
    """
    site = homes.site(where)
    if not as_json:
        display(lambda: _shown(site, name, details=details), watch=watch)
    elif watch:
        with suppress(KeyboardInterrupt):
            _print_changes(site.store, name)
    else:
        print_json(document(newest(edits.existing(site.store, name)), time.time()))


def _shown(site: Site, name: str, *, details: bool) -> Group:
    endpoint, now = edits.existing(site.store, name), time.time()
    drawn = picture(newest(endpoint), now, details=details)
    sentence = "No stack runs on this home: nothing moves until headrace up."
    if not site.no_controller:
        sentence = rollouts.silence_warning(endpoint, site.beats.get(), now)
    return Group(drawn, Sentence(sentence, style="yellow")) if sentence else drawn


def _print_changes(store: EndpointStore, name: str) -> None:
    told = None
    while True:
        endpoint = edits.existing(store, name)
        if endpoint.metadata.revision != told:
            told = endpoint.metadata.revision
            line = json.dumps(document(newest(endpoint), time.time()), ensure_ascii=False)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        time.sleep(REFRESH_SECONDS)


def history(where: Where, name: str, *, as_json: bool, details: bool = False) -> None:
    """Shows every transition: when, what, who and why, oldest first.

    ``details`` adds the figures that each rests on; JSON always has them.
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
        console.print(rollout_picture.history(lines, refused, details=details))


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
    """Notes a person's decision and says what the controller says to it."""
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
    rollouts.ask(store, name, command, _change(verb, version))
    # Without a stack there is nobody to wait for.
    seconds = 0.0 if site.no_controller else ANSWER_SECONDS
    outcome = rollouts.answer(store, name, command, within_seconds=seconds)
    sentence = (
        _pending(verb, name, seconds, site.no_controller) if outcome is None else outcome.said
    )
    if as_json:
        print_json(
            {
                "id": command.id,
                "verb": verb.value,
                "by": command.by,
                "accepted": None if outcome is None else outcome.accepted,
                "said": sentence,
            }
        )
    if outcome is not None and not outcome.accepted:
        raise RefusedError(f"{verb.value} was refused: {sentence}.")
    if not as_json:
        print_line(_as_sentence(sentence))


def _change(verb: Verb, version: str | None) -> Callable[[ModelEndpoint], ModelEndpoint]:
    """What a verb changes in the spec."""
    if verb is Verb.PIN:
        return partial(rollouts.pinned, version=version or "")
    if verb is Verb.UNPIN:
        return rollouts.unpinned
    return lambda endpoint: endpoint


def _pending(verb: Verb, name: str, seconds: float, no_controller: str) -> str:
    why = no_controller or f"it did not answer within {seconds:.0f} s"
    return (
        f"{verb.value} is noted on {name} and is taken when the controller is back; {why}. "
        f"See headrace rollout status {name}."
    )


def _as_sentence(sentence: str) -> str:
    text = sentence[:1].upper() + sentence[1:]
    return text if text.endswith(".") else f"{text}."


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return "unknown"

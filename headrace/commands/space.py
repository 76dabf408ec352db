"""``headrace space``: the vector spaces of an embedding endpoint, and which one is the default."""

import time
from dataclasses import asdict

from contracts.durations import humanise
from contracts.endpoint import ModelEndpoint
from contracts.rollout import Verb
from headrace import home as homes
from headrace.commands.output import console, print_json, table_of
from headrace.commands.rollout import By, Name, Reason, RolloutDecision, Wait, decide
from headrace.endpoints import edits
from headrace.errors import RefusedError
from headrace.invocation import is_structured
from headrace.options import HOME, Home, find_place
from headrace.program import App
from rollout.view import SpaceView, list_spaces

app = App(help="Vector spaces of an embedding model: which there are, and the change to another.")


@app.declare()
def status(name: Name, home: Home = HOME) -> None:
    """Shows the current space, the next one, and those that are kept while somebody asks."""
    found = list_spaces(_find(name, home))
    if is_structured():
        print_json([asdict(each) for each in found])
        return
    table = table_of("space", "version", "who gets it")
    for each in found:
        table.add_row(each.space, each.version, _describe(each, time.time()))
    console.print(table if found else f"{name} gives no vectors yet.", markup=False)


def _describe(space: SpaceView, now: float) -> str:
    if space.asked_at is None or space.leaves_at is None:
        return space.who
    asked, left = humanise(now - space.asked_at), humanise(space.leaves_at - now)
    return f"{space.who}; last asked for {asked} ago, leaves in {left} unless asked for"


@app.declare()
def cutover(
    name: Name, reason: Reason = "", by: By = None, wait: Wait = True, home: Home = HOME
) -> None:
    """Makes the next space that of all callers; only if it has passed its checks in shadow."""
    state = _find(name, home).status.rollout
    if state is None or state.passed_at is None:
        raise RefusedError(
            f"No space of {name} waits for its cutover: see headrace rollout status {name}. "
            f"headrace rollout promote {name} --full asks no check."
        )
    version = state.candidate.version
    decide(RolloutDecision(Verb.PROMOTE, name, version, reason, by, wait=wait), home)


@app.declare()
def undo(
    name: Name, reason: Reason = "", by: By = None, wait: Wait = True, home: Home = HOME
) -> None:
    """Gives all callers the space before the last cutover again; the other one is kept."""
    decide(RolloutDecision(Verb.UNDO, name, None, reason, by, wait=wait), home)


def _find(name: str, home: Home) -> ModelEndpoint:
    return edits.find_existing(homes.site(find_place(home)).store, name)

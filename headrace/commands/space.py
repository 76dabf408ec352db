"""``headrace space``: the vector spaces of an embedding endpoint, and which one is the default."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from contracts.durations import humanise
from contracts.endpoint import ModelEndpoint
from contracts.rollout import Verb
from headrace import home as homes
from headrace.commands.output import console, print_json, table_of
from headrace.commands.rollout import (
    By,
    Name,
    Reason,
    RolloutDecision,
    Wait,
    decide,
    declare_decision,
)
from headrace.endpoints import edits
from headrace.errors import RefusedError
from headrace.home import gateway_url
from headrace.invocation import is_structured
from headrace.options import HOME, ApiKey, Gateway, Home, find_place
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


declare_decision(
    app, Verb.UNDO, "Gives all callers the space before the last cutover again; this one is kept."
)


@app.declare("compare")
def compare_spaces(
    name: Name,
    queries: Annotated[
        Path, typer.Option(help='Lines of {"text": ..., "relevant": [ids] or {id: grade}}.')
    ],
    documents: Annotated[Path, typer.Option(help='Lines of {"id": ..., "text": ...}.')],
    space: Annotated[
        str | None, typer.Option(help="The other one; by default the next, or a kept one.")
    ] = None,
    query_prompt: Annotated[str | None, typer.Option(help="Prompt of queries, by name.")] = None,
    document_prompt: Annotated[str | None, typer.Option(help="The same of documents.")] = None,
    home: Home = HOME,
    url: Gateway = None,
    key: ApiKey = None,
) -> None:
    """Compares searches by two spaces: recall@10, nDCG@10, and how many nearest they share."""
    from headrace.commands.space_comparison import compare, embed_by  # noqa: PLC0415 - with NumPy

    embed = embed_by(gateway_url(find_place(home), url), name, key)
    prompts = query_prompt, document_prompt
    compare(_find(name, home), embed, (queries, documents), prompts, space)


def _find(name: str, home: Home) -> ModelEndpoint:
    return edits.find_existing(homes.site(find_place(home)).store, name)

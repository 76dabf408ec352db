"""``headrace space``: the vector spaces of an embedding endpoint, and which one is the default."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.durations import humanise
from contracts.endpoint import ModelEndpoint
from contracts.rollout import Verb
from contracts.tasks import Task
from headrace import home as homes
from headrace.backfill.vectors import SPARSE, TOKENS, VectorKind, choose_kind
from headrace.commands.backfill import Kind
from headrace.commands.output import console, print_json, table_of
from headrace.commands.predict import ask_gateway
from headrace.commands.rollout import (
    By,
    Name,
    Reason,
    Wait,
    cutover_of,
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

_TEXTS = 64  # a request

app = App(help="Vector spaces of an embedding model, and the change to another.")


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
    decide(replace(cutover_of(_find(name, home), reason), stated=by, wait=wait), home)


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
    kind: Kind = None,
    query_prompt: Annotated[str | None, typer.Option(help="Prompt of queries, by name.")] = None,
    document_prompt: Annotated[str | None, typer.Option(help="The same of documents.")] = None,
    home: Home = HOME,
    url: Gateway = None,
    key: ApiKey = None,
) -> None:
    """Compares searches by two spaces: recall@10, nDCG@10, and how many nearest they share."""
    import numpy as np  # noqa: PLC0415 - it takes a moment

    from measures import retrieval  # noqa: PLC0415 - with NumPy

    endpoint = _find(name, home)
    vector = choose_kind(name, str(endpoint.status.task or Task.TEXT_EMBEDDING), kind)
    held = [each.space for each in list_spaces(endpoint)]
    if len(held) < 2 or space not in {None, *held[1:]}:
        raise RefusedError(f"{name} holds no such other space: {', '.join(held)}.")
    texts = {str(each["id"]): str(each["text"]) for each in _read(documents, "id", "text")}
    asked, places = _read(queries, "text", "relevant"), {id_: at for at, id_ in enumerate(texts)}
    relevant = [_grade(each["relevant"], places) for each in asked]
    if len(texts) < retrieval.MOST or not all(relevant):
        raise RefusedError("Ten documents are needed, and of each query a relevant one among them.")
    base, found = gateway_url(find_place(home), url), {}
    for each in (held[0], space or held[1]):
        vectors = []
        for of, prompt in (
            ([q["text"] for q in asked], query_prompt),
            ([*texts.values()], document_prompt),
        ):
            made: list[Any] = []
            for at in range(0, len(of), _TEXTS):
                body = {"inputs": of[at : at + _TEXTS], "prompt_name": prompt}
                headers = {"x-headrace-space": each}
                answer = ask_gateway(
                    base, f"/endpoints/{name}/{vector.route}", body, key, headers
                ).json()
                # As numbers of Python the vectors of tokens would take eight times the memory.
                made += (
                    answer if vector is SPARSE else [np.array(one, np.float32) for one in answer]
                )
            vectors.append(made)
        found[each] = _find_nearest(vector, *vectors)
    told = retrieval.compare_searches(found, relevant)
    if is_structured():
        print_json({"queries": len(asked), **told})
        return
    table = table_of("measure", "space", f"mean of {len(asked)} queries", "95 % interval")
    for measure, of_spaces in told.items():
        for each, (mean, low, high) in of_spaces.items():
            table.add_row(measure, each, f"{mean:.3f}", f"{low:.3f} to {high:.3f}")
    console.print(table)


def _find_nearest(kind: VectorKind, queries: Any, documents: Any) -> Any:  # noqa: ANN401
    """See ``measures.retrieval.find_nearest``: by cosine, or as the task's vectors are compared."""
    import numpy as np  # noqa: PLC0415 - it takes a moment

    from measures import retrieval  # noqa: PLC0415 - with NumPy
    from preprocess.vectors import unit  # noqa: PLC0415 - the same

    both = queries, documents
    if kind is SPARSE:
        weights = [[{one["index"]: one["value"] for one in text} for text in of] for of in both]
        return retrieval.find_nearest_sparse(*weights)
    if kind is TOKENS:
        return retrieval.find_nearest_tokens(*both)
    return retrieval.find_nearest(*(unit(np.array(of, np.float32)) for of in both))


def _read(path: Path, *needed: str) -> list[dict[str, Any]]:
    """The objects of a file, one a line; ``_id`` as BEIR has it is ``id``."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [dict(json.loads(line)) for line in lines if line.strip()]
    except (OSError, TypeError, ValueError) as error:
        raise RefusedError(f"{path} can't be read as JSON objects, one a line: {error}.") from error
    for number, each in enumerate(found, 1):
        each.setdefault("id", each.get("_id"))
        if any(each.get(name) is None for name in needed):
            raise RefusedError(f"{path}: object {number} lacks {' or '.join(needed)}.")
    return found


def _grade(relevant: Any, places: Mapping[str, int]) -> dict[int, float]:  # noqa: ANN401
    """The relevant documents by their places, of a list of ids or of ids with grades."""
    told = relevant if isinstance(relevant, dict) else {str(each): 1 for each in relevant}
    return {places[id_]: float(n) for id_, n in told.items() if id_ in places and float(n) > 0}


def _find(name: str, home: Home) -> ModelEndpoint:
    return edits.find_existing(homes.site(find_place(home)).store, name)

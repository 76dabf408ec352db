"""``headrace space compare``: whether searches find more by another vector space of an endpoint."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contracts.endpoint import ModelEndpoint
from headrace.commands.output import console, print_json, slow, table_of
from headrace.commands.predict import ask_gateway
from headrace.errors import RefusedError
from headrace.invocation import is_structured
from measures import retrieval
from measures.retrieval import MOST, Vectors
from preprocess.vectors import unit
from rollout.view import list_spaces

_TEXTS = 64  # a request

Embed = Callable[[Sequence[str], str, str | None], Vectors]  # texts, space, prompt


def compare(
    endpoint: ModelEndpoint,
    embed: Embed,
    files: tuple[Path, Path],
    prompts: tuple[str | None, str | None],
    other: str | None,
) -> None:
    """Prints recall, nDCG and shared neighbours of the current space and another one.

    Args:
        endpoint: that holds both.
        embed: gives vectors of length 1.
        files: of queries and of documents.
        prompts: names of the model's prompts, for queries and for documents.
        other: space; None for the next one, or the one that was left last.

    Raises:
        RefusedError: a file is not as it must be, or there is no other space.
    """
    held = [each.space for each in list_spaces(endpoint)]
    if len(held) < 2 or other not in {None, *held[1:]}:
        raise RefusedError(f"{endpoint.name} holds no such other space: {', '.join(held)}.")
    spaces = held[0], other or held[1]
    documents = {str(_id(each)): str(each["text"]) for each in _read(files[1], "text")}
    queries = _read(files[0], "text", "relevant")
    places = {name: place for place, name in enumerate(documents)}
    relevant = [_grades(each["relevant"], places) for each in queries]
    if len(documents) < MOST or not all(relevant):
        raise RefusedError(
            f"At least {MOST} documents are needed, and of each query a relevant one among them."
        )
    found = []
    for space in spaces:
        near = embed([str(each["text"]) for each in queries], space, prompts[0])
        found.append(retrieval.find_nearest(near, embed([*documents.values()], space, prompts[1])))
    judged = [retrieval.judge_searches(each, relevant) for each in found]
    told = {
        name: {
            spaces[0]: retrieval.mean_with_interval(old),
            spaces[1]: retrieval.mean_with_interval(new),
            "difference": retrieval.mean_with_interval(new - old),
        }
        for name, old, new in zip(("recall@10", "nDCG@10"), *judged, strict=True)
    }
    shared = retrieval.mean_with_interval(retrieval.share_neighbours(*found))
    told["nearest ten"] = {"shared": shared}
    if is_structured():
        print_json({"queries": len(queries), **told})
        return
    table = table_of("measure", "space", f"mean of {len(queries)} queries", "95 % interval")
    for name, measured in told.items():
        for space, (mean, low, high) in measured.items():
            table.add_row(name, space, f"{mean:.3f}", f"{low:.3f} to {high:.3f}")
    console.print(table)


def embed_by(base: str, endpoint: str, key: str | None) -> Embed:
    """Vectors of an endpoint, by its gateway at ``base``."""

    def embed(texts: Sequence[str], space: str, prompt: str | None) -> Vectors:
        made: list[Any] = []
        with slow(f"vectors of {len(texts)} texts, of the space {space}"):
            for start in range(0, len(texts), _TEXTS):
                body = {"inputs": texts[start : start + _TEXTS], "prompt_name": prompt}
                path, headers = f"/endpoints/{endpoint}/embed", {"x-headrace-space": space}
                made += ask_gateway(base, path, body, key, headers).json()
        return unit(np.array(made, np.float32))

    return embed


def _read(path: Path, *needed: str) -> list[Mapping[str, Any]]:
    """The objects of a file, one a line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise RefusedError(f"{path} can't be read as JSON, one object a line: {error}.") from error
    for number, each in enumerate(found, 1):
        if not isinstance(each, dict) or not all(name in each for name in needed):
            raise RefusedError(f"{path}: object {number} lacks {' or '.join(needed)}.")
    return found


def _id(document: Mapping[str, Any]) -> object:
    return document.get("id", document.get("_id", ""))  # the latter as BEIR has it


def _grades(relevant: Any, places: Mapping[str, int]) -> dict[int, float]:  # noqa: ANN401
    """The relevant documents by their places: a list of ids, or ids with grades."""
    told = relevant if isinstance(relevant, dict) else {str(each): 1 for each in relevant}
    known = {places[name]: float(grade) for name, grade in told.items() if name in places}
    return {place: grade for place, grade in known.items() if grade > 0}

"""Reads how a MultiVectorEncoder of sentence-transformers treats queries and documents.

The transformer's module has lengths, and what queries are filled up with; the mask's says what is
left out of answers. It looks up no token.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.tasks import QUERY
from registry.convert.errors import VersionError
from registry.convert.flavours.config import (
    CONFIG,
    SENTENCES_CONFIG,
    Json,
    max_tokens_of,
    read_json,
)
from registry.convert.flavours.original import OriginalSides
from registry.convert.flavours.pooling import mask_of

DOCUMENT = "document"
_FIXED, _LEAST = "fixed", "min"
_SUM, _MEAN = "maxsim", "meanmaxsim"


def read_sides(folder: Path, transformer: Path, config: Json, tokenizer: Path) -> OriginalSides:
    """Both sides.

    Raises:
        VersionError: what its library would not take either, or what is not served.
    """
    mask = mask_of(folder)
    filling = _filling(config.get("query_expansion"), tokenizer)
    similarity = read_json(folder / SENTENCES_CONFIG).get("similarity_fn_name") or _SUM
    if similarity not in {_SUM, _MEAN}:
        raise VersionError(
            f"{SENTENCES_CONFIG} says similarity_fn_name {similarity!r}, and token vectors are "
            f"compared by {_SUM} or {_MEAN}"
        )
    tasks = mask.get("skiplist_tasks")
    sides = [DOCUMENT] if tasks is None else [tasks] if isinstance(tasks, str) else tasks
    return OriginalSides(
        query_tokens=_length(config, "query_length"),
        document_tokens=_length(config, "document_length"),
        positions=max_tokens_of(read_json(transformer / CONFIG), {}),
        filled_to=int(filling.get("length") or 0),
        is_fixed=filling.get("strategy") == _FIXED,
        fill_token=str(filling.get("token") or ""),
        attends=bool(filling.get("attend")),
        left_out=tuple(map(str, mask.get("skiplist_words") or ())),
        left_out_of=tuple(map(str, sides)),
        only=tuple(map(int, mask.get("keep_only_token_ids") or ())),
        mean=similarity == _MEAN,
    )


def prompts_by_side(prompts: Mapping[str, str]) -> dict[str, str]:
    """The prompts, with one for each side: as in the library, an empty one if none is given."""
    return {QUERY: "", DOCUMENT: "", **prompts}


def _length(config: Json, name: str) -> int | None:
    length = config.get(name)
    if length is None:
        return None
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise VersionError(f"{name} of the transformer is {length!r}, and no number of tokens")
    return length


def _filling(given: Any, tokenizer: Path) -> Json:  # noqa: ANN401 - of a file
    """How queries are filled up; empty if they are not."""
    if given is None:
        return {}
    known = {"strategy", "attend", "token", "length"}
    if (
        not isinstance(given, Mapping)
        or not known.issuperset(given)
        or given.get("strategy") not in {_FIXED, _LEAST}
        or _length(given, "length") is None
    ):
        raise VersionError(f"query_expansion of the transformer can't be read: {given!r:.80}")
    if read_json(tokenizer / "tokenizer_config.json").get("padding_side") == "left":
        raise VersionError(
            "its queries are filled up on the left (padding_side), and only what follows a query "
            "is served"
        )
    return given

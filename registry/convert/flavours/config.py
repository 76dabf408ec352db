"""Reads the small JSON files of a Hugging Face folder. It never loads weights or runs code."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contracts.tasks import Task
from preprocess.surrogates import find_lone_surrogate
from registry.convert.errors import VersionError
from registry.convert.forms import FORMS, TaskForm

Json = Mapping[str, Any]

CONFIG = "config.json"
CODE_MAPS = (CONFIG, "tokenizer_config.json")
SENTENCES_CONFIG = "config_sentence_transformers.json"
_NO_LIMIT = 1_000_000  # tokenisers without a limit write 1e30
# Their positions start after the padding id, by RoBERTa's way; it is 1 if the file omits it.
OFFSET_POSITIONS = frozenset(
    {
        *("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert"),
        *("data2vec-text", "esm", "ibert", "layoutlmv3", "lilt", "longformer", "luke"),
        *("markuplm", "mpnet", "xmod"),
    }
)
_USUAL_PAD_ID = 1


def read_json(path: Path) -> Json:
    """The file's object; empty if there is no such file; raises ``VersionError``."""
    if not path.is_file():
        return {}
    data = parse_json(path.read_bytes(), path.name)
    if not isinstance(data, dict):
        raise VersionError(f"{path.name} does not hold a JSON object")
    return data


def parse_json(content: bytes | str, name: str) -> Any:  # noqa: ANN401 - a version's own
    """What a version's JSON holds; raises ``VersionError`` if it is none, or no text."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise VersionError(f"{name} is not JSON: {error}") from error
    require_text(data, name)
    return data


def require_text(data: object, name: str) -> None:
    """Refuses half of a surrogate pair in JSON's strings; raises ``VersionError``."""
    place = find_lone_surrogate(data)
    if place is not None:
        raise VersionError(
            f"{name}: {place.removeprefix('.') or 'a text'}: half of a surrogate pair is no text; "
            "write the character whole"
        )


def task_of(
    config: Json,
    requested: Task | None,
    usual: Task | None = None,
    *,
    cross_encoder: bool = False,
) -> Task:
    """The task by the model's architecture, or the one that the endpoint asks for.

    A classifier of one label may be a cross-encoder. It is taken for one if the endpoint asks
    for it, or if sentence-transformers has written it as one and ``usual`` says nothing else. A
    model of entailment is a classifier, unless the endpoint asks for zero-shot classification.

    Raises:
        VersionError: the architecture is for something else.
    """
    names = [str(name) for name in config.get("architectures") or ()]
    if not names:
        return requested or Task.TEXT_EMBEDDING
    fitting = [task for task, form in FORMS.items() if _fits(form, names, config)]
    if not fitting:
        kinds = [_kind_of(name, config) for name in names]
        fitting = [task for task, form in FORMS.items() if _fits(form, kinds, config)]
    if not fitting:
        known = " and ".join(Task)
        raise VersionError(f"the architecture is {', '.join(names)}; only {known} are served")
    marked = Task.TEXT_RANKING if cross_encoder else None
    for wish in (requested, usual, marked):
        if wish in fitting:
            found = wish
            break
    else:
        found = fitting[0]
    if requested is not None and requested is not found:
        named = FORMS[requested].named
        why = f": no label begins with {named!r}" if named and not _has_label(config, named) else ""
        raise VersionError(
            f"the endpoint asks for {requested}, but {', '.join(names)} does {found}{why}"
        )
    if config.get("problem_type") == "regression" and not FORMS[found].regressions:
        raise VersionError(
            f"problem_type in {CONFIG} is regression: what the model gives are numbers, and "
            f"{found} would make probabilities of them. With one label, an endpoint whose "
            f"spec.task is {Task.TEXT_RANKING} serves it, for pairs of texts"
        )
    return found


def _kind_of(architecture: str, config: Json) -> str:
    """An architecture; one of own code as the class of transformers that loads it (auto_map)."""
    mapped = config.get("auto_map")
    loaders = [
        str(loader)
        for loader, code in (mapped.items() if isinstance(mapped, Mapping) else ())
        if str(loader).startswith("AutoModel") and str(code).rpartition(".")[2] == architecture
    ]
    return max(loaders, key=len, default=architecture)  # one with a head, if there is one


def _fits(form: TaskForm, names: Sequence[str], config: Json) -> bool:
    ends = [name.endswith(form.architecture) for name in names]
    if not form.has_labels:
        return all(ends)
    return (
        any(ends)
        and (not form.one_label or len(labels_of(config)) == 1)
        and (not form.named or _has_label(config, form.named))
    )


def _has_label(config: Json, beginning: str) -> bool:
    """Whether there are several labels, and one begins so."""
    labels = labels_of(config)
    return len(labels) > 1 and any(label.lower().startswith(beginning) for label in labels)


def is_cross_encoder(folder: Path) -> bool:
    """Whether ``CrossEncoder`` of sentence-transformers wrote the folder, in any release of it."""
    config = read_json(folder / CONFIG)
    own = config.get("sentence_transformers")
    return (
        read_json(folder / SENTENCES_CONFIG).get("model_type") == "CrossEncoder"
        or "sbert_ce_default_activation_function" in config
        or (isinstance(own, Mapping) and "activation_fn" in own)
    )


def labels_of(config: Json) -> tuple[str, ...]:
    """``id2label`` in the order of the logits; empty if the file names none.

    Raises:
        VersionError: the ids have holes.
    """
    names = config.get("id2label") or {}
    if not names:
        return ()
    try:
        return tuple(str(names[str(index)]) for index in range(len(names)))
    except (KeyError, TypeError) as error:
        raise VersionError("id2label in config.json must name the labels 0, 1, 2, ...") from error


def is_multi_label(config: Json) -> bool:
    """Whether each label is judged on its own."""
    return config.get("problem_type") == "multi_label_classification"


def max_tokens_of(config: Json, tokenizer_config: Json) -> int | None:
    """The longest row that both the positions and the tokeniser allow; None if neither says."""
    limits = []
    positions = config.get("max_position_embeddings")
    if positions is None and "relative_attention_num_buckets" not in config:
        positions = config.get("n_positions")  # as GPT-2 calls them
    if isinstance(positions, int) and positions > 0:
        offset = 0
        if config.get("model_type") in OFFSET_POSITIONS:
            pad_id = config.get("pad_token_id")
            offset = (pad_id if isinstance(pad_id, int) else _USUAL_PAD_ID) + 1
        limits.append(positions - offset)
    longest = tokenizer_config.get("model_max_length")
    if isinstance(longest, int | float) and 0 < longest < _NO_LIMIT:
        limits.append(int(longest))
    return min(limits) if limits else None


def runs_own_code(folder: Path) -> str:
    """The file that asks for code of its own (``trust_remote_code``); empty if none does."""
    return next((each for each in CODE_MAPS if read_json(folder / each).get("auto_map")), "")

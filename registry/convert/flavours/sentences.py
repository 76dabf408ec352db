"""Reads what sentence-transformers wrote about a model as a whole: its class, prompts and limits.

What follows the token vectors is read by ``pooling``. It loads no weights and runs nothing.
"""

from collections.abc import Mapping
from pathlib import Path

from registry.convert.errors import VersionError
from registry.convert.flavours import fields
from registry.convert.flavours.config import SENTENCES_CONFIG, Json, read_json

SENTENCE_TRANSFORMER = "SentenceTransformer"
CROSS_ENCODER = "CrossEncoder"
SPARSE_ENCODER = "SparseEncoder"
MULTI_VECTOR_ENCODER = "MultiVectorEncoder"
# The first that is there counts, as in the library.
_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)


def prompts_of(folder: Path) -> tuple[dict[str, str], str | None]:
    """The prompts by name, and the name of the usual one.

    Raises:
        VersionError: they are no texts by name, or the usual one is not among them; or another
            field would change answers.
    """
    config = read_json(folder / SENTENCES_CONFIG)
    fields.require_known(SENTENCES_CONFIG, config, fields.SENTENCES)
    prompts, usual = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(
        each is None or isinstance(each, str) for each in prompts.values()
    ):
        raise VersionError(f"the prompts in {SENTENCES_CONFIG} are not texts by name")
    if usual is not None and usual not in prompts:
        raise VersionError(
            f"{SENTENCES_CONFIG} says that the usual prompt is {usual}, and has no such prompt"
        )
    return {name: text or "" for name, text in prompts.items()}, usual


def require_class(folder: Path, loaded_by: str) -> None:
    """Refuses a model whose modules its class would leave out, since another is said to be its own.

    Raises:
        VersionError: what the files say.
    """
    said = read_json(folder / SENTENCES_CONFIG).get("model_type") or SENTENCE_TRANSFORMER
    if said != loaded_by:
        raise VersionError(
            f"{SENTENCES_CONFIG} says model_type {said!r}, and the modules in modules.json are "
            f"those of a {loaded_by}, which its library would leave out: save the model again by "
            "the class that it was trained with"
        )


def transformer_config(folder: Path, *, sided: bool = False) -> Json:
    """What the transformer's module says of texts, by whichever name the library gave the file.

    Raises:
        VersionError: a field that would change answers.
    """
    for name in _TRANSFORMER_CONFIGS:
        if config := read_json(folder / name):
            known = fields.SIDED_TRANSFORMER if sided else fields.TRANSFORMER
            fields.require_known(name, config, known)
            return config
    return {}


def longest_of(config: Json) -> int | None:
    """The longest row by that file; None if it does not say."""
    limits = [config.get("max_seq_length")]
    for name in ("tokenizer_args", "processor_kwargs"):
        options = config.get(name)
        if isinstance(options, Mapping):
            limits.append(options.get("model_max_length"))
    said = [each for each in limits if isinstance(each, int) and each > 0]
    return min(said) if said else None

"""What a version may be that is not served, in words that say what it is and what to do."""

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from contracts.tasks import INPUT_IDS
from registry.convert.errors import VersionError
from registry.convert.flavours.config import CONFIG, SENTENCES_CONFIG, Json, parse_json, read_json
from registry.convert.flavours.fields import OF_PYLATE

_PREFIX = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')
_ADAPTER_CONFIG = "adapter_config.json"  # as peft writes it
MERGE = "merge it (peft: merge_and_unload) and register what save_pretrained writes then"
# Fields of configurations that models of such inputs have.
_READS = {
    "images": ("vision_config", "image_size", "num_channels"),
    "sound": ("audio_config", "num_mel_bins", "conv_dim", "feat_extract_norm"),
}
_OF_SOUND_ONLY = frozenset({"num_mel_bins", "conv_dim", "feat_extract_norm"})
# Inputs of networks.
_TAKES = {"images": ("pixel_values",), "sound": ("input_features", "input_values")}
_SERVED = "and only models of texts and of tables are served"


def refuse_adapters(folder: Path, *, has_model: bool) -> None:
    """Refuses a version with an adapter, which transformers would leave out without a word.

    Raises:
        VersionError: what it is.
    """
    found = next(iter(sorted(folder.rglob(_ADAPTER_CONFIG))), None)
    if found is None:
        return
    config = read_json(found)
    kind = str(config.get("peft_type") or "PEFT")
    base = str(config.get("base_model_name_or_path") or "a model that it does not name")
    if has_model:
        raise VersionError(
            f"there is a {kind} adapter beside the model ({found.relative_to(folder)}), and a "
            f"model is served without adapters: {MERGE}"
        )
    raise VersionError(f"this is a {kind} adapter of {base}, without that model: {MERGE}")


def refuse_broken_merges(tokenizer: Path) -> None:
    """Refuses pairs of pieces on which the tokenisers' library ends the whole process.

    It cuts the prefix off a pair's second piece, whether that has it or not (tokenizers 0.23).

    Raises:
        VersionError: the first such pair.
    """
    file = tokenizer / "tokenizer.json"
    if not file.is_file() or not _PREFIX.search(content := file.read_bytes()):
        return
    whole = parse_json(content, file.name)
    found = whole.get("model") if isinstance(whole, dict) else None
    model: Json = found if isinstance(found, dict) else {}
    prefix = str(model.get("continuing_subword_prefix") or "")
    for merge in (model.get("merges") or ()) if prefix else ():
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if len(pair) == 2 and not str(pair[1]).startswith(prefix):
            raise VersionError(
                f"{file.name} says continuing_subword_prefix {prefix!r}, and its merges have "
                f"pieces without it, such as {pair[1]!r}, at which its library breaks off: take "
                "it out"
            )


def refuse_older_colbert(folders: Iterable[Path]) -> None:
    """Refuses late interaction as other libraries than sentence-transformers save it.

    Raises:
        VersionError: what it is, and what to do.
    """
    for folder in folders:
        said = read_json(folder / SENTENCES_CONFIG)
        by_pylate = said.get("model_type") == "ColBERT" or not OF_PYLATE.isdisjoint(said)
        by_colbert = "HF_ColBERT" in (read_json(folder / CONFIG).get("architectures") or ())
        if by_pylate or by_colbert:
            maker = "PyLate" if by_pylate else "the colbert-ai package"
            raise VersionError(
                f"it is a ColBERT as {maker} saves it, and what MultiVectorEncoder of "
                "sentence-transformers saves is served: load it by that class, and register what "
                "save_pretrained writes then"
            )


def refuse_other_inputs(transformer: Path, *, has_tokeniser: bool) -> None:
    """Refuses a model that reads no text, by its configuration; raises ``VersionError``.

    A network of texts may carry fields of a larger model that it was part of, or of others of its
    class. One with a tokeniser and a vocabulary of its own (not in ``text_config``) passes, and
    ``require_texts`` judges it by what it takes.
    """
    config = read_json(transformer / CONFIG)
    of_texts = has_tokeniser and "vocab_size" in config and "text_config" not in config
    for what, fields in _READS.items():
        told = [name for name in fields if config.get(name) is not None]
        if any(name in _OF_SOUND_ONLY or not of_texts for name in told):
            kind = str(config.get("model_type") or "unknown")
            too = " beside texts" if "text_config" in config else ""
            raise VersionError(f"it reads {what}{too} (model_type {kind!r}), {_SERVED}")


def require_texts(network: str, taken: Collection[str]) -> None:
    """Refuses a network by what it takes; raises ``VersionError``."""
    for what, names in _TAKES.items():
        if found := next((name for name in names if name in taken), ""):
            raise VersionError(f"{network} reads {what} ({found}), {_SERVED}")
    if INPUT_IDS not in taken:
        raise VersionError(
            f"{network} takes {', '.join(list(taken)[:3])}, and no {INPUT_IDS}: it is none of the "
            "networks of texts that are served"
        )

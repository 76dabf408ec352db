"""Reads what sentence-transformers wrote about everything after the token vectors.

What it can't express in the exported graph it refuses, rather than serve vectors that differ from
the original's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.manifest import WEIGHTS
from registry.convert.errors import VersionError
from registry.convert.flavours import fields
from registry.convert.flavours.config import Json, parse_json, read_json
from registry.convert.flavours.original import Dense, Pooling, PoolingMode

MODULES = "modules.json"
MASK, _TRANSFORMERS = "MultiVectorMask", ("Transformer", "MLMTransformer")
_FLAGS = {
    "pooling_mode_cls_token": PoolingMode.CLS,
    "pooling_mode_max_tokens": PoolingMode.MAX,
    "pooling_mode_mean_tokens": PoolingMode.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": PoolingMode.MEAN_SQRT_LENGTH,
    "pooling_mode_weightedmean_tokens": PoolingMode.WEIGHTED_MEAN,
    "pooling_mode_lasttoken": PoolingMode.LAST_TOKEN,
}
# sentence-transformers imports what these files name by a path: only its own modules and torch's.
_LIBRARY = "sentence_transformers."
_LAYERS = "torch.nn."
_ACTIVATIONS = {"Identity": "", "Tanh": "Tanh", "ReLU": "Relu", "Sigmoid": "Sigmoid"}


def read_pooling(folder: Path) -> tuple[Path, Pooling]:
    """The transformer's own folder, and what follows it.

    Raises:
        VersionError: a module or a mode that can't be part of the graph.
    """
    transformer, normalise = folder, False
    modes: tuple[PoolingMode, ...] = ()
    dense: list[Dense] = []
    entries = _modules(folder)
    # What it masks is token vectors, and so are those that the others read.
    sided = MASK in map(_kind, entries)
    if sided:
        modes = (PoolingMode.EACH_TOKEN,)
    for module in entries:
        kind, module_folder = _kind(module), _folder_of(folder, module)
        if kind in _TRANSFORMERS and module is entries[0]:
            transformer = module_folder
        elif kind in {"Pooling", "SpladePooling"} and not (sided or dense or normalise):
            modes = _modes(kind, _config(module_folder, kind))
        elif kind == "Dense" and not normalise:
            dense.append(_dense(module_folder, sided=sided))
        elif kind in {"Normalize", MASK}:
            config = _config(module_folder, kind, sided=sided)
            normalise |= kind != MASK and _normalises(config, sided=sided)
        else:
            raise VersionError(
                f"{MODULES} has a module {kind} that can't be part of the graph; "
                "Transformer, Pooling, Dense and Normalize can, in this order, or "
                f"MLMTransformer and SpladePooling, or Transformer, Dense, {MASK} and Normalize"
            )
    if _kind(next(iter(entries), {})) not in _TRANSFORMERS:
        raise VersionError(f"{MODULES} does not begin with a Transformer, which reads the texts")
    if not modes:
        raise VersionError(
            f"{MODULES} has no Pooling, so that the vectors would be one a token, and no {MASK}, "
            "as late interaction has"
        )
    return transformer, Pooling(modes, tuple(dense), normalise)


def mask_of(folder: Path) -> Json:
    """The configuration of the module that says which tokens late interaction leaves out.

    Empty if there is none.

    Raises:
        VersionError: there are several.
    """
    found = [module for module in _modules(folder) if _kind(module) == MASK]
    if len(found) > 1:
        raise VersionError(f"{MODULES} has several modules {MASK}; only one is served")
    return _config(folder / str(found[0].get("path", "")), MASK, sided=True) if found else {}


def _kind(module: Mapping[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[-1]


def _folder_of(folder: Path, module: Mapping[str, Any]) -> Path:
    """A module's own folder; raises ``VersionError`` if it is not one of the library's within."""
    if not str(module.get("type", "")).startswith(_LIBRARY):
        raise VersionError(
            f"{MODULES} has a module {module.get('type')!r}, which is not of "
            f"{_LIBRARY.rstrip('.')}: other code is not run"
        )
    own = folder / str(module.get("path", ""))
    if not own.resolve().is_relative_to(folder.resolve()):
        raise VersionError(f"{MODULES} points outside the model's folder: {module.get('path')}")
    return own


def _normalises(config: Json, *, sided: bool) -> bool:
    """Whether it does something: without a name it reads vectors of texts."""
    return not sided or bool(config.get("module_input_name"))


def require_transformer_only(folder: Path) -> None:
    """Refuses a CrossEncoder of more than a network that ends in logits; ``VersionError``."""
    if not (folder / MODULES).is_file():
        return  # of earlier releases of sentence-transformers
    for module in _modules(folder):
        kind = str(module.get("type", "")).rpartition(".")[-1]
        if kind != "Transformer":
            raise VersionError(
                f"this CrossEncoder has the module {kind} in {MODULES}; only one of a Transformer "
                "that ends in logits (ForSequenceClassification) is served"
            )


def _config(module_folder: Path, kind: str, *, sided: bool = False) -> Json:
    """A module's own configuration; raises ``VersionError`` for what it is not known to do."""
    config = read_json(module_folder / "config.json")
    known = (fields.SIDED_MODULES if sided else fields.MODULES)[kind]
    fields.require_known(f"{module_folder.name}/config.json", config, known)
    return config


def _modules(folder: Path) -> list[Mapping[str, Any]]:
    modules = parse_json((folder / MODULES).read_bytes(), MODULES)
    if not isinstance(modules, list) or not all(isinstance(item, dict) for item in modules):
        raise VersionError(f"{MODULES} does not hold a list of modules")
    for module in modules:
        fields.require_known(MODULES, module, fields.ENTRY)
    return modules


def _modes(kind: str, config: Mapping[str, Any]) -> tuple[PoolingMode, ...]:
    if kind == "SpladePooling":
        return (_splade(config),)
    if not config.get("include_prompt", True):
        raise VersionError("pooling leaves the prompt's tokens out, which is not supported")
    named = config.get("pooling_mode")
    names = [named] if isinstance(named, str) else list(named or ())
    try:
        modes = [PoolingMode(name) for name in names]
    except ValueError as error:
        raise VersionError(f"pooling mode {', '.join(map(str, names))} is not known") from error
    # Older files hold a flag a mode; the library joins the vectors in this order.
    return tuple(modes or [mode for flag, mode in _FLAGS.items() if config.get(flag)])


def _splade(config: Mapping[str, Any]) -> PoolingMode:
    strategy = config.get("pooling_strategy", "max")
    activation = config.get("activation_function", "relu")
    if (strategy, activation) != ("max", "relu"):
        raise VersionError(
            f"sparse pooling by {strategy} with {activation} is not supported, only max with relu"
        )
    return PoolingMode.SPLADE


def _dense(module_folder: Path, *, sided: bool) -> Dense:
    config = _config(module_folder, "Dense", sided=sided)
    activation = str(config.get("activation_function") or f"{_LAYERS}Tanh")
    name = activation.rpartition(".")[-1]
    if name not in _ACTIVATIONS or not activation.startswith(_LAYERS):
        raise VersionError(f"the activation {activation} of a Dense module is not supported")
    if int(config.get("in_features") or 0) < 1:
        raise VersionError("the config.json of a Dense module does not say its size")
    weights = module_folder / WEIGHTS
    if not weights.is_file():
        raise VersionError(
            f"the Dense module {module_folder.name} has no {WEIGHTS}: save the model as safetensors"
        )
    return Dense(weights, _ACTIVATIONS[name])

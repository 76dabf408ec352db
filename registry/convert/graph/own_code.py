"""What networks of checkpoints' own code need that transformers does not give them.

Only an operator allows such code (``conversion.allowRemoteCode``).
"""

import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from registry.convert.errors import VersionError

_ANEW = (
    "which no file holds, and which is another each time that the network is built: by chance, or "
    "from weights before they are loaded"
)


@contextmanager
def loading(folder: Path) -> Iterator[list[str]]:
    """Has transformers load own code as it was written for; around one load or several.

    Gives the names of weights that the files lack, also of those that the code would not miss.
    """
    with stand_in(folder), _built_in_memory() as lacking:
        yield lacking


@contextmanager
def _built_in_memory() -> Iterator[list[str]]:
    """Keeps tables that code computes when it is built and no file holds, such as of positions.

    transformers 5 builds networks without memory and fills in the files' weights. Its own classes
    compute their tables again; those of other code stay whatever the memory held. So these are
    built with memory here.

    Weights are read into the parameters that the code made, whatever else of it holds them.

    Raises:
        VersionError: a table is another each time.
    """
    import torch  # noqa: PLC0415
    from transformers import PreTrainedModel  # noqa: PLC0415

    base: Any = PreTrainedModel
    contexts = base.get_init_context.__func__
    move = base._move_missing_keys_from_meta_to_device  # noqa: SLF001 - there is no other way
    lacking: list[str] = []
    asked: list[_Construction] = []

    def contexts_in_memory(kind: Any, *given: Any, **further: Any) -> list[Any]:  # noqa: ANN401
        found = contexts(kind, *given, **further)
        if _is_of_library(kind):
            return list(found)
        in_memory = (each for each in found if not isinstance(each, torch.device))
        return [*in_memory, _note_construction(base, kind, asked)]

    def keep_tables(network: Any, missing: Any, *given: Any, **further: Any) -> None:  # noqa: ANN401
        if _is_of_library(type(network)):
            move(network, missing, *given, **further)
            return
        built, before = asked.pop(), _tables(network, missing)
        tied = network.all_tied_weights_keys.keys()
        others = {*before, *missing, *tied}
        weights = {name: each for name, each in built.weights.items() if name not in others}
        _read_into(network, weights)
        move(network, missing, *given, **further)
        lacking.extend(missing & dict(network.named_parameters()).keys() - tied)
        places = {_storage(each) for each in weights.values()}
        again = _tables(built.again(), missing)
        for name, value in before.items():
            same = name in again and _same(value, again[name])
            if not same and _storage(value) not in places:
                raise VersionError(f"{type(network).__name__} has a table {name}, {_ANEW}")
            module, _, attribute = name.rpartition(".")
            setattr(network.get_submodule(module), attribute, value)

    base.get_init_context = classmethod(contexts_in_memory)
    base._move_missing_keys_from_meta_to_device = keep_tables  # noqa: SLF001
    try:
        yield lacking
    finally:
        base.get_init_context = classmethod(contexts)
        base._move_missing_keys_from_meta_to_device = move  # noqa: SLF001


def _is_of_library(kind: Any) -> bool:  # noqa: ANN401 - a class
    return bool(kind.__module__.startswith("transformers."))


@dataclass(frozen=True)
class _Construction:
    """What a network's code made: parameters and buffers by name, and how to build it again."""

    weights: Mapping[str, Any]
    again: Callable[[], Any]


@contextmanager
def _note_construction(base: Any, kind: Any, asked: list[_Construction]) -> Iterator[None]:  # noqa: ANN401 - classes
    """Notes what the next network of a class makes, and with what it is built."""
    import torch  # noqa: PLC0415

    first = kind.__init__

    def init(self: Any, config: Any, *given: Any, **options: Any) -> None:  # noqa: ANN401
        kind.__init__ = first
        unused, used = copy.deepcopy(config), torch.get_default_dtype()  # code may change its own

        def again() -> Any:  # noqa: ANN401
            usual = torch.get_default_dtype()
            torch.set_default_dtype(used)
            try:
                with _without_chance(base):
                    return kind(copy.deepcopy(unused), *given, **options)
            finally:
                torch.set_default_dtype(usual)

        with _without_chance(base):
            first(self, config, *given, **options)
        asked.append(
            _Construction({**dict(self.named_parameters()), **dict(self.named_buffers())}, again)
        )

    kind.__init__ = init
    try:
        yield
    finally:
        kind.__init__ = first


@contextmanager
def _without_chance(base: Any) -> Iterator[None]:  # noqa: ANN401 - the class of all networks
    """Leaves out what transformers leaves out of networks without memory: their first weights."""
    first = base.init_weights
    base.init_weights = lambda _network: None
    try:
        yield
    finally:
        base.init_weights = first


def _read_into(network: Any, made: Mapping[str, Any]) -> None:  # noqa: ANN401 - a module of torch
    """Puts loaded weights into the tensors that the code made, which it may hold elsewhere too."""
    import torch  # noqa: PLC0415

    for name, own in made.items():
        module, _, attribute = name.rpartition(".")
        holder = network.get_submodule(module)
        loaded = getattr(holder, attribute)
        if loaded is own or loaded.shape != own.shape:
            continue
        with torch.no_grad():
            own.copy_(loaded)
        own._is_hf_initialized = True  # noqa: SLF001 - or transformers would make it up
        setattr(holder, attribute, own)


def _storage(tensor: Any) -> int:  # noqa: ANN401
    return int(tensor.untyped_storage().data_ptr())


def _tables(network: Any, missing: Any) -> Mapping[str, Any]:  # noqa: ANN401 - a module of torch
    """Tensors that are no weights of the files: buffers, and what is held beside them."""
    found = {}
    for path, module in network.named_modules():
        own = module._non_persistent_buffers_set  # noqa: SLF001
        for key, value in (*module._buffers.items(), *vars(module).items()):  # noqa: SLF001
            name = f"{path}.{key}".lstrip(".")
            held = key not in module._buffers or key in own or name in missing  # noqa: SLF001
            if held and hasattr(value, "is_meta"):
                found[name] = value
    return found


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - tensors
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())  # noqa: PLR0124 - NaN


@contextmanager
def stand_in(folder: Path) -> Iterator[None]:
    """Has code find xformers' ``SwiGLU``, as NeoBERT does, where xformers is not installed.

    xformers is built for one release of torch with CUDA, and its layer is a formula of torch's own
    (https://github.com/facebookresearch/xformers/blob/main/xformers/ops/swiglu_op.py). Code that
    takes something else of xformers, or does without, finds none.
    """
    code = "".join(each.read_text("utf-8", "replace") for each in folder.rglob("*.py"))
    if importlib.util.find_spec("xformers") or "xformers.ops import SwiGLU" not in code:
        yield
        return
    made = {}
    for name in ("xformers", "xformers.ops"):
        made[name] = ModuleType(name)
        made[name].__spec__ = ModuleSpec(name, None, is_package=True)
        made[name].__path__ = []
    vars(made["xformers.ops"])["SwiGLU"] = gated_layer()
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            sys.modules.pop(name, None)


def gated_layer() -> Any:  # noqa: ANN401 - a class of torch's modules
    """A class that computes what xformers' ``SwiGLU`` of packed weights does."""
    from torch import nn  # noqa: PLC0415

    class SwiGLU(nn.Module):
        """``w3(silu(gate) * value)``, where gate and value are the halves of ``w12(x)``."""

        def __init__(
            self,
            in_features: int,
            hidden_features: int,
            out_features: int | None = None,
            bias: bool = True,  # noqa: FBT001, FBT002 - as xformers has it
        ) -> None:
            super().__init__()
            self.w12 = nn.Linear(in_features, 2 * hidden_features, bias=bias)
            self.w3 = nn.Linear(hidden_features, out_features or in_features, bias=bias)

        def forward(self, x: Any) -> Any:  # noqa: ANN401
            gate, value = self.w12(x).chunk(2, dim=-1)
            return self.w3(nn.functional.silu(gate) * value)

    return SwiGLU

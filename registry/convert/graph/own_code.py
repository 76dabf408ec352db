"""What networks of checkpoints' own code need that transformers does not give them.

Only an operator allows such code (``conversion.allowRemoteCode``).
"""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


def compute_tables(network: Any) -> None:  # noqa: ANN401 - a module of torch
    """Computes what a network's code makes when it is built and no file holds: tables of positions.

    transformers 5 builds networks without memory and fills in the files' weights. Its own classes
    compute their tables again; those of other code stay whatever the memory held.
    """
    import torch  # noqa: PLC0415

    kind = type(network)
    if kind.__module__.startswith("transformers."):
        return
    built = dict(kind(network.config).named_modules())
    for name, module in network.named_modules():
        for key in module._non_persistent_buffers_set:  # noqa: SLF001 - torch has no other way
            setattr(module, key, getattr(built[name], key))
        for key, value in vars(built[name]).items():
            if isinstance(value, torch.Tensor):
                setattr(module, key, value)


@contextmanager
def stand_ins() -> Iterator[None]:
    """Has code find xformers' ``SwiGLU``, as NeoBERT does, where xformers is not installed.

    xformers is built for one release of torch with CUDA, and its layer is a formula of torch's own
    (https://github.com/facebookresearch/xformers/blob/main/xformers/ops/swiglu_op.py).
    """
    if importlib.util.find_spec("xformers") is not None:
        yield
        return
    xformers, ops = ModuleType("xformers"), ModuleType("xformers.ops")
    xformers.__path__ = []
    vars(ops)["SwiGLU"] = _gated_layer()
    made = {"xformers": xformers, "xformers.ops": ops}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


def _gated_layer() -> Any:  # noqa: ANN401 - a class of torch's modules
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

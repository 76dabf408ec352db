"""Has torch trace complex numbers as pairs of real ones, because ONNX has no complex type.

Networks of checkpoints' own code turn queries and keys by a product of complex numbers (rotary
positions as in Meta's Llama, https://github.com/meta-llama/llama/blob/main/llama/model.py). What is
known here is what such code uses; the rest is an error that names the operation.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Values = Any  # a tensor, of which mypy knows nothing without torch


class ComplexOperationError(AttributeError):
    """An operation on complex numbers that is not known here: tensors have it, pairs do not."""

    def __init__(self, name: str) -> None:
        super().__init__(f"it computes {name} of complex numbers")


class ComplexPairs:
    """Complex numbers ``[...]`` as a real tensor ``[..., 2]`` of their two parts."""

    def __init__(self, values: Values) -> None:
        self.values = values

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        _types: object,
        given: tuple[Any, ...] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the operation gives
        name = function.__name__
        name = name.strip("_") if name.startswith("__") else name
        if name not in _OPERATIONS:
            raise ComplexOperationError(name)
        return _OPERATIONS[name](*given, **(options or {}))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method, or a value
        if name in _ATTRIBUTES:
            return _ATTRIBUTES[name](self)
        if name not in _OPERATIONS:
            raise ComplexOperationError(name)
        return lambda *given, **options: _OPERATIONS[name](self, *given, **options)

    def __getitem__(self, at: Any) -> "ComplexPairs":  # noqa: ANN401 - as of a tensor
        ats = at if isinstance(at, tuple) else (at,)
        return ComplexPairs(self.values[(*ats, slice(None)) if Ellipsis in ats else ats])

    def __mul__(self, other: Any) -> "ComplexPairs":  # noqa: ANN401 - pairs, or real numbers
        if not isinstance(other, ComplexPairs):
            if isinstance(other, complex) or (
                isinstance(other, torch.Tensor) and other.is_complex()
            ):
                raise ComplexOperationError("a product with others")
            real = other.unsqueeze(-1) if isinstance(other, torch.Tensor) else other
            return ComplexPairs(self.values * real)
        (a, b), (c, d) = self.values.unbind(-1), other.values.unbind(-1)
        return ComplexPairs(torch.stack((a * c - b * d, a * d + b * c), -1))

    __rmul__ = __mul__


class _Makers(TorchFunctionMode):
    """Has functions of torch that make complex tensors make pairs."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        _types: object,
        given: tuple[Any, ...] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the operation gives
        return _MAKERS.get(function, function)(*given, **(options or {}))


@contextmanager
def as_pairs(network: Any) -> Iterator[None]:  # noqa: ANN401 - a module
    """Within it a network has and makes ``ComplexPairs`` where it has and makes complex tensors."""
    held = [
        (vars(module), table, name, value)
        for module in network.modules()
        for table in (module._buffers, vars(module))  # noqa: SLF001 - torch has no other way
        for name, value in table.items()
        if isinstance(value, torch.Tensor) and value.is_complex()
    ]
    for attributes, table, name, value in held:
        del table[name]
        attributes[name] = ComplexPairs(torch.view_as_real(value.resolve_conj()).contiguous())
    try:
        with _Makers():
            yield
    finally:
        for attributes, table, name, value in held:
            del attributes[name]
            table[name] = value


def _behind(dim: int) -> int:
    """A dimension of complex numbers, counted where their parts are one more."""
    return dim if dim >= 0 else dim - 1


def _is_complex(kind: Any) -> bool:  # noqa: ANN401 - a type of numbers, a device, or a tensor
    dtype = kind if isinstance(kind, torch.dtype) else getattr(kind, "dtype", torch.complex64)
    return bool(dtype.is_complex)


def _sizes(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*(given[0] if len(given) == 1 and not isinstance(given[0], int) else given), 2)


_MAKERS: Mapping[Callable[..., Any], Callable[..., ComplexPairs]] = {
    torch.view_as_complex: ComplexPairs,
    torch.complex: lambda real, imaginary: ComplexPairs(torch.stack((real, imaginary), -1)),
    torch.polar: lambda size, angle: ComplexPairs(
        torch.stack((size * angle.cos(), size * angle.sin()), -1)
    ),
}
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "view_as_real": lambda pairs: pairs.values,
    "mul": lambda one, other: one * other if isinstance(one, ComplexPairs) else other * one,
    "getitem": lambda pairs, at: pairs[at],
    "conj": lambda pairs: ComplexPairs(pairs.values * pairs.values.new_tensor((1.0, -1.0))),
    "unsqueeze": lambda pairs, dim: ComplexPairs(pairs.values.unsqueeze(_behind(dim))),
    "squeeze": lambda pairs, dim: ComplexPairs(pairs.values.squeeze(_behind(dim))),
    "transpose": lambda pairs, a, b: ComplexPairs(pairs.values.transpose(_behind(a), _behind(b))),
    "view": lambda pairs, *sizes: ComplexPairs(pairs.values.reshape(_sizes(sizes))),
    "reshape": lambda pairs, *sizes: ComplexPairs(pairs.values.reshape(_sizes(sizes))),
    "expand": lambda pairs, *sizes: ComplexPairs(pairs.values.expand(_sizes(sizes))),
    "size": lambda pairs, *dim: pairs.shape[dim[0]] if dim else pairs.shape,
    "dim": lambda pairs: pairs.ndim,
    "to": lambda pairs, kind=None, **_: pairs if _is_complex(kind) else pairs.cast,
    **dict.fromkeys(("contiguous", "clone", "detach"), lambda pairs, *_, **__: pairs),
}
_ATTRIBUTES: Mapping[str, Callable[[ComplexPairs], Any]] = {
    "real": lambda pairs: pairs.values[..., 0],
    "imag": lambda pairs: pairs.values[..., 1],
    "shape": lambda pairs: pairs.values.shape[:-1],
    "ndim": lambda pairs: pairs.values.ndim - 1,
    "device": lambda pairs: pairs.values.device,
    "dtype": lambda _pairs: torch.complex64,
}

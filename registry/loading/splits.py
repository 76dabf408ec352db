"""How a Triton on CPUs divides its cores among the copies of a model and their threads.

Copies answer more requests at once; threads answer each of them sooner. Which division does most
work depends on the model and the machine, so that a few are measured. This module says which ones,
and which of them is taken; it runs nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

MOST_COPIES = 16
_AS_GOOD = 0.95  # of the most rows a second
# Memory of a copy in the Python backend: the process, and weights that ONNX Runtime packs again.
_PROCESS_BYTES = 128 * 1024 * 1024
_GRAPHS = 2
_SHARE = 2  # copies of one package get this part of the memory: a rollout has two versions


class InstanceSplit(NamedTuple):
    """How many copies run at once (on each GPU if there is one), and CPU threads of each."""

    copies: int
    threads: int


def most_copies(graph_bytes: int, memory_bytes: int) -> int:
    """Copies that half of the memory holds, at least one."""
    return max(1, memory_bytes // _SHARE // copy_bytes(graph_bytes))


def copy_bytes(graph_bytes: int, *, process: bool = True) -> int:
    """Memory of one copy of a model, estimated by the size of its graph.

    ``process``: it runs in a process of its own, as in the Python backend.
    """
    return _PROCESS_BYTES * process + _GRAPHS * graph_bytes


def candidates(cores: int, most: int, asked: int | None = None) -> tuple[InstanceSplit, ...]:
    """The divisions that are worth measuring, that with the most copies first.

    Args:
        cores: that Triton may use.
        most: copies that memory holds.
        asked: copies if the number is given; then only their threads are open.

    >>> [tuple(split) for split in candidates(16, 99)]
    [(16, 1), (8, 2), (4, 4)]
    >>> [tuple(split) for split in candidates(16, 2)]
    [(2, 8), (1, 16)]
    >>> [tuple(split) for split in candidates(16, 99, 3)]
    [(3, 1), (3, 5)]
    """
    if asked is not None:
        return tuple(
            dict.fromkeys((InstanceSplit(asked, 1), InstanceSplit(asked, max(1, cores // asked))))
        )
    top = max(1, min(cores, most, MOST_COPIES))
    numbers = dict.fromkeys(number for number in (top, top // 2, top // 4) if number)
    return tuple(InstanceSplit(copies, cores // copies) for copies in numbers)


def suits(split: InstanceSplit, cores: int, asked: int | None = None) -> bool:
    """Whether a division may have been chosen for this number of cores."""
    if asked is not None:
        return split in candidates(cores, asked, asked)
    return 1 <= split.copies <= min(cores, MOST_COPIES) and split.threads == cores // split.copies


def best(measured: Mapping[InstanceSplit, float]) -> InstanceSplit:
    """The division to take, of some with their rows a second; at least one.

    The fewest copies that come within a twentieth of the most rows a second: with more threads each
    they answer one text sooner, and take less memory.
    """
    least = _AS_GOOD * max(measured.values())
    return min(split for split, rows in measured.items() if rows >= least)

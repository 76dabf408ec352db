"""Whether a package fits beside what a Triton holds, before its files are fetched.

What is weighed is an estimate, and the least: one copy if the endpoint names no number. A Triton
that is full takes all its models with it when it ends, so that what can't fit is not tried. Pure
but for the disk's free bytes.
"""

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from contracts.endpoint import Precision
from contracts.manifest import ENCODER_ONNX, MODEL_ONNX, WEIGHTS, Manifest
from registry.errors import RegistryError
from registry.loading import splits

# Of a process that computes on a GPU, beside its weights: CUDA's context with the kernels of its
# libraries, and what the batches of an encoder take. An estimate, until warm-up shows the real one.
_GPU_PROCESS_BYTES = 512 * 1024 * 1024
_HALVES = frozenset({Precision.FP16, Precision.BF16})


class NoRoomError(RegistryError):
    """A package does not fit beside what Triton holds."""


@dataclass(frozen=True, slots=True)
class PackageNeed:
    """Bytes that a package takes: of memory, as copies that run, of disk, and of a GPU's memory."""

    memory_bytes: int
    disk_bytes: int
    gpu_bytes: int = 0

    @classmethod
    def of(cls, manifest: Manifest, *, process: bool) -> "PackageNeed":
        """What one copy of a package needs; ``process``: it runs in one of its own.

        A pyfunc's archive lies unpacked beside Triton's model, once for all copies; and its Python
        runs in a process beside the one that Triton starts, with the model's files in memory.
        """
        files = manifest.files
        if manifest.pyfunc is not None:
            own = splits.copy_bytes(0) + manifest.pyfunc.model_bytes
            on_disk = sum(file.bytes for file in files.values()) + manifest.pyfunc.unpacked_bytes
            return cls(splits.copy_bytes(0, process=process) + own, on_disk)
        names = (MODEL_ONNX, ENCODER_ONNX, WEIGHTS)
        graphs = sum(files[name].bytes for name in names if name in files)
        return cls(
            splits.copy_bytes(graphs, process=process),
            sum(file.bytes for file in files.values()),
            _on_gpu(manifest),
        )


@dataclass(frozen=True, slots=True)
class Room:
    """What a Triton's models may take altogether.

    ``memory_bytes``: None if it is not known, as of a Triton elsewhere. ``disk_bytes``: None for
    what is free in ``folder``, where packages lie; nothing is weighed without either.
    """

    memory_bytes: int | None = None
    disk_bytes: int | None = None
    folder: Path | None = None

    def check(
        self,
        need: PackageNeed,
        held: Collection[PackageNeed],
        *,
        on_gpu: bool,
        gpu_free_bytes: int | None = None,
    ) -> None:
        """Refuses a package that does not fit.

        Args:
            need: of the package.
            held: of all others that Triton holds.
            on_gpu: it runs on a GPU, whose memory is not the machine's.
            gpu_free_bytes: what is free of that, whatever holds the rest; None if it is not known.

        Raises:
            NoRoomError: with what it needs and what is left.
        """
        if on_gpu and gpu_free_bytes is not None and need.gpu_bytes > gpu_free_bytes:
            raise NoRoomError(
                f"it needs some {_size(need.gpu_bytes)} of the GPU's memory, and "
                f"{_size(gpu_free_bytes)} of it are free"
            )
        taken = sum(each.memory_bytes for each in held)
        most = self.memory_bytes
        if most is not None and not on_gpu and taken + need.memory_bytes > most:
            raise NoRoomError(
                f"it needs some {_size(need.memory_bytes)} of memory, and {len(held)} other "
                f"packages take some {_size(taken)} of {_size(most)}"
            )
        left = self._disk_left(held)
        if left is not None and need.disk_bytes > left:
            raise NoRoomError(
                f"it needs {_size(need.disk_bytes)} of disk, and {_size(max(0, left))} are left"
            )

    def _disk_left(self, held: Collection[PackageNeed]) -> int | None:
        if self.disk_bytes is not None:
            return self.disk_bytes - sum(each.disk_bytes for each in held)
        if self.folder is None:
            return None
        there = next((each for each in (self.folder, *self.folder.parents) if each.is_dir()), None)
        return None if there is None else shutil.disk_usage(there).free


WITHOUT_BOUNDS = Room()


def _on_gpu(manifest: Manifest) -> int:
    """Estimated by the weights: a packed engine's, which lie in fp32 mostly, in its own precision.

    The least: one copy, on each GPU.
    """
    weights = manifest.files.get(WEIGHTS)
    if weights is not None:
        return weights.bytes // (1 + (manifest.precision in _HALVES)) + _GPU_PROCESS_BYTES
    names = (MODEL_ONNX, ENCODER_ONNX)
    graphs = sum(manifest.files[name].bytes for name in names if name in manifest.files)
    return graphs + _GPU_PROCESS_BYTES if graphs else 0


def _size(bytes_: int) -> str:
    """For people.

    >>> _size(1_230_000_000), _size(45_000_000)
    ('1.2 GB', '45 MB')
    """
    return f"{bytes_ / 1e9:.1f} GB" if bytes_ >= 1e9 else f"{bytes_ / 1e6:.0f} MB"

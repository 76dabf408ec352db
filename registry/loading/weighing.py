"""Weighs packages for one Triton: what each needs, as long as the loader knows of it.

What a package needs of a GPU is an estimate until it was loaded once. From then on it is what its
own process holds there after its warm-up; if the driver does not tell that, as in many containers,
what the GPU lost meanwhile, with whatever others took of it. The bounds are ``room``'s.
"""

import logging
from collections.abc import Callable, Iterable

from contracts.manifest import CONFIG_ONNXRUNTIME, Manifest
from contracts.model import ModelRef
from registry.loading.room import PackageNeed, Room

log = logging.getLogger(__name__)

Copies = int | None


class PackageWeigher:
    """The needs of packages.

    Args:
        room: what Triton's models may take.
        manifest: of a package; may block, and raises ``RegistryError`` if it can't be had.
    """

    def __init__(self, room: Room, manifest: Callable[[ModelRef], Manifest]) -> None:
        self._room = room
        self._manifest = manifest
        # What one copy needs, in Triton's process and in its own, by Triton's name of the package.
        self._needs: dict[str, tuple[PackageNeed, PackageNeed]] = {}
        self._grown: dict[str, int] = {}  # of a GPU's memory, bytes, by the same

    def check(
        self,
        ref: ModelRef,
        copies: Copies,
        held: Iterable[tuple[ModelRef, Copies]],
        *,
        in_process: bool,
        on_gpu: bool,
        gpu_free_bytes: int | None,
    ) -> None:
        """Refuses a package that does not fit.

        Args:
            ref: the package.
            copies: that run at once; None: as many as suit.
            held: all others that Triton holds, in the same form.
            in_process: they run in processes of their own, by the Python backend.
            on_gpu: the package runs on a GPU.
            gpu_free_bytes: of its memory; None if it is unknown.

        Raises:
            NoRoomError: it does not fit.
            RegistryError: a manifest can't be had.
        """
        needs = [self._need(each, number, in_process=in_process) for each, number in held]
        need = self._need(ref, copies, in_process=in_process)
        self._room.check(need, needs, on_gpu=on_gpu, gpu_free_bytes=gpu_free_bytes)

    def grew(
        self, name: str, before: int | None, after: int | None, held: int | None = None
    ) -> None:
        """Takes in what a package takes of a GPU, once it was warmed up.

        Args:
            name: Triton's name of it.
            before: bytes that were free before it was loaded; None if it is unknown.
            after: bytes that are free now.
            held: bytes that its own process holds.
        """
        if held is not None:
            self._grown[name] = held
        elif before is not None and after is not None and before > after:
            self._grown[name] = before - after
            log.info(
                "%s is weighed as %d MB of a GPU, with what others took meanwhile: the driver "
                "tells no process",
                name,
                (before - after) // 1_000_000,
            )

    def forget(self, name: str) -> None:
        """Of a package that left for good."""
        self._needs.pop(name, None)
        self._grown.pop(name, None)

    def _need(self, ref: ModelRef, copies: Copies, *, in_process: bool) -> PackageNeed:
        name = ref.triton_model
        known = self._needs.get(name)
        if known is None:
            manifest = self._manifest(ref)
            alone = PackageNeed.of(manifest, process=True)
            is_free = CONFIG_ONNXRUNTIME in manifest.files
            known = PackageNeed.of(manifest, process=False) if is_free else alone, alone
            self._needs[name] = known
        need, number = known[in_process], copies or 1
        gpu = self._grown.get(name, need.gpu_bytes * number)
        return PackageNeed(need.memory_bytes * number, need.disk_bytes, gpu)

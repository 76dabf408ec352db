"""Whether a Triton that refused a package still loads one that is known to be good.

The witness is a second copy of a stable package that Triton holds, or a tiny graph of our own if
there is none, or no room for it. It is loaded under a name of its own, asked for one answer, and
unloaded. Nothing is served from it, and it says nothing about the package that was refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import numpy as np

from contracts.loading import DeviceKind, WitnessAnswer
from contracts.manifest import CONFIG_ONNXRUNTIME, MANIFEST, Manifest
from contracts.model import ModelRef
from registry.errors import (
    BackendMissingError,
    RegistryError,
    TritonRefusedError,
    TritonUnavailableError,
)
from registry.loading import warmup
from registry.loading.placement import Placement
from registry.loading.splits import InstanceSplit
from registry.loading.triton_client import PROBE, Overrides, Triton
from registry.packages.cache import PackageCache
from registry.packages.triton_config import BACKEND_PYTHON

log = logging.getLogger(__name__)

NAME = "headrace-witness"  # Triton's name of it
_ONE_COPY = InstanceSplit(copies=1, threads=1)


class Witness:
    """Loads what is known to be good into one Triton."""

    def __init__(self, triton: Triton, placement: Placement, packages: PackageCache) -> None:
        self._triton = triton
        self._placement = placement
        self._packages = packages

    async def ask(
        self,
        stable: Iterable[ModelRef],
        fits: Callable[[ModelRef], DeviceKind | None],
        backends: tuple[str, ...],
        device: DeviceKind | None,
    ) -> WitnessAnswer:
        """Loads the witness and has it answer once.

        Args:
            stable: packages that Triton holds and that serve callers. The smallest is tried, but
                for those that run Python of their users' own.
            fits: raises ``RegistryError`` if there is no room for another copy; returns where the
                package runs.
            backends: that may run an ONNX graph, in the order in which they are tried.
            device: where the tiny graph runs.

        Returns:
            ``UNTRIED`` if neither a package nor Triton can be had now.
        """
        for ref in await asyncio.to_thread(self._smallest, stable):
            try:
                kind = await asyncio.to_thread(fits, ref)
                package = await asyncio.to_thread(self._packages.fetch, ref)
                manifest = Manifest.model_validate_json((package / MANIFEST).read_bytes())
            except (RegistryError, OSError, ValueError) as error:
                log.info("version %s of %s is no witness now: %s", ref.version, ref.model, error)
                continue
            return await self._ask_package(package, manifest, backends, kind)
        rows = {"input_ids": np.ones((1, 4), np.int64)}
        return await self._ask(
            backends,
            lambda backend: self._placement.place_witness(NAME, backend, device),
            lambda: self._triton.infer(NAME, rows, PROBE),
        )

    def _smallest(self, stable: Iterable[ModelRef]) -> list[ModelRef]:
        """The smallest package, if there is any; blocks."""
        sizes = {}
        for ref in stable:
            try:
                manifest = self._packages.manifest(ref)
            except RegistryError:
                continue
            if manifest.pyfunc is None:
                sizes[ref] = sum(file.bytes for file in manifest.files.values())
        return sorted(sizes, key=lambda ref: (sizes[ref], ref.package))[:1]

    async def _ask_package(
        self, package: Path, manifest: Manifest, backends: tuple[str, ...], kind: DeviceKind | None
    ) -> WitnessAnswer:
        usable = backends if CONFIG_ONNXRUNTIME in manifest.files else (BACKEND_PYTHON,)
        rows = warmup.batch(manifest, manifest.length_buckets[0], 1)
        return await self._ask(
            usable,
            lambda backend: self._placement.place(NAME, package, backend, _ONE_COPY, kind),
            lambda: self._triton.infer(NAME, rows, PROBE),
        )

    async def _ask(
        self,
        backends: tuple[str, ...],
        place: Callable[[str], Overrides],
        infer: Callable[[], Awaitable[object]],
    ) -> WitnessAnswer:
        try:
            await self._load(backends, place)
            await infer()
        except TritonRefusedError as error:
            log.warning("a package that is known to be good is refused too: %s", error)
            return WitnessAnswer.REFUSED
        except TritonUnavailableError as error:
            log.warning("a package that is known to be good can't be loaded now: %s", error)
            return WitnessAnswer.UNTRIED
        except (OSError, ValueError) as error:
            log.warning("a package that is known to be good can't be placed: %s", error)
            return WitnessAnswer.UNTRIED
        else:
            return WitnessAnswer.LOADS
        finally:
            await self._leave()

    async def _load(self, backends: tuple[str, ...], place: Callable[[str], Overrides]) -> None:
        for position, backend in enumerate(backends, start=1):
            overrides = await asyncio.to_thread(place, backend)
            try:
                await self._triton.load(NAME, overrides)
            except BackendMissingError:
                if position == len(backends):
                    raise
            else:
                return

    async def _leave(self) -> None:
        try:
            await self._triton.unload(NAME)
        except (TritonRefusedError, TritonUnavailableError) as error:
            log.info("%s can't be unloaded: %s", NAME, error)
        try:
            await asyncio.to_thread(self._placement.remove, NAME)
        except OSError as error:
            log.warning("the files of %s can't be removed: %s", NAME, error)

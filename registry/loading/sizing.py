"""Runs each package in as many copies, of as many threads each, as suit its Triton.

If more than one way is open on CPUs, a few batches of each decide (``registry.loading.splits``),
once for each package: what was decided stays while the cores and the wishes do. Costs of batches
are always those of the way in which the package runs. It knows nothing of endpoints, failures and
reports.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from contracts.loading import CostPoint, DeviceKind, LoadedModel
from contracts.manifest import MODEL_ONNX, EngineKind, Manifest
from registry.errors import TritonRefusedError, TritonUnavailableError
from registry.loading import splits, warmup
from registry.loading.desired import Want
from registry.loading.placement import Placement
from registry.loading.splits import InstanceSplit
from registry.loading.triton_client import ModelInstances, Triton

log = logging.getLogger(__name__)

Settled = tuple[ModelInstances, tuple[CostPoint, ...]]


class ModelSizer:
    """The copies and threads of one Triton's models.

    Args:
        triton: runs them.
        placement: writes their configuration.
        cores: that Triton may use.
        memory_bytes: that Triton may use.
        auto_instances: copies on CPUs if the endpoint names no number; 0 to measure.
        most_instances: copies of a package that the operator lets run at once; None: any number.
        measure_seconds: time to measure what a package's batches cost.
        clock: seconds, for measuring.
    """

    def __init__(
        self,
        triton: Triton,
        placement: Placement,
        *,
        cores: int,
        memory_bytes: int,
        auto_instances: int,
        measure_seconds: float,
        most_instances: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._triton = triton
        self._placement = placement
        self._cores = cores
        self._memory_bytes = memory_bytes
        self._auto_instances = auto_instances
        self._most_instances = most_instances or splits.MOST_COPIES
        self._measure_seconds = measure_seconds
        self._clock = clock
        self._alone: set[str] = set()  # names of those that run as one copy, whatever is asked

    def differs(self, want: Want, running: ModelInstances, loaded: LoadedModel) -> bool:
        """Whether a package runs otherwise than is wanted, or than was measured."""
        if running.on_gpu:
            copies = self._copies_on_gpu(want)
            return (running.copies, running.instances) != (copies, loaded.instances)
        return _split(running) != self._find_measured_split(want, loaded)

    def first(
        self, want: Want, manifest: Manifest, known: LoadedModel | None, *, on_gpu: bool | None
    ) -> InstanceSplit:
        """How a package is loaded at first.

        With one copy until Triton has said what it runs models on, by the first that it holds: a
        GPU must not be filled for a moment.

        Args:
            want: the package.
            manifest: of it.
            known: how it ran and was measured before, if it did.
            on_gpu: whether this Triton runs models on GPUs; None while that is not known.
        """
        self._note_alone(want, manifest)
        if on_gpu is not False:
            return InstanceSplit(self._copies_on_gpu(want), self._cores if on_gpu is None else 1)
        return self._find_measured_split(want, known) or self._candidates(want, manifest)[0]

    async def settle(
        self,
        want: Want,
        running: ModelInstances,
        package: Path,
        manifest: Manifest,
        known: LoadedModel | None,
    ) -> Settled:
        """Runs a package that Triton holds as it should be run.

        It answers meanwhile as it was. Costs that are known still hold if it runs as they were
        measured.

        Returns:
            How it runs, and what its batches cost.

        Raises:
            TritonRefusedError: Triton takes no way of running it, or it fails.
            TritonUnavailableError: Triton went away.
        """
        self._note_alone(want, manifest)
        if running.on_gpu:
            split = InstanceSplit(self._copies_on_gpu(want), running.threads)
        elif suiting := self._find_measured_split(want, known):
            split = suiting
        else:
            known = None
            split, running = await self._choose_split(want, running, package, manifest)
        name = want.ref.triton_model
        if _split(running) != split:
            running = await self._rerun(split, name, package, running)
        infer = partial(self._triton.infer, name)
        if known is not None and known.instances == running.instances:
            await warmup.warm_up(infer, manifest, running.instances)
            return running, known.costs
        costs = await warmup.measure(
            infer,
            manifest,
            copies=running.instances,
            budget_seconds=self._measure_seconds,
            on_gpu=running.on_gpu,
            clock=self._clock,
        )
        return running, costs

    async def read_instances(self, name: str) -> ModelInstances:
        """How Triton runs a model that was just loaded.

        Raises:
            TritonUnavailableError: Triton was restarted meanwhile.
        """
        held = await self._triton.held((name,))
        if name not in held:
            raise TritonUnavailableError(f"Triton lost {name} while it was loaded")
        return held[name]

    def _note_alone(self, want: Want, manifest: Manifest) -> None:
        """A packed engine joins what all gateways send, so that a second copy would halve that."""
        if manifest.engine is EngineKind.PACKED:
            self._alone.add(want.ref.triton_model)

    def _copies_on_gpu(self, want: Want) -> int:
        return 1 if want.ref.triton_model in self._alone else want.instances or 1

    def _asked_copies(self, want: Want) -> int | None:
        if want.ref.triton_model in self._alone:
            return 1
        return want.instances or min(self._auto_instances, self._most_instances) or None

    def _find_measured_split(self, want: Want, known: LoadedModel | None) -> InstanceSplit | None:
        """The split in which a package was measured, if it is still one that is wanted."""
        if known is None:
            return None
        split = InstanceSplit(known.instances, known.threads)
        if want.instances is None and split.copies > self._most_instances:
            return None
        return split if splits.suits(split, self._cores, self._asked_copies(want)) else None

    def _candidates(self, want: Want, manifest: Manifest) -> tuple[InstanceSplit, ...]:
        if manifest.generation or manifest.pyfunc or manifest.engine is EngineKind.PACKED:
            # Copies can't join what is in one of them, so there is one; and each copy of a pyfunc
            # has packages of its own in memory.
            copies = self._asked_copies(want) or 1
            return (InstanceSplit(copies, max(1, self._cores // copies)),)
        graph = manifest.files.get(MODEL_ONNX)
        held = splits.most_copies(graph.bytes if graph else 0, self._memory_bytes)
        most = min(held, self._most_instances)
        return splits.candidates(self._cores, most, self._asked_copies(want))

    async def _choose_split(
        self, want: Want, running: ModelInstances, package: Path, manifest: Manifest
    ) -> tuple[InstanceSplit, ModelInstances]:
        """The split that does most work, by a few batches of each; and how the package runs now.

        A split that Triton refuses, for instance for want of memory, is left out.
        """
        name = want.ref.triton_model
        order = self._candidates(want, manifest)
        if len(order) == 1:
            return order[0], running
        infer = partial(self._triton.infer, name)
        rows = await warmup.usual_rows(infer, manifest, self._clock)
        # What runs already comes first: it needs no load.
        order = tuple(sorted(order, key=lambda split: split != _split(running)))
        found: dict[InstanceSplit, float] = {}
        for split in order:
            try:
                if _split(running) != split:
                    running = await self._rerun(split, name, package, running)
                found[split] = await warmup.throughput(
                    infer, manifest, copies=running.instances, rows=rows, clock=self._clock
                )
            except TritonRefusedError as error:
                if split == order[-1] and not found:
                    raise
                log.info("%s is not run as %d copies of %d threads: %s", name, *split, error)
        best = splits.best(found)
        told = ", ".join(f"{each.copies} x {each.threads}: {found[each]:.0f}" for each in found)
        log.info("%s runs as %d copies of %d threads; rows a second: %s", name, *best, told)
        return best, running

    async def _rerun(
        self, split: InstanceSplit, name: str, package: Path, running: ModelInstances
    ) -> ModelInstances:
        device = DeviceKind.GPU if running.on_gpu else DeviceKind.CPU
        resize = self._placement.resize
        overrides = await asyncio.to_thread(resize, name, package, running.backend, split, device)
        await self._triton.load(name, overrides)
        return await self.read_instances(name)


def _split(running: ModelInstances) -> InstanceSplit:
    return InstanceSplit(running.copies, running.threads)

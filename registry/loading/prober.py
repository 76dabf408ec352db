"""Finds a Triton that hangs: it says that it lives, and answers no inference any more.

One row is run on each model every few seconds, as a caller would; a model that keeps refusing is
named in the log and is no reason to restart the others. One that refuses because its process is
gone is loaded again, as Triton starts no other by itself: only if that does not bring a stable one
back is Triton restarted. So is one whose model says that its process lost its GPU, in words of
``contracts/gpu_faults.py``; of Triton's own process, Triton is restarted. No reason is one that is
not stable, whatever it does, nor one that is Python of its users' own and takes too long: what it
does it does to itself. Nor is a Triton that is slow, which runs batches of the model between two
probes that wait in vain: one that hangs runs none, and a restart would only give a busy machine
more to do. It only says what it finds: who restarts Triton is the probe's. A Triton that holds no
stable model is ``load_stall``'s.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from contracts.gpu_faults import ends_process
from contracts.manifest import Manifest
from contracts.model import ModelRef
from registry.errors import (
    ModelProcessGoneError,
    RegistryError,
    TritonRefusedError,
    TritonUnavailableError,
)
from registry.loading import warmup
from registry.loading.triton_client import OF_MODEL, PROBE, Triton

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProberPace:
    """How often it looks, how long it waits, and how often in a row an answer may be missing.

    A model without a process is loaded again ``reloads_allowed`` times in a row.
    """

    every_seconds: float = 15.0
    retry_seconds: float = 2.0
    deadline_seconds: float = 10.0
    failures_allowed: int = 1
    reloads_allowed: int = 10


class _GpuLostError(TritonUnavailableError):
    """Triton's own process can't use its GPU any more, in these ``words``."""

    def __init__(self, words: str) -> None:
        super().__init__(f"the GPU of Triton's process can't be used any more: {words}")
        self.words = words


class Prober:
    """Probes one Triton.

    Args:
        triton: the server.
        stable: the stable models that it should answer for now.
        manifest: reads the manifest of one of them, once; may block.
        pace: how often and how long.
        told: is told why a model refuses, or nothing if it answers; and whether Triton failed it
            twice in a row, as in ``Trouble``.
        gone: is told that a model has no process any more, and has it loaded again; returns false
            if it was told before and has not come to it yet.
        executed: how many batches of a model have been run.
        refused: how many requests each model has failed, by Triton's name of it: if that grows
            it looks at once.
        others: the other models that it holds, such as candidates: Triton never ends for them.
        lost: is told at each look by what words Triton's own process lost its GPU; none if it did
            not.
    """

    def __init__(
        self,
        triton: Triton,
        stable: Callable[[], tuple[ModelRef, ...]],
        manifest: Callable[[ModelRef], Manifest],
        pace: ProberPace | None = None,
        *,
        told: Callable[[ModelRef, str, bool], None] = lambda _ref, _why, _fails: None,
        gone: Callable[[ModelRef], bool] = lambda _ref: True,
        executed: Callable[[str], Awaitable[int]] | None = None,
        refused: Callable[[], Awaitable[Mapping[str, int]]] | None = None,
        others: Callable[[], tuple[ModelRef, ...]] = tuple,
        lost: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self._triton = triton
        self._stable = stable
        self._manifest = manifest
        self._pace = pace or ProberPace()
        self._told = told
        self._gone = gone
        self._executed = executed
        self._refused = refused
        self._others = others
        self._lost = lost
        self._refused_before: Mapping[str, int] = {}
        self._refusals: dict[str, int] = {}  # of models that Triton fails, in a row
        self._reloads: dict[str, int] = {}  # of models without a process, in a row
        self._executed_before: dict[str, int] = {}  # of models whose last probe waited in vain
        self._manifests: dict[str, Manifest] = {}
        self._failures = 0
        self._fault = ""

    def fault(self) -> str:
        """Why Triton should be restarted; empty if it answers."""
        return self._fault if self._failures > self._pace.failures_allowed else ""

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await self.probe()
            await self._wait()

    async def _wait(self) -> None:
        """Until the next look is due, or a model has failed more requests than before."""
        pace = self._pace
        loop = asyncio.get_running_loop()
        due = loop.time() + pace.every_seconds
        await self._refuses_more()  # what the look itself has seen
        while (left := due - loop.time()) > 0:
            await asyncio.sleep(min(pace.retry_seconds, left))
            unsure = self._failures or self._reloads or 1 in self._refusals.values()
            if unsure or await self._refuses_more():
                return

    async def _refuses_more(self) -> bool:
        """Whether a model has failed requests since the last time this was asked."""
        if self._refused is None:
            return False
        try:
            counts = await self._refused()
        except (TritonRefusedError, TritonUnavailableError):
            return False  # the next look finds out
        before, self._refused_before = self._refused_before, counts
        known = {ref.triton_model for ref in (*self._stable(), *self._others())}
        return any(counts[name] > before.get(name, 0) for name in counts.keys() & known)

    async def probe(self) -> None:
        """Asks whether it lives, and runs one row on each model."""
        lost = ""
        here = {ref.triton_model for ref in (*self._stable(), *self._others())}
        self._refusals = {name: count for name, count in self._refusals.items() if name in here}
        self._manifests = {name: each for name, each in self._manifests.items() if name in here}
        try:
            await self._triton.held(())
            for ref in self._stable():
                await self._probe_model(ref)
            for ref in self._others():
                await self._probe_other(ref)
        except TritonUnavailableError as error:
            if self._failures == 0:
                log.warning("%s", error)
            self._failures += 1
            self._fault = str(error)
            lost = error.words if isinstance(error, _GpuLostError) else ""
        else:
            self._failures = 0
        self._lost(lost)

    async def _probe_other(self, ref: ModelRef) -> None:
        """Runs one row on a model that is not stable; what is wrong with it is told."""
        try:
            await self._probe_model(ref)
        except TritonUnavailableError as error:  # if Triton is away, the next look finds it
            log.warning("%s", error)
            self._told(ref, str(error), False)

    async def _probe_model(self, ref: ModelRef) -> None:
        """Runs one row; a refusal is an answer, as long as there is a process that could answer.

        Raises:
            TritonUnavailableError: there was none, or not in time, or there is none to come.
        """
        name, seconds = ref.triton_model, self._pace.deadline_seconds
        own_code = False
        try:
            manifest = await self._manifest_of(ref)
            own_code = manifest.pyfunc is not None
            tensors = warmup.batch(manifest, manifest.length_buckets[0], 1)
            async with asyncio.timeout(seconds):
                await self._triton.infer(name, tensors, PROBE)
            self._told(ref, "", False)
            self._refusals.pop(name, None)
            self._executed_before.pop(name, None)
            self._reloads.pop(name, None)
        except TimeoutError:
            sentence = f"Triton answered no inference on {name} within {seconds:g} s"
            if not own_code and await self._runs_others(name):
                log.warning("%s, and runs others: it is slow", sentence)
                return
            if not own_code:
                raise TritonUnavailableError(sentence) from None
            log.warning("%s", sentence)
            self._told(ref, f"it answered no inference within {seconds:g} s", False)
        except TritonUnavailableError:
            raise
        except ModelProcessGoneError as error:
            self._reload(ref, error)
        except TritonRefusedError as error:
            log.warning("%s refuses an inference: %s", name, error)
            said = str(error).removeprefix(OF_MODEL)
            count = self._refusals[name] = self._refusals.get(name, 0) + 1
            self._told(ref, said, count > 1 and not own_code)
            if ends_process(said) and not own_code:
                if said == str(error):
                    raise _GpuLostError(said) from error
                self._reload(ref, error)
        except (RegistryError, OSError, ValueError) as error:
            log.info("%s can't be examined: %s", name, error)

    def _reload(self, ref: ModelRef, error: TritonRefusedError) -> None:
        """Has a model loaded again, or gives up; a loader that loads another one comes to it later.

        Raises:
            TritonUnavailableError: it was asked for so often, and the model still has no process.
        """
        name = ref.triton_model
        reloads = self._reloads.get(name, 0)
        if reloads >= self._pace.reloads_allowed:
            raise TritonUnavailableError(f"{name} has no process any more: {error}")
        if self._gone(ref):
            self._reloads[name] = reloads + 1

    async def _runs_others(self, name: str) -> bool:
        """Whether batches of a model were run since its last probe that waited in vain."""
        if self._executed is None:
            return False
        count = await self._executed(name)
        before = self._executed_before.get(name)
        self._executed_before[name] = count
        return before is not None and count != before

    async def _manifest_of(self, ref: ModelRef) -> Manifest:
        known = self._manifests.get(ref.triton_model)
        if known is None:
            known = await asyncio.to_thread(self._manifest, ref)
            self._manifests[ref.triton_model] = known
        return known

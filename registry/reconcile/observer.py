"""Looks at an endpoint's surroundings for the controller: versions, packages, conversions.

It keeps what it saw of the store for a moment, so that a
pass is cheap, and remembers in the store which conversion made which package. It decides nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from contracts.endpoint import EndpointSpec, ModelEndpoint
from contracts.loading import DeviceKind
from contracts.model import ModelRef
from contracts.rollout import VectorSpace
from contracts.status_events import rejection_of
from registry.conversions.index import ConversionIndex, options_digest
from registry.conversions.messages import (
    Conditions,
    ConversionFailure,
    ConversionProgress,
    Package,
    PublishedPackage,
    Signature,
)
from registry.conversions.running import ConversionJobs
from registry.mlflow.model_registry import MlflowSnapshot, RegisteredVersion
from registry.packages.gc import refs_of
from registry.packages.store import (
    PackageDamagedError,
    PackageMissingError,
    StoreError,
    StoreUnavailableError,
)
from registry.reconcile.plan import ObservedState, PlannedVersion, choose_version, find_version
from registry.reconcile.store_guard import StoreTimeoutGuard

log = logging.getLogger(__name__)

_Numbered = tuple[
    tuple[RegisteredVersion, ...], EndpointSpec, DeviceKind, tuple[PlannedVersion, ...]
]
_FOUND_FRESH_SECONDS = 60.0  # of an index entry that was there
_MISSING_FRESH_SECONDS = 2.0  # of one that was not
_MOST_KNOWN = 20_000  # more than all endpoints ask for at once; versions come and go for ever
_PROVEN_FRESH_SECONDS = 300.0  # of a package that was read whole and is as it should be


class EndpointObserver:
    """One for all endpoints; owned by the controller."""

    def __init__(
        self,
        conditions: Conditions,
        *,
        index: ConversionIndex,
        jobs: ConversionJobs,
        now: Callable[[], float],
        store_guard: StoreTimeoutGuard | None = None,
        most_known: int = _MOST_KNOWN,
    ) -> None:
        self._most_known = most_known
        self._conditions = conditions
        self._index = index
        self._jobs = jobs
        self._now = now
        self._store_guard = store_guard or StoreTimeoutGuard(now)
        self._known: dict[str, tuple[Package | None, float]] = {}
        self._signatures: dict[str, tuple[Signature | None, float]] = {}
        self._numbered: dict[str, _Numbered] = {}
        self._broken: set[ModelRef] = set()  # proven damaged, and not published again yet
        self._proofs: dict[ModelRef, asyncio.Task[bool]] = {}
        self._proven_at: dict[ModelRef, float] = {}
        # One whole package at a time, beside the threads of passes: a bad disk may doubt them all.
        self._reader = ThreadPoolExecutor(1, "proof")

    def note_damaged(self, refs: Iterable[ModelRef]) -> None:
        """Takes in which packages loaders say to be damaged; each is read before it is believed.

        What is damaged or missing in the store is forgotten, so that its version is converted
        again and its package made whole.
        """
        for ref in refs:
            done = self._proofs.get(ref)
            if done is not None and done.done():
                del self._proofs[ref]
                if done.result():
                    self._broken.add(ref)
                self._proven_at[ref] = self._now()
            elif done is None and ref not in self._broken:
                last = self._proven_at.get(ref)
                if last is None or self._now() - last >= _PROVEN_FRESH_SECONDS:
                    self._proofs[ref] = asyncio.create_task(self._is_broken(ref), name="proof")

    async def prove(self, ref: ModelRef) -> None:
        """Reads a package, and takes in whether it is damaged or missing."""
        if await self._is_broken(ref):
            self._broken.add(ref)

    async def _is_broken(self, ref: ModelRef) -> bool:
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._reader, self._index.prove, ref)
        except (PackageDamagedError, PackageMissingError) as error:
            log.warning("it is to be converted again: %s", error)
            return True
        except StoreError as error:
            log.warning("whether a package is damaged can't be seen now: %s", error)
        return False

    async def observe(
        self,
        endpoint: ModelEndpoint,
        snapshot: MlflowSnapshot | None,
        device: DeviceKind = DeviceKind.CPU,
        crossing: DeviceKind | None = None,
    ) -> tuple[ObservedState, PlannedVersion | None]:
        """What is, and the version that should be stable."""
        if len(self._known) + len(self._signatures) + len(self._proven_at) >= self._most_known:
            self._known, self._signatures, self._proven_at = {}, {}, {}
        model = snapshot.models.get(endpoint.spec.model) if snapshot else None
        versions = self._versions(endpoint, snapshot, device)
        seen = ObservedState(versions)
        if model is not None:
            seen = replace(seen, aliases=model.aliases, created=model.created)
        if crossing is not None and versions is not None:
            seen = await self._with_move(seen, endpoint, snapshot, crossing)
        if endpoint.status.stable is not None:
            seen = await self._with_stable(seen, endpoint, endpoint.status.stable)
        target = choose_version(endpoint.spec, endpoint.status, seen)
        if target is not None:
            seen = await self._with_package(seen, target, endpoint)
        return self._with_job(seen, target, endpoint), target

    def forget(self, endpoint: str) -> None:
        """Drops what was kept of an endpoint that is gone."""
        self._numbered.pop(endpoint, None)

    async def _with_move(
        self,
        seen: ObservedState,
        endpoint: ModelEndpoint,
        snapshot: MlflowSnapshot | None,
        device: DeviceKind,
    ) -> ObservedState:
        """Adds the stable version for another kind of device, as far as it can be made."""
        stable, spec = endpoint.status.stable, endpoint.spec
        found = snapshot.versions.get(spec.model, ()) if snapshot is not None else ()
        number = "" if stable is None else stable.version
        registered = next((item for item in found if item.number == number), None)
        if registered is None:
            return replace(seen, move_fault=f"MLflow does not list version {number} any more")
        options = options_digest(spec, registered, self._conditions, device=device)
        move = PlannedVersion(number, options, device=device)
        rejection = rejection_of(endpoint.status, number, options)
        if rejection is not None:
            return replace(seen, move_fault=rejection.reason or "it was rejected there")
        return await self._with_package(replace(seen, move=move), move, endpoint)

    async def _with_stable(
        self, seen: ObservedState, endpoint: ModelEndpoint, ref: ModelRef
    ) -> ObservedState:
        """Adds what callers of the stable version rely on, as far as it can be known."""
        try:
            stable = await self._signature(ref)
        except StoreError as error:
            return replace(seen, fault=str(error))
        if stable is not None:
            return replace(seen, stable=stable)
        seen = replace(seen, stable_gone=True)
        version = find_version(seen, ref.version)
        if version is None:
            return seen
        seen = await self._with_package(seen, version, endpoint)
        remade = seen.packages.get(version.options)
        if remade is None:
            return seen
        return replace(seen, stable=remade.signature, stable_gone=remade.ref != ref)

    async def _with_package(
        self, seen: ObservedState, version: PlannedVersion, endpoint: ModelEndpoint
    ) -> ObservedState:
        """Returns what is seen with what the store says about this version."""
        if version.options in seen.packages:
            return seen
        this = (endpoint.spec.model, version.number)
        named = tuple(ref for ref in refs_of(endpoint.status) if (ref.model, ref.version) == this)
        try:
            package = await self._package(version.options, named)
        except StoreError as error:
            return replace(seen, fault=str(error))
        if package is None:
            return seen
        return replace(seen, packages={**seen.packages, version.options: package})

    def _with_job(
        self, seen: ObservedState, target: PlannedVersion | None, endpoint: ModelEndpoint
    ) -> ObservedState:
        """Returns what is seen with what the running conversions say about the target."""
        options = target.options if target else ""
        word = self._jobs.states.get(options)
        jobs = {options: word} if isinstance(word, ConversionProgress | ConversionFailure) else {}
        asked = "" if seen.fault or options in seen.packages or self._rests(endpoint) else options
        busy = self._jobs.waits_for(endpoint.name, asked, endpoint.tenant)
        return replace(seen, jobs=jobs, busy=busy)

    def _rests(self, endpoint: ModelEndpoint) -> bool:
        """Whether it begins no conversion now, whatever there is to convert."""
        rollout, candidate = endpoint.status.rollout, endpoint.status.candidate
        retry_at = candidate.retry_at if candidate is not None else None
        rolls_out = rollout is not None and rollout.promoted_at is None
        return rolls_out or (retry_at or 0.0) > self._now()

    def _versions(
        self, endpoint: ModelEndpoint, snapshot: MlflowSnapshot | None, device: DeviceKind
    ) -> tuple[PlannedVersion, ...] | None:
        """The model's versions under the endpoint's options; None until they were read."""
        model = endpoint.spec.model
        if snapshot is None or snapshot.unfollowed or model in snapshot.doubted:
            return None
        if model in snapshot.models and model not in snapshot.versions:
            return None
        found = snapshot.versions.get(model, ())
        kept = self._numbered.get(endpoint.name)
        if kept is None or kept[0] is not found or kept[1:3] != (endpoint.spec, device):
            versions = tuple(self._version(endpoint.spec, item, device) for item in found)
            kept = self._numbered[endpoint.name] = (found, endpoint.spec, device, versions)
        return kept[3]

    def _version(
        self, spec: EndpointSpec, version: RegisteredVersion, device: DeviceKind
    ) -> PlannedVersion:
        options = options_digest(spec, version, self._conditions, device=device)
        claims = version.tags.get("headrace.space") == VectorSpace.SAME
        return PlannedVersion(version.number, options, device, claims)

    async def _package(self, options: str, named: tuple[ModelRef, ...]) -> Package | None:
        """The package of a version under these options, if it was converted before."""
        word = self._jobs.states.get(options)
        if isinstance(word, PublishedPackage):
            put = partial(self._index.put, options, word.ref)
            package = await self._store_guard.ask(f"put {options}", put)
            self._store_guard.drop(f"get {options}")  # of before there was a package
            self._known[options] = (package, self._now())
            self._broken.discard(word.ref)
            self._jobs.forget(options)
            return package
        found, at = self._known.get(options, (None, 0.0))
        if self._now() - at >= (_FOUND_FRESH_SECONDS if found else _MISSING_FRESH_SECONDS):
            try:
                get = partial(self._index.get, options, named)
                found = await self._store_guard.ask(f"get {options}", get)
            except StoreUnavailableError:
                if found is None:
                    raise
                return found  # it was there
            self._known[options] = (found, self._now())
        if found is not None and found.ref in self._broken:
            await self._store_guard.ask(f"forget {options}", partial(self._index.forget, options))
            self._known[options] = (None, self._now())
            return None
        return found

    async def _signature(self, ref: ModelRef) -> Signature | None:
        """What callers of a package rely on; None if the store lacks the package."""
        if ref in self._broken:
            return None
        known, at = self._signatures.get(ref.package, (None, 0.0))
        if known is None and self._now() - at >= _MISSING_FRESH_SECONDS:
            try:
                signature = partial(self._index.signature, ref)
                known = await self._store_guard.ask(f"signature {ref.package}", signature)
            except (PackageMissingError, PackageDamagedError) as error:
                if ref.package not in self._signatures:
                    log.warning("version %s serves without a package: %s", ref.version, error)
            self._signatures[ref.package] = (known, self._now())
        return known

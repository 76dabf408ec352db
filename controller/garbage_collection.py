"""Once a day, has packages that endpoints name read whole, and removes those that nobody needs.

The first is how damage is found while every Triton has a copy of its own, so that none says it. The
second is done only if it is told how many to keep. Run beside the controller's loop by its main: in
a cluster nobody else does.

``registry.packages.gc`` says what is needless; here is when that may be believed. It never holds up
a pass and never ends the controller: what goes wrong is logged, and tried again at the next time.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from itertools import chain, repeat

from contracts.endpoint import ModelEndpoint
from contracts.manifest import Manifest
from contracts.model import ModelRef
from registry import metrics
from registry.packages import gc
from registry.packages.store import StoreError
from registry.stores.endpoints import EndpointStore

log = logging.getLogger(__name__)

FIRST_SECONDS = 600.0  # a controller that is restarted again and again never removes anything
EVERY_SECONDS = 86400.0
MOST_PROVEN = 20  # packages a time: each is read whole


class GarbageCollection:
    """The controller's collection of packages.

    The newest packages of a model do not cover one that was published just now: it may be of an
    older version that is pinned, or of the same version under other options. So only what two looks
    in a row, minutes or a day apart, found needless is removed: by the second one its endpoint has
    named it.

    Args:
        keep: how many of the newest packages of each model stay; below 1 none is ever removed.
        store: the packages.
        open_endpoints: opens the endpoints' store again, one that asks instead of watching: a watch
            goes on with what it last knew, and that is not enough to remove anything by.
        is_converting: whether a conversion runs, or has ended and was not taken note of.
        foreign: why the store is another release's; empty if it is not.
        prove: reads a package, and has it converted again if it is damaged.
        wait: sleeps for the given number of seconds.
    """

    def __init__(
        self,
        keep: int,
        store: gc.Packages,
        open_endpoints: Callable[[], EndpointStore],
        is_converting: Callable[[], bool],
        *,
        foreign: Callable[[], str],
        prove: Callable[[ModelRef], Awaitable[None]],
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._keep = keep
        self._stopped = threading.Event()
        self._store = _StoppableStore(store, self._stopped)
        self._open_endpoints = open_endpoints
        self._is_converting = is_converting
        self._foreign = foreign
        self._prove = prove
        self._proven = ""  # the last one
        self._wait = wait
        self._needless: frozenset[str] = frozenset()  # at the last look

    async def run(self) -> None:
        """Looks until it is cancelled."""
        try:
            for seconds in chain((FIRST_SECONDS, FIRST_SECONDS), repeat(EVERY_SECONDS)):
                await self._wait(seconds)
                await self._safe_look()
        finally:
            self._stopped.set()

    async def _safe_look(self) -> None:
        try:
            await self._prove_some()
            if self._keep >= 1:
                await asyncio.to_thread(self._look)
        except (_PostponedError, StoreError, OSError) as error:
            log.warning("packages are not looked at until the next time: %s", error)
        except Exception:
            log.exception("packages are not looked at until the next time: the collection failed")

    async def _prove_some(self) -> None:
        """Has the next of what endpoints name read, in the order of their names."""
        endpoints = await asyncio.to_thread(self._endpoints)
        named = {ref.package: ref for each in endpoints for ref in gc.refs_of(each.status)}
        later = [package for package in named if package > self._proven]
        for package in sorted(later or named)[:MOST_PROVEN]:
            await self._prove(named[package])
            self._proven = package

    def _look(self) -> None:
        """Removes what this look and the last one found needless."""
        if reason := self._foreign():
            raise _PostponedError(reason)
        found = gc.needless(self._store, self._endpoints(), keep=self._keep)
        found += self._store.leftovers()
        before, self._needless = self._needless, frozenset(found)
        for package in found:
            if package in before:
                self._remove(package)

    def _remove(self, package: str) -> None:
        """Removes a package, unless it is wanted again by now: listing them all takes its time."""
        if self._is_converting():  # it may be about to publish this one again
            raise _PostponedError("a conversion is on")
        if package in gc.list_named(self._endpoints()):
            return
        self._store.delete(package)
        metrics.PACKAGES_REMOVED.inc()
        log.info("removed the package %s, which nothing needs", package)

    def _endpoints(self) -> tuple[ModelEndpoint, ...]:
        store = self._open_endpoints()
        endpoints = store.list()
        if store.unreadable:
            names = ", ".join(sorted(store.unreadable))
            raise _PostponedError(f"the endpoint of {names} can't be read")
        if not endpoints:  # rather looked for in the wrong place, or about to be made again
            raise _PostponedError("there is no endpoint")
        return endpoints


class _PostponedError(Exception):
    """Nothing may be removed now, and why."""


class _StoppableStore:
    """A store that is asked nothing more after the end: a process waits for its threads."""

    def __init__(self, store: gc.Packages, stopped: threading.Event) -> None:
        self._store = store
        self._stopped = stopped

    def packages(self) -> list[str]:
        self._refuse_after_end()
        return self._store.packages()

    def manifest(self, package: str) -> Manifest:
        self._refuse_after_end()
        return self._store.manifest(package)

    def leftovers(self) -> list[str]:
        self._refuse_after_end()
        return self._store.leftovers()

    def delete(self, package: str) -> None:
        self._refuse_after_end()
        self._store.delete(package)

    def _refuse_after_end(self) -> None:
        if self._stopped.is_set():
            raise _PostponedError("the controller ends")

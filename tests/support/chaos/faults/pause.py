"""SIGSTOP for a while: a process that is there, holds its ports and does nothing.

A package store that hangs so takes requests and answers none.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from signal import SIGCONT, SIGSTOP

from chaos.faults.kill import away
from chaos.schedule import UP
from chaos.world import STUB, NotHereError, World, signal_process


def targets(world: World) -> tuple[str, ...]:
    """Every process that others wait for."""
    return (*sorted(world.services), STUB, UP)


def stores(world: World) -> tuple[str, ...]:
    """The package store, where it is a server."""
    return () if world.store is None else ("store",)


@contextmanager
def paused(world: World, target: str) -> Iterator[frozenset[str]]:
    """Stops a process, and lets it go on unless it was ended meanwhile."""
    with _stopped(world.pid(target)):
        # Without `up` everything else goes on.
        yield frozenset() if target == UP else away(target)


@contextmanager
def hung(world: World, target: str) -> Iterator[frozenset[str]]:
    """Stops the package store's process for a while."""
    if world.store is None:
        raise NotHereError(f"packages are in no {target} that can hang")
    with _stopped(world.store()):
        yield frozenset()


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    signal_process(pid, SIGSTOP)
    try:
        yield
    finally:
        with suppress(NotHereError):
            signal_process(pid, SIGCONT)

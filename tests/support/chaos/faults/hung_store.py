"""A package store that takes requests and answers none."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from signal import SIGCONT, SIGSTOP

from chaos.world import NotHereError, World, signal_process


def targets(world: World) -> tuple[str, ...]:
    """The store, where it is a server."""
    return () if world.store is None else ("store",)


@contextmanager
def hung(world: World, target: str) -> Iterator[frozenset[str]]:
    """Stops the store's process for a while."""
    if world.store is None:
        raise NotHereError(f"packages are in no {target} that can hang")
    pid = world.store()
    signal_process(pid, SIGSTOP)
    try:
        yield frozenset()
    finally:
        with suppress(NotHereError):
            signal_process(pid, SIGCONT)

"""SIGSTOP for a while: a process that is there, holds its ports and does nothing."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from signal import SIGCONT, SIGSTOP

from chaos.faults.kill import away
from chaos.schedule import UP
from chaos.world import STUB, NotHereError, World, signal_process


def targets(world: World) -> tuple[str, ...]:
    """Every process that others wait for."""
    return (*sorted(world.services), STUB, UP)


@contextmanager
def paused(world: World, target: str) -> Iterator[frozenset[str]]:
    """Stops a process, and lets it go on unless it was ended meanwhile."""
    pid = world.signal(target, SIGSTOP)
    try:
        # Without `up` everything else goes on.
        yield frozenset() if target == UP else away(target)
    finally:
        with suppress(NotHereError):
            signal_process(pid, SIGCONT)

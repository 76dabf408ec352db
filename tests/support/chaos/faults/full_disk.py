"""A disk without room: the file system of the home is filled to its last block."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chaos.world import NotHereError, World

BALLAST = "ballast"
SMALLEST_BYTES = 4096


def targets(world: World) -> tuple[str, ...]:
    """The disk, where the home has one of its own."""
    return () if world.disk is None else ("disk",)


@contextmanager
def filled(world: World, target: str) -> Iterator[frozenset[str]]:
    """Takes all room, and gives it back."""
    if world.disk is None:
        raise NotHereError(f"the home has no {target} of its own")
    ballast = world.disk / BALLAST
    try:
        take_all(ballast)
        yield frozenset()
    finally:
        ballast.unlink(missing_ok=True)


def take_all(ballast: Path) -> None:
    """Lets a file grow until not a block is left; writes nothing."""
    with ballast.open("wb") as file:
        size, step = 0, 1 << 30
        while step >= SMALLEST_BYTES:
            try:
                os.posix_fallocate(file.fileno(), size, step)
            except OSError:
                step //= 2
            else:
                size += step
        with suppress(OSError):
            os.fsync(file.fileno())

"""Ctrl-C, and ``headrace up`` again on the same home."""

from collections.abc import Iterator
from contextlib import contextmanager

from chaos.world import World


@contextmanager
def restarted(world: World, target: str) -> Iterator[frozenset[str]]:
    """Stops the whole stack in order, and starts it again."""
    status = world.stack.stop()
    assert status == 0, f"{target}: headrace up ended with status {status}"
    yield frozenset({"stack"})
    world.start()

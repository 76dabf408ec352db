"""A Triton that lives, says that it is ready, and does one thing wrongly (``sick_triton``)."""

from collections.abc import Iterator
from contextlib import contextmanager

from sick_triton import Sickness

from chaos.schedule import Kind
from chaos.world import World


def targets(world: World) -> tuple[str, ...]:
    """Every Triton that stands behind a proxy."""
    return tuple(sorted(world.wards))


@contextmanager
def made(kind: Kind, world: World, target: str) -> Iterator[frozenset[str]]:
    """Makes a Triton sick, and well again.

    Others of its pool answer in its place. Only of an endpoint that has no other Triton do callers
    lose anything.
    """
    world.wards[target].make_sick(Sickness(kind.value))
    try:
        yield world.only_there(target)
    finally:
        world.wards[target].make_well()

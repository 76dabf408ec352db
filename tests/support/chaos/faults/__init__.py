"""Families of faults. Each strikes on entering its block and undoes it on leaving.

A family is a function from the world and a target to a context manager, which hands over the
services that the fault takes away from callers (see ``outages.Outage``). ``NotHereError``: there
was nothing to strike.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial

from chaos.faults import deaf_port, full_disk, kill, locked_database, lost_log, pause, sick
from chaos.schedule import SICK, Kind
from chaos.world import World

Family = Callable[[World, str], AbstractContextManager[frozenset[str]]]

FAMILIES: Mapping[Kind, Family] = {
    Kind.KILL: kill.killed,
    Kind.PAUSE: pause.paused,
    Kind.RESTART: kill.restarted,
    Kind.DEAF_PORT: deaf_port.held,
    Kind.FULL_DISK: full_disk.filled,
    Kind.HUNG_STORE: pause.hung,
    Kind.LOCKED_DATABASE: locked_database.locked,
    Kind.LOST_LOG: lost_log.lost,
    **{kind: partial(sick.made, kind) for kind in SICK},
}


def targets(world: World) -> dict[Kind, tuple[str, ...]]:
    """What each family can strike in this world."""
    return {
        Kind.KILL: kill.targets(world),
        Kind.PAUSE: pause.targets(world),
        Kind.RESTART: ("stack",),
        Kind.DEAF_PORT: deaf_port.targets(world),
        Kind.FULL_DISK: full_disk.targets(world),
        Kind.HUNG_STORE: pause.stores(world),
        Kind.LOCKED_DATABASE: ("mlflow",),
        Kind.LOST_LOG: lost_log.TARGETS,
        **dict.fromkeys(SICK, sick.targets(world)),
    }

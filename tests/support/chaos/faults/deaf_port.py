"""A port that takes connections and never answers, in the place of a service.

The service is killed and its port taken before it is started again. It is started all the time and
can't listen; whoever uses it connects, and hears nothing.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from signal import SIGCONT, SIGKILL, SIGSTOP

from chaos.faults.kill import away
from chaos.schedule import UP
from chaos.world import NotHereError, World, is_gone, wait_until

BACKLOG = 1024
TAKE_SECONDS = 10.0


def targets(world: World) -> tuple[str, ...]:
    """Every service that others ask."""
    return tuple(sorted(world.ports))


@contextmanager
def held(world: World, target: str) -> Iterator[frozenset[str]]:
    """Holds a service's port."""
    world.signal(UP, SIGSTOP)  # else it would be faster
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        pid = world.signal(target, SIGKILL)
        wait_until(lambda: is_gone(pid), TAKE_SECONDS, every=0.01)
        if not wait_until(lambda: _listens(listener, world.ports[target]), TAKE_SECONDS):
            raise NotHereError(f"the port of {target} could not be taken")
    except BaseException:
        listener.close()
        raise
    finally:
        with suppress(NotHereError):
            world.signal(UP, SIGCONT)
    try:
        yield away(target)
    finally:
        listener.close()


def _listens(listener: socket.socket, port: int) -> bool:
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    except OSError:
        return False
    return True

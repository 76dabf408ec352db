"""``kill -9`` of any process, ``headrace up`` itself among them, and Ctrl-C of the whole stack."""

from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGKILL

from chaos.schedule import UP
from chaos.world import STUB, WATCHDOG, World, is_gone, wait_until

GONE_SECONDS = 30.0  # what a killed `up` had started is ended by its watchdog


def targets(world: World) -> tuple[str, ...]:
    """Every process."""
    return (*sorted(world.services), STUB, UP, WATCHDOG)


@contextmanager
def killed(world: World, target: str) -> Iterator[frozenset[str]]:
    """Kills; what is killed comes back by itself, but for ``up``, which its user starts again."""
    if target != UP:
        world.signal(target, SIGKILL)
        yield away(target)
        return
    services = world.pids()
    world.stack.process.kill()
    world.stack.process.wait()
    try:
        yield frozenset({"stack"})
    finally:
        left = services

        def all_gone() -> bool:
            return all(is_gone(pid) for pid in left.values())

        if not wait_until(all_gone, GONE_SECONDS):
            names = [name for name, pid in left.items() if not is_gone(pid)]
            raise LeftBehindError(f"a killed up left behind: {', '.join(sorted(names))}")
        world.start()


@contextmanager
def restarted(world: World, target: str) -> Iterator[frozenset[str]]:
    """Stops the whole stack in order, and starts it again on the same home."""
    status = world.stack.stop()
    assert status == 0, f"{target}: headrace up ended with status {status}"
    yield frozenset({"stack"})
    world.start()


class LeftBehindError(AssertionError):
    """Processes of a killed ``up`` went on."""


def away(target: str) -> frozenset[str]:
    """What callers lose with a process."""
    if target == STUB:
        return frozenset({"triton"})
    if target == UP:
        return frozenset({"stack"})
    return frozenset({target})

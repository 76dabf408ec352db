"""What Kafka keeps is gone: one topic deleted while all run, or its whole disk while it is down."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from signal import SIGCONT, SIGKILL, SIGSTOP

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from chaos.schedule import UP
from chaos.world import NotHereError, World, is_gone, wait_until
from contracts.events import TOPIC as PREDICTIONS
from contracts.windows import TOPIC as WINDOWS

TARGETS = ("kafka", PREDICTIONS, WINDOWS)
REQUEST_MS = 10_000
END_SECONDS = 10.0


@contextmanager
def lost(world: World, target: str) -> Iterator[frozenset[str]]:
    """Deletes a topic, or all of Kafka's data."""
    if target == "kafka":
        _wipe(world)
    else:
        _delete(world, target)
    yield frozenset()


def _delete(world: World, topic: str) -> None:
    try:
        admin = KafkaAdminClient(bootstrap_servers=world.stack.kafka, request_timeout_ms=REQUEST_MS)
        try:
            admin.delete_topics([topic])
        finally:
            admin.close()
    except KafkaError as error:
        raise NotHereError(f"{topic} could not be deleted: {error}") from error


def _wipe(world: World) -> None:
    world.signal(UP, SIGSTOP)
    try:
        pid = world.signal("kafka", SIGKILL)
        if not wait_until(lambda: is_gone(pid), END_SECONDS, every=0.01):
            raise NotHereError("Kafka did not end")
        shutil.rmtree(world.home / "kafka" / "data")
    finally:
        with suppress(NotHereError):
            world.signal(UP, SIGCONT)

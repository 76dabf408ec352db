"""Which Kafka a command reads."""

from pathlib import Path

from headrace.errors import NotRunningError
from headrace.stack.state import Home, read_record


def bootstrap(root: Path, given: str | None) -> str:
    """``host:port`` of the brokers: as given, or of the stack that runs on a home.

    Raises:
        NotRunningError: nothing was given, and no stack runs there.
    """
    if given:
        return given
    record = read_record(Home(root))
    if record is None:
        raise NotRunningError(
            f"No stack runs on {root}. Start one with headrace up, or name a Kafka with --kafka."
        )
    return record.kafka_bootstrap

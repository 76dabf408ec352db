"""A member of the consumer group on a real Kafka whose answers take longer than a poll."""

from collections.abc import Iterator

import pytest
from fold_world import Topics
from kafka import KafkaAdminClient
from kafka_proxy import SYNC_GROUP, KafkaProxy

from headrace.stack.kafka import KafkaProcess
from stats.kafka_clients import KafkaAddress
from stats.prediction_log import Assignment, GroupSettings, KafkaPredictionLog

pytestmark = pytest.mark.real

POLL_SECONDS = 0.2
SLOW_SECONDS = 3 * POLL_SECONDS
MANY_POLLS = 50


@pytest.fixture
def topics(kafka: KafkaProcess) -> Iterator[Topics]:
    found = Topics(kafka.bootstrap, partitions=2)
    found.make()
    yield found
    found.close()


@pytest.fixture
def proxy(kafka: KafkaProcess) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka.bootstrap) as found:
        yield found


@pytest.fixture
def log(proxy: KafkaProxy, topics: Topics) -> Iterator[KafkaPredictionLog]:
    found = joining(proxy.bootstrap, topics)
    yield found
    found.close()


def joining(bootstrap: str, topics: Topics) -> KafkaPredictionLog:
    """A member that notices new partitions soon."""
    address = KafkaAddress((bootstrap,), options={"metadata_max_age_ms": 200})
    return KafkaPredictionLog(
        address, GroupSettings(f"fold-{topics.suffix}", topic=topics.predictions)
    )


def add_partitions(topics: Topics, count: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=topics.bootstrap)
    admin.create_partitions({topics.predictions: count})
    admin.close()


def assigned(log: KafkaPredictionLog, *partitions: int) -> bool:
    """Whether many polls bring just these partitions."""
    for _ in range(MANY_POLLS):
        polled = log.poll(POLL_SECONDS)
        if isinstance(polled, Assignment) and sorted(polled.places) == list(partitions):
            return True
    return False


def test_a_join_that_ends_between_two_polls_is_taken_up_by_a_later_poll(
    topics: Topics, proxy: KafkaProxy, log: KafkaPredictionLog
) -> None:
    assert assigned(log, 0, 1)
    proxy.slow(SYNC_GROUP, SLOW_SECONDS)
    add_partitions(topics, 4)
    assert assigned(log, 0, 1, 2, 3)

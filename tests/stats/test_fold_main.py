"""The fold role as processes on a real Kafka: killed, joined by others, its topics deleted."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fold_world import FIRST_TIME, Topics, Workers, agree, until
from idle_processes import spinning
from kafka_proxy import SYNC_GROUP, KafkaProxy
from own_servers import KafkaProcess

from contracts.events import EventBatch, encode
from contracts.windows import RANGE_MESSAGES

pytestmark = pytest.mark.real


@pytest.fixture
def topics(kafka: KafkaProcess) -> Iterator[Topics]:
    found = Topics(kafka.bootstrap)
    yield found
    found.close()


@pytest.fixture
def workers(topics: Topics, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(topics, tmp_path)
    yield found
    found.end()


def folded(topics: Topics, workers: Workers) -> None:
    """A worker has folded some messages."""
    topics.make()
    workers.start()
    topics.produce(40)
    topics.until_folded()


def test_two_workers_one_killed_and_a_rebalance_lose_and_double_nothing(
    topics: Topics, workers: Workers
) -> None:
    topics.make()
    first = workers.start()
    topics.produce(200)
    until(lambda: topics.folded() > 100, "the first worker folds nothing")
    second = workers.start()
    topics.produce(200)
    until(lambda: workers.assignments >= 3, "no rebalance")
    topics.produce(200)
    first.kill()
    topics.produce(200)
    topics.until_folded()
    assert topics.events == 20_000
    agree(topics)
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0


def test_a_copy_from_long_ago_is_told_by_a_worker_that_never_read_the_first_one(
    topics: Topics, workers: Workers
) -> None:
    """The first worker keeps what the second one must know, beyond its look-back."""
    topics.make()
    first = encode(topics.batch(0, 5, FIRST_TIME))
    others = [encode(EventBatch("another", n)) for n in range(topics.partitions * 400)]
    topics.send([first, *others[1:]])
    worker = workers.start()
    topics.until_folded()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    workers.start()
    topics.send([first])  # to the same partition, for all before it went round
    topics.until_folded()
    assert sum(record.copies for record in topics.merged().records()) == 1
    agree(topics)


def test_a_worker_that_was_told_to_stop_leaves_nothing_unwritten(
    topics: Topics, workers: Workers
) -> None:
    topics.make()
    topics.produce(RANGE_MESSAGES * topics.partitions + 10)
    worker = workers.start()
    topics.until_folded()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    topics.produce(30)
    workers.start()
    topics.until_folded()
    agree(topics)


def test_a_worker_whose_join_ends_between_two_polls_folds_on_and_does_not_spin(
    kafka: KafkaProcess, topics: Topics, tmp_path: Path
) -> None:
    topics.make()
    with KafkaProxy(kafka.bootstrap) as proxy:
        workers = Workers(topics, tmp_path, bootstrap=proxy.bootstrap)
        worker = workers.start()
        topics.produce(40)
        topics.until_folded()
        joins = proxy.asked(SYNC_GROUP)
        proxy.slow(SYNC_GROUP, 0.6)  # three polls of the fold role
        topics.grow(8)
        proxy.until_asked(SYNC_GROUP, joins + 1)
        assert spinning(worker.pid, share=0.2, window_seconds=1.0, windows=5) == {}
        topics.produce(80)
        topics.until_folded()
        agree(topics)
        workers.end()


def test_events_of_a_topic_that_was_made_again_are_counted_apart(
    topics: Topics, workers: Workers
) -> None:
    folded(topics, workers)
    topics.delete(topics.predictions)
    topics.make()
    topics.produce(60)
    topics.until_folded()
    assert len({record.topic_id for record in topics.records()}) == 2


def test_the_windows_topic_is_made_again_after_it_was_deleted(
    topics: Topics, workers: Workers
) -> None:
    folded(topics, workers)
    topics.delete(topics.windows)
    topics.produce(8)
    # All ranges are open still, so that all comes back.
    topics.until_folded()
    agree(topics)


def test_a_worker_goes_on_when_kafka_was_away(
    kafka: KafkaProcess, topics: Topics, workers: Workers
) -> None:
    folded(topics, workers)
    kafka.kill9()
    until(lambda: "folding begins again" in workers.said(), "nobody noticed")
    kafka.start()
    topics.produce(40)
    topics.until_folded()
    agree(topics)

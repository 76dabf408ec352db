"""What was learnt of drift, kept in a real Kafka."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from own_servers import KafkaProcess

from service.kafka import KafkaAddress, KafkaAwayError
from stats.evaluation.learnt_log import KafkaLearntLog

pytestmark = pytest.mark.real

EVERY: Callable[[str], bool] = lambda _: True  # noqa: E731


def learnt(through: float, *names: str) -> dict[str, Any]:
    return {f"{name}/1/abc": {"through": through} for name in names}


@pytest.fixture
def process(kafka: KafkaProcess) -> Callable[[], KafkaLearntLog]:
    """A process that begins."""
    address = KafkaAddress((kafka.bootstrap,), connect_seconds=30.0, request_seconds=30.0)
    topic = f"learnt-{uuid.uuid4().hex}"
    return lambda: KafkaLearntLog(address, topic, partitions=2)


def test_what_was_learnt_goes_to_whoever_has_the_endpoint_next(
    process: Callable[[], KafkaLearntLog],
) -> None:
    first = process()
    assert first.load(EVERY) == {}
    first.save(learnt(1.0, "a", "b", "c") | {"usual:a/texts/f": {"days": [1]}})
    first.save(learnt(2.0, "b"))
    second = process()
    assert second.load(lambda name: name != "c") == {
        **learnt(1.0, "a"), **learnt(2.0, "b"), "usual:a/texts/f": {"days": [1]}
    }  # fmt: skip


def test_whoever_had_an_endpoint_before_and_writes_late_changes_nothing(
    process: Callable[[], KafkaLearntLog],
) -> None:
    before, after = process(), process()
    before.load(EVERY)
    before.save(learnt(1.0, "a"))
    assert after.load(EVERY) == learnt(1.0, "a")
    after.save(learnt(5.0, "a"))
    before.save(learnt(2.0, "a"))
    again = process()
    assert again.load(EVERY) == learnt(5.0, "a")
    again.save(learnt(6.0, "a"))
    assert process().load(EVERY) == learnt(6.0, "a")


def test_without_a_kafka_that_is_told() -> None:
    nobody = KafkaAddress(("127.0.0.1:1",), connect_seconds=0.5, request_seconds=0.5)
    with pytest.raises(KafkaAwayError):
        KafkaLearntLog(nobody).load(EVERY)

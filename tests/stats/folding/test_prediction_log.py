"""Members of a consumer group on a real Kafka, whose answers may take longer than a poll."""

from collections.abc import Iterator

import pytest
from fold_world import Topics
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from kafka_proxy import SYNC_GROUP, KafkaProxy
from own_servers import KafkaProcess

from service.kafka import KafkaAddress
from stats.folding.prediction_log import Assignment, GroupSettings, KafkaPredictionLog

pytestmark = pytest.mark.real

POLL_SECONDS = 0.2
SLOW_SECONDS = 3 * POLL_SECONDS
MANY_POLLS = 600  # two minutes: a busy machine joins late


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


def assigned(log: KafkaPredictionLog, *partitions: int) -> bool:
    """Whether many polls bring just these partitions."""
    for _ in range(MANY_POLLS):
        polled = log.poll(POLL_SECONDS)
        if isinstance(polled, Assignment) and sorted(polled.offsets) == list(partitions):
            return True
    return False


def share_out(*members: KafkaPredictionLog) -> list[set[int]]:
    """Has the members poll until each was given one partition; returns what they were given."""
    shares: list[set[int]] = [set() for _ in members]
    for _ in range(MANY_POLLS):
        for number, member in enumerate(members):
            polled = member.poll(POLL_SECONDS)
            if isinstance(polled, Assignment):
                shares[number] = set(polled.offsets)
        if all(len(share) == 1 for share in shares):
            break
    return shares


def put_out(bootstrap: str, group: str) -> None:
    """Removes all members of a group, as a broker does that has not heard of them for long."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    members = [each["member_id"] for each in admin.describe_groups([group])[group]["members"]]
    admin.remove_group_members(group, [MemberToRemove(member_id=each) for each in members])
    admin.close()


def test_a_join_that_ends_between_two_polls_is_taken_up_by_a_later_poll(
    topics: Topics, proxy: KafkaProxy, log: KafkaPredictionLog
) -> None:
    assert assigned(log, 0, 1)
    proxy.slow(SYNC_GROUP, SLOW_SECONDS)
    topics.grow(4)
    assert assigned(log, 0, 1, 2, 3)


def test_members_know_from_the_broker_that_they_are_in_the_group_and_what_is_theirs(
    topics: Topics, log: KafkaPredictionLog
) -> None:
    before = log.membership()
    assert not before.member
    assert "does not hold this worker as a member" in before.fault
    assert assigned(log, 0, 1)
    topics.produce(7, events=1)
    alone = log.membership()
    assert (alone.member, alone.fault) == (True, "")
    assert alone.spans == {0: (0, 4), 1: (0, 3)}
    second = joining(topics.bootstrap, topics)
    shares = share_out(log, second)
    assert sorted(map(list, shares)) == [[0], [1]]
    for member, share in zip((log, second), shares, strict=True):
        ours = member.membership()
        assert (ours.member, ours.fault, set(ours.spans)) == (True, "", share)
    second.close()


def test_a_member_that_left_the_group_unknowingly_is_told_so_by_the_broker(
    kafka: KafkaProcess, topics: Topics, log: KafkaPredictionLog
) -> None:
    assert assigned(log, 0, 1)
    put_out(kafka.bootstrap, f"fold-{topics.suffix}")
    ours = log.membership()
    assert not ours.member
    assert "does not hold this worker as a member" in ours.fault
    assert assigned(log, 0, 1)
    assert log.membership().member

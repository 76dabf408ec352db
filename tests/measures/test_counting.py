"""A standstill of counting is told from no traffic, by offsets alone."""

from hypothesis import given
from hypothesis import strategies as st

from measures.counting import CountingState, CountingStatus, CountingWatch

START = 1_000_000.0
TOPIC = "t"


def watch() -> CountingWatch:
    return CountingWatch(START, delay_seconds=15.0, idle_seconds=60.0)


def test_nothing_is_known_where_kafka_does_not_answer() -> None:
    looked = watch().look(START + 16)
    assert looked == CountingStatus(CountingState.UNKNOWN, START)
    assert "Kafka has not told since 1970-01-12 13:46:40 UTC" in looked.sentence()


def test_one_of_two_partitions_that_nobody_reads_is_a_standstill_since_it_began() -> None:
    seen = watch()
    for second in range(60):
        now = START + second
        seen.take_ends(TOPIC, {0: 10 + second, 1: 10 + second}, now)
        seen.take_record(TOPIC, 0, 10 + second, now, now)
        seen.take_record(TOPIC, 1, min(10 + second, 30), min(now, START + 20), now)
    looked = seen.look(START + 59)
    assert looked == CountingStatus(CountingState.STALLED, START + 21, 39)
    assert looked.holds
    assert "traffic since 1970-01-12 13:47:01 UTC is not counted" in looked.sentence()


def test_a_standstill_from_before_the_first_look_is_dated_by_the_last_counted_message() -> None:
    seen = watch()
    seen.take_record(TOPIC, 0, 40, START - 3600, START)  # read again at the start
    for second in range(20):
        seen.take_ends(TOPIC, {0: 500}, START + second)
    assert seen.look(START + 19) == CountingStatus(CountingState.STALLED, START - 3600, 460)


def test_workers_that_catch_up_are_behind_and_not_at_a_standstill() -> None:
    seen = watch()
    seen.take_ends(TOPIC, {0: 1000}, START)
    for second in range(30):
        seen.take_ends(TOPIC, {0: 1000 + second}, START + second)
        seen.take_record(TOPIC, 0, 10 * second, START - 100 + second, START + second)
    assert seen.look(START + 29).state is CountingState.BEHIND


def test_a_log_that_does_not_grow_is_no_gateway_at_work() -> None:
    seen = watch()
    for second in range(0, 80, 2):
        seen.take_ends(TOPIC, {0: 7}, START + second)
        seen.take_record(TOPIC, 0, 7, START, START + second)
    assert seen.look(START + 78) == CountingStatus(CountingState.SILENT, START, 0)


def test_no_topic_at_all_is_no_gateway_at_work() -> None:
    seen = watch()
    for second in range(0, 80, 2):
        seen.take_ends("", {}, START + second)
    assert seen.look(START + 78).state is CountingState.SILENT


def test_old_messages_of_which_no_record_is_kept_are_not_a_standstill_but_new_ones_are() -> None:
    seen = watch()
    for second in range(0, 20, 2):
        seen.take_ends(TOPIC, {0: 500}, START + second)
    assert seen.look(START + 18).state is CountingState.COUNTED
    for second in range(20, 40, 2):
        seen.take_ends(TOPIC, {0: 501}, START + second)
    assert seen.look(START + 38) == CountingStatus(CountingState.STALLED, START + 20, 1)


def test_a_topic_made_again_is_another_log() -> None:
    seen = watch()
    seen.take_ends(TOPIC, {0: 500}, START)
    seen.take_record(TOPIC, 0, 500, START, START)
    for second in range(0, 20, 2):
        now = START + second
        seen.take_ends("new", {0: second}, now)
        seen.take_record("new", 0, second, now, now)
    assert seen.look(START + 18).state is CountingState.COUNTED


def test_a_standstill_that_ends_is_over_at_once() -> None:
    seen = watch()
    seen.take_record(TOPIC, 0, 1, START, START)
    for second in range(40):
        seen.take_ends(TOPIC, {0: 1 + second}, START + second)
    assert seen.look(START + 39).state is CountingState.STALLED
    seen.take_record(TOPIC, 0, 40, START + 39, START + 39)
    assert seen.look(START + 39).state is CountingState.COUNTED


@given(
    delays=st.lists(st.integers(0, 14), min_size=40, max_size=80),
    partitions=st.integers(1, 4),
)
def test_messages_that_are_all_folded_in_time_are_never_a_standstill(
    delays: list[int], partitions: int
) -> None:
    seen = watch()
    folded = [0] * partitions
    for second, _ in enumerate(delays):
        now = START + second
        ends = dict.fromkeys(range(partitions), second)
        seen.take_ends(TOPIC, ends, now)
        for number in range(partitions):
            # Message n was published at second n + 1 and is folded after its delay, in order.
            while folded[number] < second and (
                folded[number] + 1 + delays[folded[number]] <= second
            ):
                folded[number] += 1
            seen.take_record(TOPIC, number, folded[number], now, now)
        assert seen.look(now).state is CountingState.COUNTED


@given(stops=st.integers(5, 30), partitions=st.integers(1, 4), stuck=st.integers(0, 3))
def test_a_partition_that_is_not_read_any_more_is_told_after_the_delay(
    stops: int, partitions: int, stuck: int
) -> None:
    seen, stuck = watch(), stuck % partitions
    states = []
    for second in range(stops + 20):
        now = START + second
        seen.take_ends(TOPIC, dict.fromkeys(range(partitions), second), now)
        for number in range(partitions):
            seen.take_record(
                TOPIC, number, min(second, stops) if number == stuck else second, now, now
            )
        states.append(seen.look(now).state)
    assert states[stops + 16] is not CountingState.STALLED
    assert states[stops + 17 :] == [CountingState.STALLED] * 3

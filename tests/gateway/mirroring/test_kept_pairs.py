"""What is kept of a shadow is a uniform sample, whoever compared it and whenever it came."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_sink import MemorySink

from contracts.pairs import LONGEST_TEXT, ShadowComparison, decode, encode, place
from gateway.events.publisher import MessageRefusedError
from gateway.mirroring.kept_pairs import MOST_ROLLOUTS, KeptPairs
from gateway.mirroring.pair_stream import PairStream, open_pairs
from gateway.settings import Settings
from headrace.commands.label_rollout import kept_of

VERSIONS = ("tone", "1", "2")


def numbered(prefix: str = "p") -> Callable[[], str]:
    """Ids in turn, whose places are as good as drawn by lot."""
    count = iter(range(10**9))
    return lambda: f"{prefix}{next(count)}"


def compare(pairs: KeptPairs, text: str, *, equal: bool = False) -> None:
    pairs.compared(VERSIONS, [text], None, (["good"], ["good" if equal else "bad"]))


def all_of(pairs: KeptPairs) -> list[ShadowComparison]:
    return list(iter(pairs.take, None))


@given(
    gateways=st.integers(1, 3),
    texts=st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=60),
    kept=st.integers(1, 8),
)
def test_all_that_come_first_of_several_gateways_are_told_and_all_are_counted(
    gateways: int, texts: list[tuple[int, bool, bool]], kept: int
) -> None:
    of = [KeptPairs(f"g{n}", kept=kept, new_id=numbered(f"g{n}-")) for n in range(gateways)]
    messages: list[ShadowComparison] = []
    ids: list[str] = []
    for number, (which, equal, looks) in enumerate(texts):
        at = which % gateways
        pairs = of[at]
        compare(pairs, f"text {number}", equal=equal)
        if not equal:
            ids.append(f"g{at}-{sum(known.startswith(f'g{at}-') for known in ids)}")
        messages += all_of(pairs) if looks else []
    messages += [message for pairs in of for message in all_of(pairs)]
    found = kept_of([encode(message) for message in messages], VERSIONS)
    assert (found.compared, found.disagree, found.gaps) == (len(texts), len(ids), 0)
    assert [pair.id for pair in found.pairs] == sorted(ids, key=place)[:kept]


def test_each_pair_that_disagrees_is_kept_with_the_same_chance() -> None:
    drawn, rounds = random.Random(1), 400
    chosen: Counter[int] = Counter()
    for _ in range(rounds):
        pairs = KeptPairs("g", kept=10, new_id=lambda: f"{drawn.getrandbits(48):x}")
        for number in range(100):
            compare(pairs, str(number))
        texts = [pair.text for message in all_of(pairs) for pair in message.pairs]
        assert len(texts) == 10
        chosen.update(map(int, texts))
    # Of 400 rounds each text is in 40, give or take 6; so are early, middle and late ones.
    thirds = [sum(chosen[n] for n in range(at, at + 30)) / rounds for at in (0, 35, 70)]
    assert thirds == pytest.approx([3.0, 3.0, 3.0], abs=0.35)
    assert all(15 < chosen[number] < 70 for number in range(100))


def test_of_a_request_one_text_is_drawn_and_no_other_is_kept() -> None:
    pairs = KeptPairs("g", draw=lambda count: count - 1)
    pairs.compared(VERSIONS, ["a", "b"], ["c", "d"], (["x", "x"], ["y", "z"]))
    (message,) = all_of(pairs)
    (pair,) = message.pairs
    assert (message.compared, message.disagree) == (1, 1)
    assert (pair.stable, pair.candidate, pair.text, pair.second) == ("x", "z", "b", "d")


def test_a_text_is_cut_and_can_always_be_written() -> None:
    pairs = KeptPairs("g")
    compare(pairs, "\ud800" + "x" * 2 * LONGEST_TEXT)
    sink = MemorySink()
    assert PairStream("g", sink, pairs).flush()
    (message,) = (decode(each) for each in sink.messages)
    assert isinstance(message, ShadowComparison)
    assert message.pairs[0].text == "?" + "x" * (LONGEST_TEXT - 1)


def test_the_longest_texts_fit_into_messages_that_kafka_takes() -> None:
    pairs = KeptPairs("g")
    long = "\x01" * LONGEST_TEXT  # six bytes each, as JSON has it
    for _ in range(50):
        pairs.compared(VERSIONS, [long], [long], (["x"], ["y"]))
    sink = MemorySink(max_message_bytes=900_000)
    assert PairStream("g", sink, pairs).flush()
    assert kept_of(sink.messages, VERSIONS).disagree == 50
    assert len(kept_of(sink.messages, VERSIONS).pairs) == 50


def test_a_rollout_that_is_forgotten_is_counted_under_another_name_afterwards() -> None:
    pairs = KeptPairs("g")
    for number in range(MOST_ROLLOUTS + 1):
        pairs.compared((f"e{number}", "1", "2"), ["t"], None, (["x"], ["x"]))
    pairs.compared(("e0", "1", "2"), ["t"], None, (["x"], ["x"]))
    names = [message.gateway for message in all_of(pairs)]
    assert len(names) == len(set(names)) == MOST_ROLLOUTS


def test_what_kafka_did_not_take_is_sent_again_and_nothing_is_lost() -> None:
    pairs = KeptPairs("g")
    stream = PairStream("g", sink := MemorySink(), pairs)
    sink.available = False
    compare(pairs, "a")
    assert not stream.flush()
    compare(pairs, "b")
    assert not stream.flush()
    sink.available = True
    assert stream.flush()
    found = kept_of(sink.messages, VERSIONS)
    assert (found.compared, found.gaps, {pair.text for pair in found.pairs}) == (2, 0, {"a", "b"})
    assert stream.flush()  # nothing is new
    assert len(sink.messages) == 2


def test_a_message_that_is_never_taken_leaves_a_gap_that_readers_see() -> None:
    class Refusing(MemorySink):
        refused = 0

        def submit(self, sequence: int, message: bytes, key: int | None = None):  # type: ignore[no-untyped-def]
            if not self.refused:
                self.refused = 1
                raise MessageRefusedError("no", reason="send_failed")
            return super().submit(sequence, message, key)

    pairs = KeptPairs("g")
    stream = PairStream("g", sink := Refusing(), pairs)
    compare(pairs, "a")
    assert stream.flush()
    compare(pairs, "b")
    assert stream.flush()
    assert kept_of(sink.messages, VERSIONS).gaps == 1


async def test_what_waits_is_sent_when_the_gateway_stops() -> None:
    pairs = KeptPairs("g")
    stream = PairStream("g", sink := MemorySink(), pairs)
    stream.start()
    compare(pairs, "a")
    await stream.close(5.0)
    assert kept_of(sink.messages, VERSIONS).disagree == 1


def test_without_the_operators_switch_there_is_no_stream_of_pairs() -> None:
    kafka = ("127.0.0.1:1",)
    assert open_pairs(Settings(kafka_bootstrap=kafka), "g") is None
    assert open_pairs(Settings(pair_texts_hours=24.0), "g") is None
    assert open_pairs(Settings(pair_texts_hours=24.0, kafka_bootstrap=kafka), "g") is not None

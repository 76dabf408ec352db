"""Pairs of a rollout's shadow are labelled by people, from all gateways together."""

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from own_servers import KafkaProcess
from typer.testing import CliRunner

from contracts.endpoint import EndpointSpec, EndpointStatus, Metadata, ModelEndpoint
from contracts.model import ModelRef
from contracts.pairs import Disagreement as Written
from contracts.pairs import ShadowComparison, encode, place
from contracts.rollout import RolloutState
from gateway.events.kafka_sink import KafkaSettings, KafkaSink
from gateway.mirroring.pair_stream import PairStream, pairs_topic
from headrace.cli import app
from headrace.commands.label import PairLabel, judge_labels
from headrace.commands.label_rollout import KafkaPairLog, PairLog, RolloutPairs
from headrace.errors import NotRunningError, RefusedError
from headrace.stack.state import claim_home
from registry.stores.endpoints import FileEndpointStore
from service.kafka import KafkaAddress, KafkaAwayError, TopicMissingError, Topics

STATE = RolloutState(
    id="r",
    candidate=ModelRef(model="tone", version="2", package="b" * 64),
    stable=ModelRef(model="tone", version="1", package="a" * 64),
    began=1.0,
    step_began=1.0,
)
VERSIONS = ("tone", "1", "2")


class MemoryPairLog:
    """The topic in memory; it is missing while ``error`` says so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.written: list[bytes] = []
        self.error = error

    def messages(self) -> Iterable[bytes]:
        if self.error is not None:
            raise self.error
        return list(self.written)

    def append(self, messages: Sequence[bytes]) -> None:
        if self.error is not None:
            raise self.error
        self.written += messages


def told(gateway: str, *ids: str, sequence: int = 0, compared: int = 100, kept: int = 500) -> bytes:
    pairs = [Written(each, "good", "bad", f"text of {each}") for each in ids]
    return encode(
        ShadowComparison(gateway, sequence, *VERSIONS, compared, len(ids) + sequence, kept, pairs)
    )


def of(*messages: bytes) -> tuple[RolloutPairs, MemoryPairLog]:
    log = MemoryPairLog()
    log.append(messages)
    return RolloutPairs("tone", STATE, log), log


def test_gateways_are_added_up_and_copies_of_a_message_count_once() -> None:
    one, two = told("g1", "a", "b"), told("g2", "c")
    kept = of(one, one, two, told("g1", "d", sequence=1, compared=150))[0].read()
    assert (kept.compared, kept.disagree, kept.gaps) == (250, 3, 0)
    assert [pair.id for pair in kept.pairs] == sorted("abcd", key=place)


def test_pairs_behind_the_bound_of_a_gateway_are_not_handed_out() -> None:
    ids = [f"p{n}" for n in range(9)]
    kept = of(told("g1", *ids[:5], kept=4), told("g2", *ids[5:], kept=4))[0].read()
    assert [pair.id for pair in kept.pairs] == sorted(ids, key=place)[:4]


def test_other_rollouts_and_what_nobody_understands_are_passed_over() -> None:
    other = encode(ShadowComparison("g", 0, "tone", "1", "3", 7, 0))
    kept = of(told("g1", "a"), other, b"what?", b'{"schema_version":9}')[0].read()
    assert kept.compared == 100


def test_labels_go_to_the_topic_and_the_last_one_of_a_pair_counts() -> None:
    pairs, log = of(told("g1", "a", "b"))
    pairs.answer([PairLabel("a", "good"), PairLabel("b", None)])
    pairs.answer([PairLabel("a", "bad")])
    found = judge_labels(pairs.read(), 0.02)
    assert (found.labels, found.candidate_right, found.stable_right) == (2, 1, 0)
    assert len(log.written) == 4


def test_a_label_of_no_pair_is_refused_and_not_written() -> None:
    pairs, log = of(told("g1", "a"))
    with pytest.raises(RefusedError, match="no pair x"):
        pairs.answer([PairLabel("a", "good"), PairLabel("x", "good")])
    assert len(log.written) == 1


def test_where_pairs_are_missing_there_is_no_verdict() -> None:
    kept = of(told("g1", "b", sequence=1), told("g2", "c"))[0].read()
    assert kept.gaps == 1
    with pytest.raises(RefusedError, match="are gone"):
        judge_labels(kept, 0.02)


def test_without_the_switch_one_line_says_how_to_turn_it_on() -> None:
    pairs = RolloutPairs("tone", STATE, MemoryPairLog(TopicMissingError("none")))
    with pytest.raises(RefusedError) as refused:
        pairs.read()
    assert "pairTextsHours" in refused.value.message
    assert "--pair-texts-hours" in refused.value.message
    assert "\n" not in refused.value.message


def test_a_kafka_that_is_away_and_a_rollout_without_pairs_are_told_apart() -> None:
    with pytest.raises(NotRunningError, match="No pairs can be read"):
        RolloutPairs("tone", STATE, MemoryPairLog(KafkaAwayError("away"))).read()
    with pytest.raises(RefusedError, match="No text was compared yet between versions 1 and 2"):
        of()[0].read()


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.real)])
def unmade(request: pytest.FixtureRequest) -> tuple[PairLog, Callable[[], None]]:
    """A log whose topic is missing, and what makes it."""
    if request.param == "memory":
        memory = MemoryPairLog(TopicMissingError("none"))
        return memory, lambda: setattr(memory, "error", None)
    address = KafkaAddress((request.getfixturevalue("kafka").bootstrap,))
    topic = pairs_topic(f"pairs-{uuid.uuid4().hex}", hours=24.0, replication=1)

    def make() -> None:
        with closing(Topics(address)) as topics:
            topics.ensure(topic)

    return KafkaPairLog(address, topic.name), make


def test_a_log_tells_a_missing_topic_and_keeps_what_was_written_in_its_order(
    unmade: tuple[PairLog, Callable[[], None]],
) -> None:
    log, make = unmade
    with pytest.raises(TopicMissingError):
        list(log.messages())
    make()
    assert list(log.messages()) == []
    log.append([b"a", b"b"])
    log.append([b"c"])
    assert list(log.messages()) == [b"a", b"b", b"c"]


@pytest.mark.real
def test_two_gateways_pairs_and_labels_go_through_kafka(
    kafka: KafkaProcess, tmp_path: Path
) -> None:
    name = f"pairs-{uuid.uuid4().hex}"
    address = KafkaAddress((kafka.bootstrap,))
    log = KafkaPairLog(address, name)
    with pytest.raises(RefusedError, match="pairTextsHours"):
        RolloutPairs("tone", STATE, log).read()
    topic = pairs_topic(name, hours=24.0, replication=1)
    for gateway in ("g1", "g2"):
        stream = PairStream(gateway, KafkaSink(KafkaSettings(address, topic=topic)))
        for number in range(60):
            answers = ["good"], ["bad" if number % 10 == 0 else "good"]
            stream.pairs.compared(VERSIONS, [f"{gateway} {number}"], None, answers)
        assert stream.flush()
        stream._sink.close(2.0)
    with claim_home(tmp_path / "home") as home:
        pass
    FileEndpointStore(home.endpoints).put(
        ModelEndpoint(
            metadata=Metadata(name="tone"),
            spec=EndpointSpec(model="tone"),
            status=EndpointStatus(rollout=STATE),
        )
    )
    where = ["--home", str(home.root), "--kafka", kafka.bootstrap, "--topic", name]

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, ["label", *words, *where])
        assert result.exit_code == 0, result.output
        return result.stdout

    following = json.loads(run("next", "tone", "--count", "20", "--json"))
    assert len(following) == 12
    assert {each["text"].split()[0] for each in following} == {"g1", "g2"}
    run("answer", "tone", following[0]["id"], "good")
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"id": following[1]["id"], "label": None}) + "\n")
    run("answer", "tone", "--file", str(more))
    assert json.loads(run("next", "tone", "--json"))[0]["id"] == following[2]["id"]
    found = json.loads(run("verdict", "tone", "--json"))
    assert (found["pairs"], found["disagree"], found["labels"]) == (120, 12, 2)
    assert (found["stable_right"], found["candidate_right"]) == (1, 0)

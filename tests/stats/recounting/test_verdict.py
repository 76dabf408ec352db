"""Verdicts are derived again from raw events, in memory and from a real Kafka."""

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import pytest
from fold_world import Topics
from own_servers import KafkaProcess
from prediction_batches import batch_of, event_of
from rollout_walk import ONE, STEPS, TWO, loaded_candidate

from contracts.endpoint import (
    Arm,
    EndpointLimits,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
)
from contracts.events import EventBatch, Latency, Pairing, PredictionEvent, TextRecord, encode
from contracts.rollout import Outcome, RolloutSpec, RolloutState, Verdict
from contracts.windows import CALLER_ENTRIES, ON_THE_WAY_SECONDS, EvidenceCounts
from measures.endpoint_windows import EndpointWindows
from measures.folding import Fold
from measures.ranges import PartitionFold
from measures.recounting import Duplicates, RawMessage
from measures.watermark import Watermark
from rollout.context import Observation
from rollout.judge import WindowsJudge
from rollout.machine import advance
from rollout.steps import HISTORY_WINDOWS
from stats.recounting.evidence import RawEvidence, counts_of
from stats.recounting.verdict import VerdictRecount, recount_verdict, recount_verdict_kafka

SECONDS = 10
LATENESS = 2.0 + ON_THE_WAY_SECONDS  # of the endpoint's limits, and on the way
PARTITIONS = 2


@pytest.mark.parametrize("seed", range(5))
def test_evidence_is_that_of_the_fold_role_by_other_code(seed: int) -> None:
    """Of drawn attempts with every field; a field that one of the two lacks is found here."""
    rng = random.Random(seed)
    batches = [batch_of(rng, sequence=number, events=20) for number in range(20)]
    events = [
        msgspec.structs.replace(
            event,
            endpoint="e",
            version="1",
            package="p",
            arm=Arm.SHADOW,
            cached=rng.choice((0, 0, 0, 1)),
            texts=[*event.texts, *entities(rng)],
        )
        for batch in batches
        for event in batch.events
    ]
    told = [
        msgspec.structs.replace(each, endpoint="e", version="1", package="p", arm=Arm.SHADOW)
        for batch in batches
        for each in batch.feedback
    ]
    fold = Fold(1_000_000)
    fold.add(EventBatch("g", 0, events, feedback=told))
    (folded,) = fold.aggregates()
    assert msgspec.convert(counts_of(events, told), EvidenceCounts) == folded.evidence


def test_of_more_callers_than_there_is_room_for_the_same_ones_are_told() -> None:
    rng = random.Random(9)
    events = [
        msgspec.structs.replace(
            event_of(rng), endpoint="e", version="1", package="p", arm=Arm.STABLE, caller=caller,
            status=(200, 500)[caller % 4 == 0], cached=0, repeated=False, time=5.0,
        )
        for caller in range(1, 3 * CALLER_ENTRIES)
    ]  # fmt: skip
    fold = Fold(10)
    fold.add(EventBatch("g", 0, events))
    (folded,) = fold.aggregates()
    assert 0 < sum(map(len, folded.evidence.caller_latency.values())) <= CALLER_ENTRIES
    assert 0 < len(folded.evidence.caller_requests) <= CALLER_ENTRIES
    assert folded.evidence.caller_errors
    assert msgspec.convert(counts_of(events, ()), EvidenceCounts) == folded.evidence


def entities(rng: random.Random) -> list[TextRecord]:
    """Texts with entities, or none."""
    found = [(rng.choice(("PER", "LOC")), rng.random()) for _ in range(rng.randint(1, 3))]
    return [TextRecord(9, 8, 0, False, entities=found)] if rng.random() < 0.2 else []


@dataclass
class World:
    """An endpoint whose rollout goes on, the events of its traffic, and what is recorded of it."""

    began: float
    fails: float
    spec: RolloutSpec = field(default_factory=lambda: RolloutSpec(steps=STEPS, bake=100.0))
    status: EndpointStatus = field(default_factory=loaded_candidate)
    log: dict[int, list[tuple[float, bytes]]] = field(default_factory=dict)
    sequence: int = 0

    def __post_init__(self) -> None:
        self.now = self.began - HISTORY_WINDOWS * SECONDS
        self._random = random.Random(7)
        self._folds = [
            PartitionFold("t", n, first=0, window_seconds=SECONDS) for n in range(PARTITIONS)
        ]
        self._windows, self._through = EndpointWindows("sentiment"), Watermark()

    def window(self) -> None:
        """The traffic of a window on the routes as they are, folded; and a pass."""
        batch = [
            self._event(route.arm, route.ref.version)
            for route in self.status.routes
            for _ in range(round(800 * route.weight / 100))
        ]
        for part in range(2):
            self._send(EventBatch("g", self.sequence, batch[part::2]))
        if self._random.random() < 0.2:
            partition = self._random.randrange(PARTITIONS)
            self._append(partition, self.log[partition][-1][1])  # a copy
        self.now += SECONDS
        observed = Observation(
            loaded=frozenset({ONE, TWO}),
            target="2",
            windows=self._windows.list_between(
                0.0, min(self.now, self._through.known_until()) - LATENESS
            ),
        )
        if self.now >= self.began:
            self.status = advance(self.spec, self.status, observed, self.now, WindowsJudge())

    def _event(self, arm: Arm, version: str) -> PredictionEvent:
        ref = ONE if version == "1" else TWO
        bad = ref is TWO and self._random.random() < self.fails
        label = self._random.choice(("negative", "positive"))
        text = [] if bad else [TextRecord(12, 9, 0, False, label, 0.9)]
        pairing = Pairing("1", 0.01, [True], [0.0], [label], [0.9])
        return PredictionEvent(
            "r",
            self.now + self._random.random() * SECONDS,
            "sentiment",
            ref.version,
            ref.package,
            arm,
            500 if bad else 200,
            arm is not Arm.SHADOW,
            Latency(0.0, 0.001, 0.001, 0.01 * self._random.lognormvariate(0, 0.2), 0.02),
            text,
            pairing=pairing if arm is Arm.SHADOW and not bad else None,
        )

    def _send(self, batch: EventBatch) -> None:
        self._append(self.sequence % PARTITIONS, encode(batch))
        self.sequence += 1

    def _append(self, partition: int, message: bytes) -> None:
        log = self.log.setdefault(partition, [])
        log.append((self.now + SECONDS, message))
        fold = self._folds[partition]
        records = fold.take(len(log) - 1, self.now + SECONDS, message)
        growing = fold.growing()
        for record in [*records, *([growing] if growing else [])]:
            self._windows.put(msgspec.convert(msgspec.to_builtins(record), type(record)))
            self._through.take(record.topic_id, record.partition, record.through)

    def until_the_end(self) -> "World":
        for _ in range(400):
            self.window()
            if self.status.last_rollout is not None:
                return self
        raise AssertionError("the rollout does not end")

    @property
    def ended(self) -> RolloutState:
        assert self.status.last_rollout is not None
        return self.status.last_rollout

    @property
    def endpoint(self) -> ModelEndpoint:
        spec = EndpointSpec(
            model="m", rollout=self.spec, limits=EndpointLimits(timeout_seconds=2.0)
        )
        return ModelEndpoint(metadata=Metadata(name="sentiment"), spec=spec, status=self.status)


@dataclass
class Raw:
    """The raw events of a world in memory."""

    log: dict[int, list[tuple[float, bytes]]]
    topic_id: str = "t"
    beginning: int = 0

    def beginnings(self) -> Mapping[int, int]:
        return dict.fromkeys(self.log, self.beginning)

    def spans(self, begin: float, end: float) -> Mapping[int, tuple[int, int]]:
        return {
            number: (
                max(self.beginning, sum(at < begin for at, _ in messages)),
                sum(at < end for at, _ in messages),
            )
            for number, messages in self.log.items()
        }

    def messages(self, partition: int, first: int, end: int) -> Iterator[RawMessage]:
        for offset, (at, value) in enumerate(self.log[partition]):
            if max(first, self.beginning) <= offset < end:
                yield RawMessage(offset, at, value)


@pytest.fixture(scope="module")
def good() -> World:
    return World(1_000_000.0, fails=0.0).until_the_end()


@pytest.fixture(scope="module")
def bad() -> World:
    return World(1_000_000.0, fails=0.1).until_the_end()


def same(world: World, found: VerdictRecount) -> None:
    assert found.agrees
    assert found.missing == ()
    assert [pair.recorded for pair in found.checks] == [pair.derived for pair in found.checks]
    assert [pair.recorded_requests for pair in found.checks] == [
        pair.derived_requests for pair in found.checks
    ]


@pytest.mark.slow
def test_a_version_that_settled_passes_again_in_every_step(good: World) -> None:
    assert good.ended.outcome is Outcome.SETTLED
    found = recount_verdict(good.endpoint, good.ended, Raw(good.log))
    same(good, found)
    assert [step.name for step in found.steps] == ["shadow", "5 %", "25 %", "50 %", "bake"]
    assert all(step.passed for step in found.steps[:-1])
    assert found.failed_at is None


@pytest.mark.slow
def test_a_version_that_was_rolled_back_fails_again_by_the_same_checks(bad: World) -> None:
    assert bad.ended.outcome is Outcome.ROLLED_BACK
    found = recount_verdict(bad.endpoint, bad.ended, Raw(bad.log))
    same(bad, found)
    failed = {pair.name for pair in found.checks if pair.derived is Verdict.FAIL}
    assert "errorRate" in failed
    assert found.failed_at == bad.ended.looked_through


@pytest.mark.slow
def test_a_verdict_that_the_raw_events_do_not_bear_out_is_found(good: World, bad: World) -> None:
    """What is recorded of the bad version, over events of a good one, and the other way round."""
    acquitted = recount_verdict(bad.endpoint, bad.ended, Raw(good.log))
    assert not acquitted.agrees
    checks = tuple(each.model_copy(update={"verdict": Verdict.PASS}) for each in bad.ended.checks)
    forged = bad.ended.model_copy(update={"checks": checks})
    assert not recount_verdict(bad.endpoint, forged, Raw(bad.log)).agrees


@pytest.mark.slow
def test_what_kafka_has_deleted_is_told(bad: World) -> None:
    found = recount_verdict(bad.endpoint, bad.ended, Raw(bad.log, beginning=5))
    assert not found.agrees
    assert "Kafka has deleted messages" in found.missing[0]


def test_a_double_that_lies_far_away_is_counted_once() -> None:
    event = batch_of(random.Random(1), events=1).events[0]
    event = msgspec.structs.replace(event, endpoint="e", repeated=False, caller=0, status=200)
    event = msgspec.structs.replace(event, arm=Arm.STABLE, cached=0)
    first = encode(EventBatch("g", 0, [event]))
    others = [encode(EventBatch("h", number)) for number in range(500)]
    messages = [RawMessage(n, 1e6, one) for n, one in enumerate([first, *others, first])]
    counted = RawEvidence("e", SECONDS)
    counted.add(messages, Duplicates())
    (window,) = counted.windows()
    assert counted.events == window.aggregates[0].evidence.requests == 1


@pytest.mark.real
def test_a_verdict_is_derived_again_from_a_real_kafka(kafka: KafkaProcess) -> None:
    """The rollout has just ended; its events are taken by Kafka now, which is within its time."""
    world = World(time.time() // SECONDS * SECONDS - 200.0, fails=0.1).until_the_end()
    topics = Topics(kafka.bootstrap, partitions=PARTITIONS)
    topics.make()
    try:
        order = [world.log[number] for number in range(PARTITIONS)]
        longest = max(map(len, order))
        # One partition after the other, in turn: the shorter one is filled up with heartbeats.
        idle = (encode(EventBatch("idle", number)) for number in range(10**6))
        topics.send(
            [
                log[place][1] if place < len(log) else next(idle)
                for place in range(longest)
                for log in order
            ]
        )
        found = recount_verdict_kafka(
            kafka.bootstrap, world.endpoint, world.ended, predictions=topics.predictions
        )
    finally:
        topics.close()
    same(world, found)
    assert {pair.name for pair in found.checks if pair.derived is Verdict.FAIL} >= {"errorRate"}

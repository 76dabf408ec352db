"""Batches of prediction events of all kinds, made from a seed, and the records of them."""

import random
from collections.abc import Iterable

from contracts.endpoint import Arm
from contracts.events import (
    NO_ENTITY,
    EventBatch,
    Feedback,
    Latency,
    Pairing,
    PredictionEvent,
    Refusals,
    StatisticSpec,
    TextRecord,
)
from contracts.windows import WindowRecord, decode, encode
from measures.folding import Fold

LABELS = ("negative", "neutral", "positive")
UNK_WORDS = ("corona", "Zoom", "🙂", "中文")
DECLARED = [
    StatisticSpec("length", "histogram", edges=[1.0, 10.0, 100.0]),
    StatisticSpec("language", "category", values=["de", "en"]),
    StatisticSpec("emoji", "counter"),
]
_PACKAGES = {"1": "a" * 64, "2": "b" * 64}
_STATUSES = (200, 200, 200, 200, 400, 499, 500, 503, 504)


def text_of(rng: random.Random, *, answered: bool = True) -> TextRecord:
    """One text; a classifier's answer, a vector's, entities, or none."""
    words = rng.randint(0, 60)
    tokens = words + rng.randint(0, 20)
    unk = rng.randint(0, min(3, tokens))
    if not answered:
        return TextRecord(tokens, words, unk, rng.random() < 0.1)
    if rng.random() < 0.2:
        cut, norm = rng.random() < 0.1, rng.lognormvariate(0, 1)
        return TextRecord(
            tokens, words, unk, cut, norm=norm, non_zeros=7 * tokens if tokens % 2 else None
        )
    if rng.random() < 0.2:
        found = [(rng.choice(LABELS), rng.random()) for _ in range(rng.randint(0, 3))]
        label = None if found else NO_ENTITY
        return TextRecord(tokens, words, unk, rng.random() < 0.1, label=label, entities=found)
    return TextRecord(
        tokens, words, unk, rng.random() < 0.1, label=rng.choice(LABELS), score=rng.random()
    )


def event_of(
    rng: random.Random, *, time: float = 1_000_000.0, spread: float = 40.0
) -> PredictionEvent:
    """One attempt within ``spread`` seconds after ``time``."""
    arm = rng.choice(tuple(Arm))
    version = "1" if arm in {Arm.STABLE, Arm.CONTROL} else "2"
    status = rng.choice(_STATUSES)
    reached = status in {200, 504}
    texts = [text_of(rng, answered=status == 200) for _ in range(rng.randint(0, 3))]
    pairing = None
    if arm is Arm.SHADOW and status == 200:
        equal = [rng.random() < 0.9 for text in texts if text.label is not None]
        labelled = all(text.label is not None for text in texts)  # not of vectors
        seconds = rng.random()
        distances = [round(rng.random() ** 4, 6) for _ in texts]
        pairing = Pairing(
            "1",
            seconds,
            equal,
            distances,
            [rng.choice(LABELS) for _ in texts] if labelled else [],
            [rng.random() for _ in texts] if labelled else [],
            200,
            [20 * distance for distance in distances] if not equal else [],
            [] if equal else [rng.randint(0, 10) for _ in texts[:2]],
        )
    elif arm is Arm.SHADOW and status != 400:  # failed, or stable did
        pairing = Pairing("1", 0.0, status=502 if len(texts) % 2 else 200)
    observations: dict[str, list[float | str]] = {}
    if rng.random() < 0.3:
        observations = {
            "length": [rng.uniform(-5, 200), "long"],
            "language": [rng.choice(("de", "en", "fr"))],
            "emoji": [float(rng.randint(-1, 3))],
            "nobody's": [1.0],
        }
    return PredictionEvent(
        request_id=f"{rng.getrandbits(64):016x}",
        time=time + rng.random() * spread,
        endpoint=rng.choice(("sentiment", "topics")),
        version=version,
        package=_PACKAGES[version],
        arm=arm,
        status=status,
        answered=rng.random() < 0.7,
        latency=Latency(rng.random() / 100, 0.001, rng.random() / 10, reached * 0.02, 0.2),
        texts=texts,
        observations=observations,
        caller=rng.choice((0, 1, 1, 1, 2, 3, rng.getrandbits(63))),
        repeated=rng.random() < 0.1,
        pairing=pairing,
        unk_words=rng.choices(UNK_WORDS, k=rng.choice((0, 0, 0, 1, 3))),
        topics=bytes(text.tokens for text in texts),  # draws nothing
        vectors=bytes(255 - text.words for text in texts if text.norm is not None),
        cached=min(len(texts), rng.choice((0, 0, 0, 1, 9))),
    )


def feedback_of(rng: random.Random, *, time: float = 1_000_000.0) -> Feedback:
    """What one caller told."""
    version = rng.choice(("1", "2"))
    return Feedback(
        time + rng.random() * 40.0,
        f"{rng.getrandbits(64):016x}",
        rng.choice(("sentiment", "topics")),
        version,
        _PACKAGES[version],
        rng.choice((Arm.STABLE, Arm.CANARY, Arm.FORCED)),
        rng.choice(LABELS),
        rng.choice(LABELS),
        text=0,
        answered_at=time - (30.0 if version == "1" else 9_000.0),
        caller=rng.choice((0, 7)),
    )


def batch_of(
    rng: random.Random,
    *,
    gateway: str = "g",
    sequence: int = 0,
    events: int = 5,
    time: float = 1_000_000.0,
) -> EventBatch:
    """One message, refusals and feedback included."""
    return EventBatch(
        gateway,
        sequence,
        [event_of(rng, time=time) for _ in range(events)],
        [Refusals("topics", 503, "overloaded", rng.randint(1, 4))] if rng.random() < 0.3 else [],
        feedback=[feedback_of(rng, time=time) for _ in range(rng.randint(0, 3))],
        # "topics" declares nothing.
        statistics={"sentiment": DECLARED},
    )


def batches_of(seed: int, count: int, *, events: int = 5) -> list[EventBatch]:
    """Messages of one gateway, one after the other."""
    rng = random.Random(seed)
    return [batch_of(rng, sequence=number, events=events) for number in range(count)]


def record_of(
    batches: Iterable[EventBatch],
    *,
    topic_id: str = "t",
    partition: int = 0,
    start: int = 0,
    through: float = 2e6,
    seconds: int = 10,
) -> WindowRecord:
    """The record of a range that begins with these messages, as it comes out of Kafka."""
    fold, messages = Fold(seconds), list(batches)
    for batch in messages:
        fold.add(batch)
    record = WindowRecord(
        topic_id,
        partition,
        start,
        start + len(messages),
        fold.newest,
        fold.events,
        through=through,
        aggregates=fold.aggregates(),
        refusals=fold.refusals,
        window_seconds=seconds,
    )
    return decode(encode(record))

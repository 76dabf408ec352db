"""What the batcher's decisions are worth, in simulated time."""

import pytest
from simulated_batching import (
    KINDS,
    MAX_TOKENS,
    RULES,
    Kind,
    Outcome,
    Simulation,
    outcome,
    slowed,
)

from bench import corpus

TEXTS = 2_000
CALLERS = 64


@pytest.fixture(scope="module")
def lengths() -> list[int]:
    encoded = corpus.tokenizer().encode_batch(corpus.replay())
    return [min(MAX_TOKENS, len(each.ids)) for each in encoded]


def of(rule: str, kind: Kind, lengths: list[int]) -> Outcome:
    return outcome(Simulation(kind, RULES[rule](kind), CALLERS, lengths, seed=1), TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_batches_answer_no_fewer_texts_and_let_none_wait_longer_than_no_batches(
    kind: Kind, lengths: list[int]
) -> None:
    alone, batched = of("one by one", kind, lengths), of("headrace", kind, lengths)
    assert batched.per_second > 0.98 * alone.per_second
    assert batched.p99 < 1.02 * alone.p99


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_knowing_lengths_beats_padding_whatever_waits(kind: Kind, lengths: list[int]) -> None:
    padded, batched = of("in order", kind, lengths), of("headrace", kind, lengths)
    assert batched.per_second > 1.5 * padded.per_second
    assert batched.p99 < padded.p99


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_other_work_that_slows_an_engine_makes_no_larger_batches(
    kind: Kind, lengths: list[int]
) -> None:
    alone, batched = (
        slowed(kind, rule, lengths, seed=1, texts=2 * TEXTS) for rule in ("one by one", "headrace")
    )
    assert batched.per_second > 0.98 * alone.per_second
    assert batched.p99 < 1.05 * alone.p99
    assert batched.rows < 1.2 * of("headrace", kind, lengths).rows

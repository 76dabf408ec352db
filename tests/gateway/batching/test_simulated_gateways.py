"""Gateways before one engine, in simulated time."""

import h200_times
import pytest
from simulated_gateways import CHOICES, FULL, GATEWAYS, LINEAR, Load, lengths, outcome

SECONDS = 0.1


@pytest.mark.slow
@pytest.mark.parametrize("texts", [1, 16])
def test_before_a_packed_engine_texts_grow_with_the_gateways_until_it_is_full(texts: int) -> None:
    load = Load(texts, lengths())
    found = [outcome("packed", gateways, load, 1, SECONDS) for gateways in GATEWAYS]
    for gateways, each in zip(GATEWAYS, found, strict=True):
        linear = gateways * found[0].per_second
        assert each.busy > FULL or each.per_second >= LINEAR * linear


@pytest.mark.slow
def test_before_a_padded_engine_that_is_bound_by_launches_they_do_not() -> None:
    load = Load(1, lengths())
    one, eight = (outcome("padded", gateways, load, 1, SECONDS) for gateways in (1, 8))
    assert eight.per_second < 0.5 * 8 * one.per_second


@pytest.mark.slow
def test_a_packed_engine_that_is_full_is_full_of_large_runs() -> None:
    times = h200_times.times().read(h200_times.H200, "packed")
    found = outcome("packed", 8, Load(16, lengths()), 1, SECONDS)
    most = times.most_tokens / times.seconds(times.most_tokens) / 54  # texts a second
    assert found.per_second > 0.9 * most


@pytest.mark.slow
@pytest.mark.parametrize("callers", [16, 128])
def test_a_run_that_is_chosen_late_holds_more_messages_and_the_engine_does_not_idle_for_it(
    callers: int,
) -> None:
    load = Load(1, lengths(), callers=callers)
    early, late = (
        outcome("packed", 8, load, 1, SECONDS, rule=CHOICES[name]) for name in ("at once", "late")
    )
    assert late.messages_a_run > 1.03 * early.messages_a_run
    assert late.per_second > 0.98 * early.per_second
    assert late.idle < 0.01


def test_a_lone_text_leaves_at_once_and_alone() -> None:
    found = outcome("packed", 1, Load(1, lengths(), callers=1), 1, SECONDS)
    assert found.texts_a_message == 1.0


def test_a_shape_is_dear_once() -> None:
    times = h200_times.times().read(h200_times.H200, "padded-fused")
    first, second = times.seconds(8, 16), times.seconds(8, 16)
    assert first == pytest.approx(second + 0.047)
    assert second == pytest.approx(0.0005925)


def test_a_run_costs_its_bucket_and_beyond_the_table_its_tokens() -> None:
    times = h200_times.times().read(h200_times.H200, "packed")
    assert times.seconds(65) == times.seconds(96) < times.seconds(97)
    assert times.seconds(2 * 106681) == pytest.approx(2 * times.seconds(106681))

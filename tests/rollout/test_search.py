"""The search draws what it says, goes on from what it wrote, and tells errors by other draws."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from verdicts import late_labels, search, shared_engine
from verdicts.search import INGREDIENTS, Composition, Tried, compose
from verdicts.shared_engine import Engine
from verdicts.traffic import BUCKETS, Harm, harmed
from verdicts.worlds import Stream, Traffic, World

from measures.correlation import Floats

ONE = World("one", (Stream(300.0, callers=20),))


def drawn(count: int) -> list[Composition]:
    found = [compose(np.random.default_rng([9, number])) for number in range(count)]
    rng = np.random.default_rng(9)
    return found + [compose(rng, parent) for parent in found]


def test_every_ingredient_is_drawn_and_all_that_is_drawn_can_be_written_and_read() -> None:
    every = drawn(400)
    named = {name for each in every for name in each.ingredients}
    assert named == {*INGREDIENTS, search.DELAYS}
    for each in every:
        assert Composition.of_json(json.loads(json.dumps(each.to_json()))) == each
        assert len(each.ingredients) <= search._MOST_INGREDIENTS
    kinds = {each.is_harmful for each in every}
    assert kinds == {False, True}
    assert any(each.harm is not None and not each.is_harmful for each in every), "cold starts"


def test_a_child_differs_from_its_parent_in_one_ingredient() -> None:
    parent = Composition(("a rhythm of the day",), replace(ONE, daily=0.5))
    for number in range(20):
        child = compose(np.random.default_rng([8, number]), parent)
        assert child.harm == parent.harm
        assert len(child.ingredients) in {1, 2}
        assert child.world is not None
        assert child.world.name == ", ".join(child.ingredients)


@pytest.mark.slow
def test_every_ingredient_can_be_simulated_with_another() -> None:
    rng = np.random.default_rng(7)
    for name, change in INGREDIENTS.items():
        other = INGREDIENTS[str(rng.choice(list(INGREDIENTS)))]
        traffic = Traffic.of(other(change(ONE, rng), rng), 2, rng).moved(rng)
        for high in (np.inf, 0.5):
            for arm in traffic.window(np.zeros(2), np.full(2, high), rng):
                assert (arm.requests >= 0).all(), name
                assert (arm.labels >= 0).all(), name


def test_a_harm_of_callers_without_a_name_is_theirs_too() -> None:
    harm = Harm("all", fails=1.0)
    rng = np.random.default_rng(6)
    arm = Traffic.of(World("", (Stream(300.0, callers=0),)), 4, rng).window(
        np.zeros(4), np.full(4, 0.5), rng
    )[0]
    assert (harmed(arm, harm, np.zeros(4, dtype=np.bool_), rng).errors == arm.requests).all()


def test_the_worst_are_told_by_the_second_draws_and_one_of_a_kind() -> None:
    def one(wrong: int, first: int, *ingredients: str) -> Tried:
        return Tried(Composition(ingredients, ONE), first, wrong, 24 * (first > 0), {}, 0)

    lucky, bad, alike = one(0, 8, "a"), one(12, 1, "b"), one(3, 8, "b")
    assert search.rank([lucky, alike, bad, one(0, 0, "c")]) == [bad, lucky]


def test_a_search_goes_on_from_its_file_and_drops_a_line_that_was_cut(tmp_path: Path) -> None:
    nothing = (0, Counter[str](), 0)
    ended = iter(
        [(1, Counter({"latency": 1}), 0), (6, Counter({"latency": 6}), 2), *[nothing] * 20]
    )
    file = tmp_path / "worlds.jsonl"

    def simulated(*_: object) -> tuple[int, Counter[str], int]:
        return next(ended)

    first = next(search.go_on(3, file, simulated))
    assert (first.first, first.wrong, first.of, first.causes) == (1, 6, 24, {"latency": 6})
    with file.open("a") as lines:
        lines.write('{"composition": {"ingr')
    assert search.read(file) == [first]
    again = search.go_on(3, file, simulated)
    told = [next(again) for _ in range(3)]
    assert search.read(file) == [first, *told]


def test_what_was_found_can_be_simulated_at_each_release() -> None:
    found = search.found_worlds()
    assert len(found) <= search.KEPT
    told = json.loads(search.FOUND.read_text())
    assert [each.to_json() for each in found] == told


@pytest.mark.slow
def test_labels_that_come_late_are_judged_by_quality() -> None:
    worse = Composition(
        (search.DELAYS,),
        None,
        labels=late_labels.World("", candidate_wrong=0.5, hours=1.0),
    )
    assert worse.is_harmful
    assert search.simulate(worse, 2, (1, 1))[0] == 0


@pytest.mark.slow
def test_an_arms_answers_wait_for_the_others_requests_in_the_engine_that_they_share() -> None:
    def middle(engine: Engine, share: float, *, is_busy: bool = False) -> Floats:
        """Mean bucket of the short texts, of the candidate and of stable."""
        of = shared_engine.windows(engine, share, is_busy=is_busy).mean(axis=0)[:, 0]
        found: NDArray[np.float64] = (of * np.arange(BUCKETS)).sum(axis=-1)
        return found

    quiet = middle(Engine(), 0.5)
    assert abs(quiet[0] - quiet[1]) < 2
    busy, slow = middle(Engine(), 0.5, is_busy=True), middle(Engine(slower=3.0), 0.5)
    assert (busy > quiet).all()
    assert slow[0] > quiet[0] + 3
    assert slow[1] > quiet[1], "a slow version holds up the other"


@pytest.mark.slow
def test_a_copy_is_timed_from_when_it_is_sent_and_is_no_slower_than_its_original() -> None:
    for is_busy in (False, True):
        of = shared_engine.windows(Engine(), 0.0, is_busy=is_busy).mean(axis=0)[:, 0]
        slow = int(np.searchsorted(of[1].cumsum(), 0.95))
        assert of[0, slow:].sum() <= 1.1 * of[1, slow:].sum()

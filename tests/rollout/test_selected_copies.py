"""Copies that are no sample are judged wrongly by all requests, and rightly by pairs."""

import numpy as np
import pytest
from verdicts import copies
from verdicts.copies import EVERY, WAYS, of_all_requests, window

from contracts.windows import MICRO

SELECTED = {world.check: world for world in EVERY if len(world.kinds) > 1 and world.moves == 0}


def test_a_window_tells_each_copy_once_beside_its_original() -> None:
    rng = np.random.default_rng(1)
    for world in EVERY:
        candidate, stable = window(world, rng)
        of_originals = {
            status: sum(found.values()) for status, found in candidate.pair_statuses.items()
        }
        assert sum(of_originals.values()) == candidate.requests <= stable.requests
        assert sum(stable.norms.values()) == stable.requests - stable.errors
        assert sum(candidate.norms.values()) == candidate.requests - candidate.errors
        well = candidate.pair_statuses[200].get(200, 0)
        told = sum(sum(found.values()) for found in candidate.pair_norms.values())
        assert told == well * MICRO
        older = of_all_requests(candidate)
        assert (older.requests, older.pair_norms) == (of_originals[200], {})


@pytest.mark.slow
@pytest.mark.parametrize("check", SELECTED)
def test_selected_copies_are_a_fault_by_all_requests_and_none_by_pairs(
    check: copies.Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "EVERY", (SELECTED[check],))
    found = {each.where: each for each in copies.copies(3)}
    assert [found[f"failed, {way}"].figure for way in WAYS] == [0.0, 1.0]
    assert [found[f"failed, {way}"].reached for way in WAYS] == [True, None]

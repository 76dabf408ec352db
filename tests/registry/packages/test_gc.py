"""What is removed, and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import MemoryPackages, endpoint, manifest

from contracts.endpoint import Arm, Candidate, EndpointStatus, Phase, Route
from contracts.rollout import RolloutState
from registry.packages.gc import collect

VERSIONS = [manifest(str(number)) for number in range(1, 13)]


def test_what_an_endpoint_names_stays() -> None:
    store = MemoryPackages(*VERSIONS)
    one, two, three = (item.ref() for item in VERSIONS[:3])
    status = EndpointStatus(
        routes=(Route(arm=Arm.STABLE, ref=one, weight=100),),
        packages=(two,),
        candidate=Candidate(version="3", phase=Phase.LOADING, ref=three),
    )
    collect(store, [endpoint(status)], keep=1)
    assert {item.version for item in store.held.values()} == {"1", "2", "3", "12"}


def test_what_a_rollout_or_its_undo_goes_back_to_stays() -> None:
    store = MemoryPackages(*VERSIONS)
    one, two, three, four = (item.ref() for item in VERSIONS[:4])
    status = EndpointStatus(
        rollout=RolloutState(id="b", candidate=one, stable=two, began=1.0, step_began=1.0),
        last_rollout=RolloutState(id="a", candidate=four, stable=three, began=0.0, step_began=0.0),
    )
    collect(store, [endpoint(status)], keep=1)
    assert {item.version for item in store.held.values()} == {"1", "2", "3", "12"}


@given(st.sets(st.integers(0, 11), min_size=1), st.integers(1, 5), st.integers(0, 11))
def test_nothing_named_and_none_of_the_newest_is_ever_removed(
    held: set[int], keep: int, named: int
) -> None:
    store = MemoryPackages(*(VERSIONS[place] for place in held))
    status = EndpointStatus(packages=(VERSIONS[named].ref(),))
    before = set(store.held)
    removed = set(collect(store, [endpoint(status)], keep=keep))
    left = {int(item.version) - 1 for item in store.held.values()}
    assert before - removed == set(store.held)
    assert left == set(sorted(held)[-keep:]) | ({named} & held)


def test_keeping_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        collect(MemoryPackages(), [], keep=0)

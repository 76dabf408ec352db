"""The loader's decisions as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import endpoint, ref

from contracts.endpoint import Arm, Candidate, EndpointStatus, Phase, Route
from registry.desired import Ledger, Role, Want, failed, is_version_fault, may_try, wanted

A, B = ref("1", "a"), ref("2", "b")


def test_a_package_that_is_stable_anywhere_counts_as_stable() -> None:
    kept = endpoint(EndpointStatus(packages=(A,)), name="kept")
    stable = endpoint(
        EndpointStatus(routes=(Route(arm=Arm.STABLE, ref=A, weight=100),), packages=(A,)),
        name="stable",
    )
    assert wanted([kept, stable]) == (Want(A, Role.STABLE),)


def test_the_candidate_comes_before_what_is_only_kept() -> None:
    candidate = Candidate(version="2", phase=Phase.LOADING, ref=B)
    status = EndpointStatus(packages=(A, B), candidate=candidate)
    assert wanted([endpoint(status)]) == (Want(B, Role.CANDIDATE), Want(A, Role.KEPT))


def test_a_stable_version_is_tried_again_even_when_it_is_blamed() -> None:
    stable = failed(Want(A, Role.STABLE), "no", None, by_version=True, now=10.0)
    candidate = failed(Want(A, Role.CANDIDATE), "no", None, by_version=True, now=10.0)
    assert may_try(stable, 1e6)
    assert not may_try(candidate, 1e6)


@given(st.integers(1, 200))
def test_waits_grow_to_a_minute_and_no_further(tries: int) -> None:
    failure = None
    for _ in range(tries):
        failure = failed(Want(A, Role.STABLE), "no", failure, by_version=False, now=0.0)
    assert failure is not None
    assert failure.retry_at == min(60.0, 2.0 ** (tries - 1))


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("InvalidProtobuf: Protobuf parsing failed", True),
        ("CUDA out of memory", True),
        ("ModuleNotFoundError: No module named 'onnxruntime'", False),
        ("unable to find backend library for backend 'onnxruntime'", False),
        ("Unable to create shared memory region: No space left on device", False),
    ],
)
def test_tritons_words_tell_whose_fault_it_is(words: str, *, version: bool) -> None:
    assert is_version_fault(words) is version


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 400)), min_size=1, max_size=20))
def test_a_model_expires_only_after_its_whole_grace_unwanted(
    steps: list[tuple[bool, float]],
) -> None:
    ledger, now, since = Ledger().placed(A), 1.0, None
    for is_wanted, passed in steps:
        now += passed
        since = None if is_wanted else since or now
        ledger = ledger.judged([Want(A, Role.STABLE)] if is_wanted else [], now)
        expected = since is not None and now - since >= 600
        assert (A.triton_model in ledger.expired(now, 600)) == expected

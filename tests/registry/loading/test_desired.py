"""The loader's decisions as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import endpoint, ref

from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Route,
)
from contracts.loading import FailureCause, WitnessAnswer
from contracts.model import ModelRef
from contracts.rollout import RolloutState
from registry.loading.desired import (
    AWAY_GRACE_SECONDS,
    ModelLedger,
    PackageFailure,
    Role,
    Want,
    add_witness,
    count_failure,
    find_awaited,
    list_wanted,
    may_try,
)
from registry.loading.refusals import is_version_fault

A, B = ref("1", "a"), ref("2", "b")
AWAY = FailureCause.AWAY


def test_a_package_that_is_stable_anywhere_counts_as_stable() -> None:
    kept = endpoint(EndpointStatus(packages=(A,)), name="kept")
    stable = endpoint(
        EndpointStatus(routes=(Route(arm=Arm.STABLE, ref=A, weight=100),), packages=(A,)),
        name="stable",
    )
    assert list_wanted([kept, stable]) == (Want(A, Role.STABLE),)


def test_the_candidate_comes_before_what_is_only_kept() -> None:
    candidate = Candidate(version="2", phase=Phase.LOADING, ref=B)
    status = EndpointStatus(packages=(A, B), candidate=candidate)
    assert list_wanted([endpoint(status)]) == (
        Want(B, Role.CANDIDATE, on_trial=True),
        Want(A, Role.KEPT),
    )


@pytest.mark.parametrize("rolls_out", [False, True])
def test_a_version_under_which_triton_ends_is_tried_again_only_once_others_hold_it(
    *, rolls_out: bool
) -> None:
    want = Want(A, Role.CANDIDATE, on_trial=True, rolls_out=rolls_out)
    for cause in FailureCause:
        failure = count_failure(want, "no", None, cause=cause, now=10.0)
        ends_it = cause is FailureCause.CRASHED
        assert may_try(want, failure, 1e6) is (rolls_out or not ends_it)
        assert may_try(want, failure, 100.0) is not ends_it


def test_a_version_is_blamed_by_words_and_a_witness_only() -> None:
    want, refused = Want(A, Role.CANDIDATE), FailureCause.REFUSED
    failure = count_failure(want, "no such operator", None, cause=refused, now=0.0)
    assert not failure.by_version
    away = add_witness(failure, WitnessAnswer.UNTRIED, 1.0)
    assert not away.by_version
    assert away.witness_at == 2.0
    no = add_witness(away, WitnessAnswer.REFUSED, 2.0)
    assert not no.by_version
    assert no.witness_at == 4.0
    yes = add_witness(no, WitnessAnswer.LOADS, 4.0)
    assert yes.by_version
    again = count_failure(want, "no such operator", yes, cause=refused, now=5.0)
    assert again.by_version
    assert again.witness_at is None
    other = count_failure(want, "connection reset", again, cause=FailureCause.AWAY, now=6.0)
    assert other.witness is WitnessAnswer.UNTRIED


def test_a_witness_that_was_loaded_after_one_refusal_is_asked_again_after_the_next() -> None:
    def refuse(previous: PackageFailure | None, now: float) -> PackageFailure:
        return count_failure(want, "CUDA failure 719", previous, cause=refused, now=now)

    want, refused = Want(A, Role.CANDIDATE), FailureCause.REFUSED
    first = add_witness(refuse(None, 0.0), WitnessAnswer.LOADS, 0.5)
    assert not first.again
    second = refuse(first, 1.0)
    assert second.again
    assert second.witness is WitnessAnswer.UNTRIED
    assert second.witness_at == 1.0
    sick = add_witness(second, WitnessAnswer.REFUSED, 1.5)
    assert refuse(sick, 2.0).witness is WitnessAnswer.REFUSED
    third = refuse(add_witness(second, WitnessAnswer.LOADS, 1.5), 2.0)
    assert third.again
    assert third.witness is WitnessAnswer.LOADS
    assert not refuse(count_failure(want, "away", third, cause=AWAY, now=3.0), 4.0).again


@given(st.integers(1, 200))
def test_waits_grow_to_a_minute_and_no_further(tries: int) -> None:
    failure = None
    for _ in range(tries):
        failure = count_failure(Want(A, Role.STABLE), "no", failure, cause=AWAY, now=0.0)
    assert failure is not None
    assert failure.retry_at == min(60.0, 2.0 ** (tries - 1))


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("InvalidProtobuf: Protobuf parsing failed", True),
        ("CUDA failure 2: out of memory", False),  # which other models may hold
        ("onnx runtime error 6: Failed to allocate memory for requested buffer of size 9", False),
        ("TritonModelException: torch.OutOfMemoryError: CUDA out of memory", False),
        ("engine: CUDA error: an illegal memory access was encountered", False),
        ("engine: CUDA error: unspecified launch failure", False),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", False),
        ("RuntimeError: No CUDA GPUs are available", False),
        ("CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version", False),
        ("CUDNN failure 1: CUDNN_STATUS_NOT_INITIALIZED", False),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", False),
        ("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)", False),
        ("engine: the memory does not suffice: Unable to allocate 3.00 GiB for an array", False),
        ("engine: CUDA error: no kernel image is available for execution on the device", False),
        ("CUDA error: the provided PTX was compiled with an unsupported toolchain.", False),
        ("CUDA error: unknown error", False),
        ("CUDA error: initialization error", False),
        ("RuntimeError: it can't use a GPU for CUDA graphs: CUDA error: operation failed", False),
        ("engine: CUDA error: device-side assert triggered", True),  # an id beyond its vocabulary
        ("ModuleNotFoundError: No module named 'onnxruntime'", False),
        ("unable to find backend library for backend 'onnxruntime'", False),
        ("Unable to create shared memory region: No space left on device", False),
        ("Request for unknown model: 'm.1' has no available versions", False),  # Triton stops
    ],
)
def test_tritons_words_tell_whose_fault_it_is(words: str, *, version: bool) -> None:
    assert is_version_fault(words) is version


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 400)), min_size=1, max_size=20))
def test_a_model_expires_only_after_its_whole_grace_unwanted(
    steps: list[tuple[bool, float]],
) -> None:
    ledger, now, since = ModelLedger().place(A), 1.0, None
    for is_wanted, passed in steps:
        now += passed
        since = None if is_wanted else since or now
        ledger = ledger.with_unwanted([Want(A, Role.STABLE)] if is_wanted else [], now)
        expected = since is not None and now - since >= 600
        assert (A.triton_model in ledger.find_expired(now, 600)) == expected


def baking() -> EndpointStatus:
    """Version 2 in its bake, with version 1 as the control."""
    return EndpointStatus(
        routes=(
            Route(arm=Arm.STABLE, ref=B, weight=95),
            Route(arm=Arm.CONTROL, ref=A, weight=5),
        ),
        packages=(B, A),
        rollout=RolloutState(
            id="r", candidate=B, stable=A, began=1.0, step_began=1.0, promoted_at=2.0
        ),
    )


def test_in_a_bake_the_new_version_is_on_trial_and_the_old_one_is_not() -> None:
    assert list_wanted([endpoint(baking())]) == (
        Want(B, Role.STABLE, on_trial=True, rolls_out=True),
        Want(A, Role.KEPT),
    )


def test_a_version_at_fault_in_its_bake_leaves_room_for_the_old_one() -> None:
    new, _ = list_wanted([endpoint(baking())])
    failure = count_failure(new, "crash", None, cause=FailureCause.CRASHED, now=0.0)
    assert not may_try(new, failure, 299.0)
    assert may_try(new, failure, 300.0)


def test_a_ledger_counts_the_ends_under_a_model_until_nobody_wants_it() -> None:
    ledger = (
        ModelLedger()
        .place(A)
        .count_end_of_triton([A])
        .place(A)
        .count_end_of_triton([A])
        .count_end_of_load(A)
    )
    read = ModelLedger.model_validate_json(ledger.model_dump_json())
    assert read == ledger
    assert read.with_unwanted([Want(A, Role.CANDIDATE)], 5.0).crash_reason(A)
    assert not read.with_unwanted([], 5.0).crash_reason(A)
    assert not read.crash_reason(B)
    assert read.usual.count == 0


def test_a_load_that_succeeds_takes_back_the_ends_of_loads_before() -> None:
    ledger = ModelLedger().place(A).count_end_of_load(A).confirm_loaded(A).count_end_of_load(A)
    assert not ledger.crash_reason(A)
    assert ledger.count_end_of_load(A).crash_reason(A)


def test_ends_and_time_without_a_model_on_trial_are_what_is_usual() -> None:
    ledger = (
        ModelLedger()
        .place(A)
        .count_trial_seconds([], 60.0)
        .count_end_of_triton([])
        .count_trial_seconds([A], 5.0)
    )
    assert (ledger.usual.count, ledger.usual.seconds) == (1, 60.0)
    assert ledger.entries[A.triton_model].held.seconds == 5.0


def test_a_loader_wants_what_the_endpoints_of_its_pool_name() -> None:
    def of(pool: str, package: ModelRef, **more: str) -> ModelEndpoint:
        routes = (Route(arm=Arm.STABLE, ref=package, weight=100),)
        status = EndpointStatus(routes=routes, packages=(package,), pool=pool, **more)
        return endpoint(status, name=f"{pool}-{package.version}")

    endpoints = [of("default", A), of("gpu", B)]
    assert list_wanted(endpoints) == (Want(A, Role.STABLE),)
    assert list_wanted(endpoints, "gpu") == (Want(B, Role.STABLE),)
    assert list_wanted(endpoints, "other") == ()


def test_what_moves_to_a_pool_is_on_trial_there_and_stable_where_it_is() -> None:
    routes = (Route(arm=Arm.STABLE, ref=A, weight=100),)
    moving = endpoint(
        EndpointStatus(routes=routes, packages=(A, B), pool="cpu", next_pool="gpu"), name="moving"
    )
    assert list_wanted([moving], "cpu") == (Want(A, Role.STABLE), Want(B, Role.KEPT))
    assert list_wanted([moving], "gpu") == (
        Want(A, Role.CANDIDATE, on_trial=True),
        Want(B, Role.CANDIDATE, on_trial=True),
    )


def test_what_moves_to_a_pool_waits_there_for_the_loaders_that_come_first() -> None:
    routes = (Route(arm=Arm.STABLE, ref=A, weight=100),)
    turn = {"pool": "cpu", "next_pool": "gpu", "next_loading": ("first",)}
    moving = EndpointStatus.model_validate({"routes": routes, "packages": (A, B), **turn})

    def waiting(*more: ModelEndpoint, pool: str = "gpu", loader: str = "other") -> set[str]:
        wants = list_wanted([endpoint(moving), *more], pool, loader)
        return {want.ref.version for want in wants if want.waits}

    assert waiting() == {"1", "2"}
    assert waiting(loader="first") == waiting(pool="cpu") == set()
    serving = EndpointStatus(routes=(Route(arm=Arm.STABLE, ref=B, weight=100),), pool="gpu")
    assert waiting(endpoint(serving, name="serving")) == {"1"}


def test_a_pool_of_another_kind_of_device_loads_its_own_package_and_nothing_else() -> None:
    routes = (Route(arm=Arm.STABLE, ref=A, weight=100),)
    status = EndpointStatus(
        routes=routes, packages=(A,), pool="cpu", next_pool="gpu", next_packages=(B,)
    )
    moving = endpoint(status, name="moving")
    assert list_wanted([moving], "cpu") == (Want(A, Role.STABLE),)
    assert list_wanted([moving], "gpu") == (Want(B, Role.CANDIDATE, on_trial=True),)


def test_a_candidate_waits_where_other_loaders_come_first_and_only_while_it_is_brought_in() -> None:
    def status(phase: Phase, package: ModelRef = B) -> EndpointStatus:
        candidate = Candidate(version="2", phase=phase, ref=package)
        return EndpointStatus(packages=(A, B), candidate=candidate, loading=("first",))

    def waiting(status: EndpointStatus, loader: str) -> set[str]:
        wants = list_wanted([endpoint(status)], loader=loader)
        return {want.ref.version for want in wants if want.waits}

    assert waiting(status(Phase.LOADING), "other") == {"2"}
    assert waiting(status(Phase.BLOCKED), "other") == {"2"}
    assert waiting(status(Phase.LOADING), "first") == set()
    assert waiting(status(Phase.CANARY), "other") == set()
    everybody = status(Phase.LOADING).model_copy(update={"loading": ()})
    assert waiting(everybody, "other") == set()
    # Another endpoint serves it: there is nothing to wait for.
    routes = (Route(arm=Arm.STABLE, ref=B, weight=100),)
    serving = endpoint(EndpointStatus(routes=routes, packages=(B,)), name="serving")
    for order in (
        [serving, endpoint(status(Phase.LOADING))],
        [endpoint(status(Phase.LOADING)), serving],
    ):
        assert not any(want.waits for want in list_wanted(order, loader="other"))


def test_a_triton_is_ready_with_what_it_holds_and_waits_for_nothing_that_comes_back() -> None:
    back, missing = Want(A, Role.STABLE, returns=True), Want(B, Role.STABLE)
    long_ago = count_failure(missing, "no", None, cause=AWAY, now=0.0)
    now, failures = AWAY_GRACE_SECONDS + 1.0, {B.triton_model: long_ago}
    assert find_awaited([back], (), {}, now) == ()
    assert find_awaited([back, missing], (), failures, now) == (B,)  # it holds none at all
    assert find_awaited([back, missing], {A.triton_model}, failures, 1.0) == (B,)
    assert find_awaited([back, missing], {A.triton_model}, failures, now) == ()

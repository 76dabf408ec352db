"""What the loaders' reports mean for a rollout."""

import pytest
from registry_fakes import ref, refusal, report, surroundings

from contracts.loading import FailureCause, LoadFailure
from registry.reconcile.rollouts import Surroundings

OLD, NEW = ref("1", "a"), ref("2", "b")


def test_loaded_is_what_every_ready_triton_holds() -> None:
    assert surroundings((report(OLD, NEW), report(OLD)), "2").loaded == {OLD}


def test_what_is_routed_stays_loaded_while_a_new_triton_brings_it_in() -> None:
    reports = report(OLD, NEW), report(OLD)
    assert surroundings(reports, "2", {OLD, NEW}).loaded == {OLD, NEW}
    assert surroundings((report(OLD), report(OLD)), "2", {OLD, NEW}).loaded == {OLD}


def test_what_is_routed_stays_loaded_while_a_triton_that_restarted_fails_at_it_for_a_while() -> (
    None
):
    late = LoadFailure(ref=NEW, reason="Deadline Exceeded", by_version=False)
    reports = report(OLD, NEW, loader="a"), report(OLD, loader="b", failed=(late,))
    assert surroundings(reports, "2", {OLD, NEW}).loaded == {OLD, NEW}


@pytest.mark.parametrize("fields", [{"persists": True}, {"cause": FailureCause.CRASHED}])
def test_what_is_routed_is_not_loaded_if_more_than_half_of_the_tritons_can_not_bring_it_in(
    fields: dict[str, object],
) -> None:
    told = {"ref": NEW, "reason": "no space left", "by_version": False}
    failure = LoadFailure.model_validate(told | fields)
    failing = [report(OLD, loader=name, failed=(failure,)) for name in ("b", "c")]
    assert surroundings((report(OLD, NEW, loader="a"), *failing), "2", {OLD, NEW}).loaded == {OLD}
    one = report(OLD, NEW, loader="a"), report(OLD, NEW, loader="c"), failing[0]
    assert surroundings(one, "2", {OLD, NEW}).loaded == {OLD, NEW}


def test_a_triton_that_gets_no_traffic_is_of_no_account() -> None:
    starting = report(ready=False)
    assert surroundings((report(OLD, NEW), starting), "2").loaded == {OLD, NEW}


def test_without_a_ready_triton_nothing_is_loaded() -> None:
    assert surroundings((), None) == Surroundings()
    assert surroundings((report(OLD, ready=False),), None).loaded == frozenset()


def test_only_a_versions_own_fault_is_a_failure() -> None:
    own = refusal(NEW, "no such operator")
    passing = LoadFailure(ref=OLD, reason="the store is away", by_version=False)
    seen = surroundings((report(failed=(own, passing)),), "2")
    assert seen.failures == {NEW: "Triton refused it: no such operator"}


def test_a_version_that_one_sick_triton_refuses_stays_loaded_for_its_rollout() -> None:
    sick = refusal(NEW, "uncorrectable ECC error", by_version=False, persists=True)
    reports = (report(OLD, NEW, loader="a"), report(OLD, loader="b", failed=(sick,)))
    assert surroundings(reports, "2", {OLD, NEW}) == Surroundings(frozenset({OLD, NEW}), {}, "2")

"""What a Job, its pod and its log say is told apart: the version's own fault, or the cluster's."""

from typing import Any

import pytest
from registry_fakes import ref

from contracts.endpoint import Phase
from registry.conversions.job_outcome import ConversionLimits, PendingPod, state_of
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    PublishedPackage,
    result_file,
)

LIMITS = ConversionLimits("4Gi", 1800.0, "convert")
JOB: dict[str, Any] = {"metadata": {"name": "j"}, "status": {}}
PUBLISHED = PublishedPackage(ref=ref())
NOISE = '{"level": "info", "message": "a library speaks"}\nTraceback of something\n'


def pod(phase: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": {"phase": phase, **status}}


def ended(
    code: int, reason: str = "Error", *, message: str = "", name: str = "convert", **status: Any
) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return pod("Failed", containerStatuses=[{"name": name, "state": state}], **status)


def failed(found: object) -> ConversionFailure:
    assert isinstance(found, ConversionFailure)
    return found


def test_the_containers_own_message_is_the_result_however_it_ended() -> None:
    message = result_file(PUBLISHED).decode()
    assert state_of(JOB, ended(0, "Completed", message=message), NOISE, LIMITS) == PUBLISHED
    assert state_of(JOB, ended(139, message=message), NOISE, LIMITS) == PUBLISHED


def test_a_forged_result_in_the_log_is_not_believed() -> None:
    """A version's code prints that another package is published."""
    log = f"{NOISE}{PUBLISHED.model_dump_json()}\n"
    assert isinstance(state_of(JOB, pod("Running"), log, LIMITS), ConversionProgress)
    assert failed(state_of(JOB, ended(1), log, LIMITS)).crashed
    honest = ConversionFailure(reason="a strange graph", by_version=True)
    told = ended(0, message=result_file(honest).decode())
    assert state_of(JOB, told, log, LIMITS) == honest


def test_a_container_that_others_put_beside_it_has_no_say() -> None:
    beside = ended(0, message=result_file(PUBLISHED).decode(), name="sidecar")
    assert isinstance(state_of(JOB, beside, "", LIMITS), ConversionFailure)


def test_progress_names_no_phase_but_those_of_a_conversion() -> None:
    log = '{"kind": "progress", "phase": "Serving", "message": "nothing to see"}\n'
    assert state_of(JOB, pod("Running"), log, LIMITS) == state_of(JOB, pod("Running"), "", LIMITS)


def test_the_newest_progress_is_told() -> None:
    steps = [
        ConversionProgress(phase=Phase.CONVERTING, message="one"),
        ConversionProgress(phase=Phase.VERIFYING, message="two"),
    ]
    log = NOISE.join(step.model_dump_json() + "\n" for step in steps)
    assert state_of(JOB, pod("Running"), log, LIMITS) == steps[1]
    silent = state_of(JOB, pod("Running"), "", LIMITS)
    assert isinstance(silent, ConversionProgress)


def test_too_little_memory_may_be_the_nodes_and_names_the_limit() -> None:
    found = failed(state_of(JOB, ended(137, "OOMKilled"), NOISE, LIMITS))
    assert found.crashed
    assert not found.by_version
    assert "4Gi" in found.reason


@pytest.mark.parametrize(
    "found",
    [
        state_of(JOB, pod("Failed", reason="DeadlineExceeded"), "", LIMITS),
        state_of(
            {
                "status": {
                    "conditions": [
                        {
                            "type": "Failed",
                            "status": "True",
                            "reason": "DeadlineExceeded",
                        }
                    ]
                }
            },
            None,
            "",
            LIMITS,
        ),
    ],
)
def test_too_much_time_blames_nobody(found: object) -> None:
    assert failed(found).crashed
    assert not failed(found).by_version
    assert "1800 s" in failed(found).reason


def test_a_crash_blames_nobody_and_keeps_its_last_line() -> None:
    found = failed(state_of(JOB, ended(1), NOISE, LIMITS))
    assert found.crashed
    assert not found.by_version
    assert "status 1: Traceback of something" in found.reason


@pytest.mark.parametrize(
    "taken",
    [
        pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
        pod("Failed", reason="Shutdown"),
        ended(143),
        ended(137, conditions=[{"type": "DisruptionTarget", "status": "True"}]),
    ],
)
def test_what_the_cluster_ends_is_tried_again(taken: dict[str, Any]) -> None:
    assert not failed(state_of(JOB, taken, NOISE, LIMITS)).by_version


def test_a_full_scratch_folder_of_its_own_is_the_versions_fault() -> None:
    taken = pod(
        "Failed",
        reason="Evicted",
        message='Usage of EmptyDir volume "work" exceeds the limit',
    )
    assert failed(state_of(JOB, taken, "", LIMITS)).by_version


def test_a_good_end_without_a_result_is_not_blamed_on_the_version() -> None:
    assert not failed(state_of(JOB, pod("Succeeded"), "", LIMITS)).by_version


def test_a_job_that_failed_without_a_pod_says_why() -> None:
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "m",
    }
    found = failed(state_of({"status": {"conditions": [condition]}}, None, "", LIMITS))
    assert not found.by_version
    assert found.reason.endswith(": m")


@pytest.mark.parametrize(
    ("waiting", "why"),
    [
        (None, "not there yet"),
        (
            pod(
                "Pending",
                containerStatuses=[
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}
                ],
            ),
            "ImagePullBackOff no image",
        ),
        (
            pod(
                "Pending",
                conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}],
            ),
            "no node takes it: 0/1 nodes",
        ),
        ({"metadata": {"name": "p", "deletionTimestamp": "now"}, "status": {}}, "not there yet"),
    ],
)
def test_what_has_not_begun_says_why(waiting: dict[str, Any] | None, why: str) -> None:
    found = state_of(JOB, waiting, "", LIMITS)
    assert isinstance(found, PendingPod)
    assert why in found.reason

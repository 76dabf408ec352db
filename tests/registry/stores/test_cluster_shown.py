"""What people see of an endpoint with kubectl: columns, conditions, Events."""

from typing import Any

from registry_fakes import ref

from contracts.endpoint import Arm, Candidate, EndpointStatus, Phase, Route, Transition
from contracts.status_events import new_lines
from registry.stores.cluster_events import event
from registry.stores.cluster_shown import conditions, make_columns

STABLE = Route(arm=Arm.STABLE, ref=ref("7"), weight=95)
SERVING = EndpointStatus(routes=(STABLE,))
CANARY = EndpointStatus(
    routes=(STABLE, Route(arm=Arm.CANARY, ref=ref("8"), weight=5)),
    candidate=Candidate(version="8", phase=Phase.CANARY, ref=ref("8")),
)
BLOCKED = EndpointStatus(
    candidate=Candidate(version="1", phase=Phase.BLOCKED, reason="the store is away")
)
ITEM = {
    "apiVersion": "headrace.dev/v1alpha1",
    "kind": "ModelEndpoint",
    "metadata": {"name": "e", "namespace": "models", "uid": "u"},
}


def by_kind(status: EndpointStatus, before: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["type"]: item for item in conditions(status, before, 3, 1000.0)}


def test_the_columns_say_who_serves_and_who_comes() -> None:
    assert make_columns(EndpointStatus()) == {"pool": "default"}
    assert make_columns(SERVING) == {
        "stable": "7",
        "phase": "Serving",
        "weights": "7: 95 %",
        "pool": "default",
    }
    assert make_columns(CANARY) == {
        "stable": "7",
        "candidate": "8",
        "phase": "Canary",
        "weights": "7: 95 %, 8: 5 %",
        "pool": "default",
    }


def test_a_move_shows_both_pools_and_a_pool_without_tritons_is_not_ready() -> None:
    moving = SERVING.model_copy(update={"pool": "cpu", "next_pool": "gpu"})
    assert make_columns(moving)["pool"] == "cpu to gpu"
    assert by_kind(moving, [])["Ready"]["status"] == "True"
    said = "no Triton of the pool cpu has given a sign of life"
    ready = by_kind(moving.model_copy(update={"unserved": said}), [])["Ready"]
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "NoTritons", said)


def test_an_endpoint_is_ready_once_a_version_serves() -> None:
    assert by_kind(CANARY, [])["Ready"]["status"] == "True"
    waiting = by_kind(BLOCKED, [])["Ready"]
    assert waiting["status"] == "False"
    assert waiting["message"].endswith("the store is away")


def test_progressing_says_which_version_and_why() -> None:
    assert by_kind(SERVING, [])["Progressing"]["status"] == "False"
    assert by_kind(CANARY, [])["Progressing"]["reason"] == "Canary"
    blocked = by_kind(BLOCKED, [])["Progressing"]
    assert blocked["status"] == "False"
    assert "the store is away" in blocked["message"]


def test_a_conditions_time_is_that_of_its_last_change() -> None:
    before = conditions(SERVING, [], 1, 5.0)
    after = {item["type"]: item for item in conditions(CANARY, before, 2, 1000.0)}
    assert after["Ready"]["lastTransitionTime"] == "1970-01-01T00:00:05Z"
    assert after["Progressing"]["lastTransitionTime"] == "1970-01-01T00:16:40Z"
    assert after["Ready"]["observedGeneration"] == 2


def test_each_transition_is_one_event_however_often_it_is_told() -> None:
    lines = (
        Transition(at=2.0, version="8", phase=Phase.ROLLED_BACK, reason="errors", by="ada"),
        Transition(at=1.0, version="8", phase=Phase.CANARY),
    )
    after = EndpointStatus(history=lines)
    assert [line.at for line in new_lines(EndpointStatus(), after)] == [1.0, 2.0]
    assert new_lines(after, after) == []
    told = event(ITEM, lines[0])
    assert told == event(ITEM, lines[0])
    assert told["metadata"]["name"] != event(ITEM, lines[1])["metadata"]["name"]
    assert told["type"] == "Warning"
    assert told["reason"] == "RolledBack"
    assert told["message"] == "version 8 is RolledBack: errors (by ada)"
    assert told["involvedObject"]["uid"] == "u"
    assert event(ITEM, lines[1])["type"] == "Normal"


def test_an_endpoint_above_a_ceiling_is_not_accepted_and_says_why() -> None:
    assert by_kind(SERVING, [])["Accepted"]["status"] == "True"
    above = SERVING.model_copy(update={"refused": ("instances is 9", "timeout is 3")})
    refused = by_kind(above, [])["Accepted"]
    assert (refused["status"], refused["reason"]) == ("False", "AboveCeiling")
    assert refused["message"] == "instances is 9; timeout is 3"
    assert by_kind(above, [])["Ready"]["status"] == "True"


def test_a_guardrail_that_fits_no_label_is_a_condition_and_one_that_does_is_none() -> None:
    assert "Guarded" not in by_kind(SERVING, [])
    wrong = SERVING.model_copy(update={"unguarded": "the model has no label toxic"})
    told = by_kind(wrong, [])["Guarded"]
    assert (told["status"], told["reason"]) == ("False", "UnknownLabel")
    assert told["message"] == "the model has no label toxic"
    assert by_kind(wrong, [])["Accepted"]["status"] == "True"

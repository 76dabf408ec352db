"""The endpoint object: defaults suit most users, and a mistake is told by its path."""

import pytest
from pydantic import ValidationError

from contracts.endpoint import (
    AliasVersion,
    Arm,
    Candidate,
    EndpointStatus,
    FollowVersion,
    ModelEndpoint,
    Phase,
    PinnedVersion,
    Route,
    rollout_spec,
)
from contracts.gateway_metrics import STAGE_SECONDS
from contracts.model import ModelRef
from contracts.rollout import RolloutState, Strategy
from contracts.tasks import Task


def parse(spec: dict[str, object]) -> ModelEndpoint:
    return ModelEndpoint.model_validate(
        {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "ModelEndpoint",
            "metadata": {"name": "sentiment"},
            "spec": spec,
        }
    )


def test_a_model_is_all_that_an_endpoint_needs() -> None:
    endpoint = parse({"model": "sentiment-classifier"})
    assert endpoint.spec.version == FollowVersion()
    assert endpoint.spec.serving.max_tokens == 512
    assert endpoint.status == EndpointStatus()
    assert endpoint.status.stable is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"follow": "latest"}, FollowVersion()),
        ({"alias": "champion"}, AliasVersion(alias="champion")),
        ({"pin": "7"}, PinnedVersion(pin="7")),
    ],
)
def test_a_version_is_followed_aliased_or_pinned(
    written: dict[str, str], meant: FollowVersion | AliasVersion | PinnedVersion
) -> None:
    assert parse({"model": "m", "version": written}).spec.version == meant


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"model": "m", "limits": {"timeoutSeconds": 0}}, ("spec", "limits", "timeoutSeconds")),
        ({"model": "m", "serving": {"maxTokens": "many"}}, ("spec", "serving", "maxTokens")),
        ({"model": "m", "serving": {"lengthBuckets": [0]}}, ("spec", "serving", "lengthBuckets")),
        (
            {"model": "m", "serving": {"lengthBuckets": [512, 16]}},
            ("spec", "serving", "lengthBuckets"),
        ),
        ({"model": "m", "colour": "red"}, ("spec", "colour")),
        ({"model": "m", "slo": {"availability": 1}}, ("spec", "slo", "availability")),
        (
            {"model": "m", "slo": {"latency": {"threshold": "250ms"}}},
            ("spec", "slo", "latency", "threshold"),
        ),
        ({}, ("spec", "model")),
    ],
)
def test_a_mistake_is_told_by_the_path_of_its_field(
    spec: dict[str, object], path: tuple[str, ...]
) -> None:
    with pytest.raises(ValidationError) as caught:
        parse(spec)
    assert caught.value.errors()[0]["loc"] == path


def test_an_object_written_and_read_again_is_the_same() -> None:
    ref = ModelRef(model="m", version="1", package="ab" * 32)
    endpoint = parse({"model": "m"}).model_copy(
        update={
            "status": EndpointStatus(
                generation=3, routes=(Route(arm=Arm.STABLE, ref=ref, weight=100),), packages=(ref,)
            )
        }
    )
    again = ModelEndpoint.model_validate_json(endpoint.model_dump_json(by_alias=True))
    assert again == endpoint
    assert again.status.stable == ref


def test_a_status_of_before_is_read_with_its_unix_seconds_and_its_names() -> None:
    before = {"retry_at": 5.5, "version": "2", "phase": "Waiting"}
    status = EndpointStatus.model_validate({"candidate": before, "next_pool": "gpu", "asleep": 7})
    now = status.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert now["candidate"]["retryAt"] == "1970-01-01T00:00:05.5Z"
    assert (now["nextPool"], now["asleep"]) == ("gpu", "1970-01-01T00:00:07Z")
    assert EndpointStatus.model_validate(now) == status


def test_an_objective_of_latency_is_one_of_the_edges_at_which_gateways_count() -> None:
    for edge in STAGE_SECONDS.buckets:
        slo = {"latency": {"percentile": 99, "threshold": edge}}
        latency = parse({"model": "m", "slo": slo}).spec.slo.latency
        assert latency is not None
        assert latency.threshold == edge


def test_availability_is_promised_unless_it_is_taken_back() -> None:
    assert parse({"model": "m"}).spec.slo.availability == 0.999
    assert parse({"model": "m"}).spec.slo.latency is None
    assert parse({"model": "m", "slo": {"availability": None}}).spec.slo.availability is None


def ref(version: str, package: str = "a", space: str = "") -> ModelRef:
    return ModelRef(model="m", version=version, package=package * 64, space=space * 12)


def on_its_way(old: ModelRef, new: ModelRef, task: Task) -> EndpointStatus:
    """A candidate that waits for its rollout."""
    return EndpointStatus(
        task=task,
        routes=(Route(arm=Arm.STABLE, ref=old, weight=100),),
        candidate=Candidate(version=new.version, phase=Phase.LOADED, ref=new),
    )


@pytest.mark.parametrize(
    ("task", "old", "new", "rollout", "expected"),
    [
        (Task.TEXT_EMBEDDING, ref("1"), ref("2"), {}, Strategy.CUTOVER),
        (Task.SPARSE_EMBEDDING, ref("1"), ref("2"), {}, Strategy.CUTOVER),
        (Task.HYBRID_EMBEDDING, ref("1"), ref("2"), {}, Strategy.CUTOVER),
        (Task.TEXT_CLASSIFICATION, ref("1"), ref("2"), {}, Strategy.CANARY),
        # One version in another precision has the same vectors.
        (Task.TEXT_EMBEDDING, ref("1"), ref("1", "b"), {}, Strategy.CANARY),
        (
            Task.TEXT_EMBEDDING,
            ref("1"),
            ref("2"),
            {"embedding": {"space": "same"}},
            Strategy.CANARY,
        ),
        # Two versions of one space, and what a person says of them.
        (Task.TEXT_EMBEDDING, ref("1", space="a"), ref("2", space="a"), {}, Strategy.CANARY),
        (
            Task.TEXT_EMBEDDING,
            ref("1", space="a"),
            ref("2", space="a"),
            {"embedding": {"space": "cutover"}},
            Strategy.CUTOVER,
        ),
        (Task.TEXT_EMBEDDING, ref("1", space="a"), ref("2", space="b"), {}, Strategy.CUTOVER),
        (
            Task.TEXT_EMBEDDING,
            ref("1", space="a"),
            ref("2", space="b"),
            {"embedding": {"space": "same"}},
            Strategy.CANARY,
        ),
        # The model of that name was registered again, and counts its versions from 1.
        (Task.TEXT_EMBEDDING, ref("1", space="a"), ref("1", "b", "b"), {}, Strategy.CUTOVER),
        # A package from before there were spaces.
        (Task.TEXT_EMBEDDING, ref("1"), ref("2", space="b"), {}, Strategy.CUTOVER),
        (Task.TEXT_EMBEDDING, ref("1"), ref("1", "b", "b"), {}, Strategy.CANARY),
        (Task.TEXT_EMBEDDING, ref("1"), ref("2"), {"strategy": "direct"}, Strategy.DIRECT),
        (Task.TEXT_EMBEDDING, ref("1"), ref("2"), {"strategy": "shadow"}, Strategy.CUTOVER),
        (
            Task.TEXT_EMBEDDING,
            ref("1", space="a"),
            ref("2", space="a"),
            {"strategy": "shadow"},
            Strategy.SHADOW,
        ),
        (Task.TEXT_CLASSIFICATION, ref("1"), ref("2"), {"strategy": "cutover"}, Strategy.CUTOVER),
    ],
)
def test_another_space_of_an_embedding_model_is_cut_over_and_never_split(
    task: Task, old: ModelRef, new: ModelRef, rollout: dict[str, object], expected: Strategy
) -> None:
    endpoint = parse({"model": "m", "rollout": rollout})
    waiting = endpoint.model_copy(update={"status": on_its_way(old, new, task)})
    assert waiting.rollout_spec.strategy is expected
    state = RolloutState(id="r", candidate=new, stable=old, began=1.0, step_began=1.0)
    for place in ("rollout", "last_rollout"):
        status = EndpointStatus(task=task).model_copy(update={place: state})
        assert rollout_spec(endpoint.spec, status).strategy is expected

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import (
    AliasVersion,
    EndpointLimits,
    EndpointSpec,
    FollowVersion,
    Metadata,
    ModelEndpoint,
    PinnedVersion,
    ServingOptions,
)
from contracts.rollout import (
    COMMAND_PREFIX,
    AgreementCheck,
    Checks,
    QualityCheck,
    RolloutSpec,
    ShadowStep,
    Strategy,
    ToleranceLine,
    WeightStep,
)
from headrace.endpoints.document import as_written, as_yaml, read
from headrace.errors import BadDocumentError

HEAD = """\
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {name: tone}
spec:
  model: tone-model
"""


def refusal(text: str) -> str:
    with pytest.raises(BadDocumentError) as caught:
        read(text, "tone.yaml")
    return caught.value.message


def test_a_name_and_a_model_are_enough() -> None:
    (endpoint,) = read(HEAD, "tone.yaml")
    assert endpoint.spec == EndpointSpec(model="tone-model")


def test_several_documents_are_read_in_their_order() -> None:
    found = read(HEAD + "---\n---\n" + HEAD.replace("tone}", "mood}"), "two.yaml")
    assert [endpoint.name for endpoint in found] == ["tone", "mood"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "  rollout: {steps: [{shadow: 100}, {weight: 500}]}",
            "spec.rollout.steps[1].weight: must be less than 100, not 500.",
        ),
        (
            "  rollout: {steps: [{shadow: 100}, {wieght: 5}]}",
            "spec.rollout.steps[1]: must be {shadow: ...} or {weight: ...}, not {wieght: 5}.",
        ),
        ("  rollout: {steps: []}", "spec.rollout.steps: must have at least 1, not []."),
        (
            "  rollout: {steps: [{shadow: 0}, {weight: 5}]}",
            "spec.rollout.steps[0].shadow: must be greater than 0, not 0.",
        ),
        (
            "  rollout: {steps: [{weight: 100}]}",
            "spec.rollout.steps[0].weight: must be less than 100, not 100.",
        ),
        ("  rollout: {holdBack: 0}", "spec.rollout.holdBack: must be greater than 0, not 0."),
        (
            "  rollout: {steps: [{weight: 50}, {weight: 5}]}",
            "spec.rollout: weights must grow from step to step.",
        ),
        (
            "  guardrail: {labels: {toxic: 2}}",
            "spec.guardrail.labels.toxic: must be less than or equal to 1, not 2.",
        ),
        ("  servng: {}", "spec.servng: there is no such field; serving is the nearest."),
        (
            "  maxTokens: 64",
            "spec.maxTokens: there is no such field; did you mean spec.serving.maxTokens?",
        ),
        (
            "  limits: {precision: int8}",
            "spec.limits.precision: there is no such field; did you mean spec.serving.precision?",
        ),
        ("  serving: 5", "spec.serving: must hold fields, not 5."),
        (
            "  version: latest",
            "spec.version: must be {follow: ...}, {alias: ...} or {pin: ...}, not latest.",
        ),
        ("  version: {pin: 7}", 'spec.version.pin: must be text: write it in quotes, "7".'),
        (
            "  rollout: {deadline: 5x}",
            "spec.rollout.deadline: a duration is written as 24h, 90s, 1h30m or 500ms.",
        ),
        ("  serving: {lengthBuckets: 7}", "spec.serving.lengthBuckets: must be auto or a list"),
        (
            "  rollout: {checks: {statistics: [{name: rare}]}}",
            "spec.rollout.checks.statistics[0].name: spec.statistics declares no statistic rare.",
        ),
        ("  limits: {requestsPerSecondPerKey: .inf}", "can't be stored"),
        ("  model: other", "the field model is written twice"),
    ],
)
def test_a_bad_field_is_named_with_its_path_and_a_sentence(more: str, said: str) -> None:
    assert said in refusal(HEAD + more + "\n")


def test_every_bad_field_is_named_once() -> None:
    said = refusal(HEAD + "  serving: {instances: 0}\n  rollout: {holdBack: 70, bake: never}\n")
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:]] == [
        "spec.serving.instances",
        "spec.rollout.bake",
        "spec.rollout.holdBack",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no document"),
        ("a: [", "is no YAML"),
        ("- a\n", "begins with apiVersion"),
        ("? [a, b]\n: c\n", "is no YAML"),
        (HEAD.replace("kind: ModelEndpoint\n", ""), "kind: is needed."),
        (HEAD.replace("{name: tone}", "{name: Tone}"), "metadata.name: must match pattern"),
        (HEAD + "---\n" + HEAD, "document 2: the endpoint tone was in it before"),
    ],
)
def test_what_is_no_endpoint_is_a_sentence(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_status_in_a_document_is_left_aside() -> None:
    (endpoint,) = read(HEAD + "status: {generation: 9, nonsense: true}\n", "tone.yaml")
    assert endpoint.status.generation == 0


def test_a_command_can_not_be_smuggled_in_as_a_note() -> None:
    notes = f"metadata: {{name: tone, annotations: {{{COMMAND_PREFIX}x: '{{}}'}}}}"
    assert "written only by headrace rollout" in refusal(
        HEAD.replace("metadata: {name: tone}", notes)
    )


def test_what_is_at_its_default_is_left_out_unless_asked_for() -> None:
    spec = EndpointSpec(model="m", rollout=RolloutSpec(deadline=5400.0))
    endpoint = ModelEndpoint(metadata=Metadata(name="tone"), spec=spec)
    assert as_written(endpoint)["spec"] == {"model": "m", "rollout": {"deadline": "1h30m"}}
    assert as_written(endpoint, defaults=True)["spec"]["rollout"]["bake"] == "1h"


def test_waiting_commands_are_not_shown_as_notes() -> None:
    notes = {COMMAND_PREFIX + "x": "{}", "team": "search"}
    metadata = Metadata(name="tone", annotations=notes)
    endpoint = ModelEndpoint(metadata=metadata, spec=EndpointSpec(model="m"))
    assert as_written(endpoint)["metadata"]["annotations"] == {"team": "search"}


share = st.floats(0, 1, allow_nan=False)
lines = st.builds(ToleranceLine, absolute=share, relative=st.floats(1, 100))
seconds = st.integers(1, 10**8).map(lambda milliseconds: milliseconds / 1000)
specs = st.builds(
    EndpointSpec,
    model=st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1),
    version=st.one_of(
        st.just(FollowVersion()),
        st.builds(AliasVersion, alias=st.sampled_from(["champion", "yes", "1e3", "null"])),
        st.builds(PinnedVersion, pin=st.integers(1, 999).map(str)),
    ),
    serving=st.builds(ServingOptions, instances=st.integers(1, 64)),
    limits=st.builds(
        EndpointLimits,
        requests_per_second_per_key=st.none() | st.floats(0.001, 1e6, allow_nan=False),
    ),
    rollout=st.builds(
        RolloutSpec,
        strategy=st.sampled_from(Strategy),
        steps=st.builds(
            lambda shadow, weights: (
                *([ShadowStep(shadow=shadow)] if shadow else []),
                *(WeightStep(weight=weight) for weight in sorted(weights)),
            ),
            st.integers(0, 100),
            st.sets(st.integers(1, 99), min_size=1, max_size=5),
        ),
        deadline=seconds,
        bake=seconds | st.just(0.0),
        alias=st.none() | st.just("blue"),
        checks=st.builds(
            Checks,
            latency=st.none(),
            quality=st.none() | st.builds(QualityCheck, fail=lines, pass_=lines),
            agreement=st.none() | st.just(AgreementCheck()),
        ),
    ),
)


@given(specs, st.booleans())
def test_what_is_written_reads_back_as_it_was(spec: EndpointSpec, everything: bool) -> None:
    endpoint = ModelEndpoint(metadata=Metadata(name="tone"), spec=spec)
    (again,) = read(as_yaml(as_written(endpoint, defaults=everything)), "again")
    assert again == endpoint

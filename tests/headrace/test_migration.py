"""KServe's manifests as endpoints.

The forms are those of KServe's public documentation; names and places are our own:
https://kserve.github.io/website/docs/model-serving/storage/providers/hf (``hf://``),
https://kserve.github.io/website/docs/model-serving/predictive-inference/frameworks/tensorflow,
and python/huggingfaceserver/README.md of github.com/kserve/kserve (a container).
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import PinnedVersion, Precision
from contracts.rollout import RolloutSpec, ShadowStep, WeightStep
from contracts.tasks import Task
from headrace import migration
from headrace.endpoints import document
from headrace.errors import BadDocumentError, RefusedError
from headrace.migration import Options, Translation, flags, translate

HUGGING_FACE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: tone
  namespace: shop
  uid: 6c7f
  labels: {team: search}
  annotations:
    sidecar.istio.io/inject: "false"
    kubectl.kubernetes.io/last-applied-configuration: "{}"
    owner: ann
spec:
  predictor:
    minReplicas: 0
    timeout: 30
    canaryTrafficPercent: 10
    serviceAccountName: hub-reader
    model:
      modelFormat: {name: huggingface}
      args:
        - --model_name=tone
        - --model_dir=/mnt/models
        - --task=sequence_classification
        - --dtype=float16
        - --max_length=128
        - --trust_remote_code
      storageUri: hf://acme/tone:3f2a
      resources: {limits: {cpu: "6", nvidia.com/gpu: "1"}}
  transformer:
    containers: [{name: words, image: acme/words:1}]
status: {url: "http://tone.shop.example"}
"""


def one(text: str, **said: str) -> Translation:
    (found,) = translate(text, "isvc.yaml", Options(**said))
    return found


def left(translation: Translation) -> dict[str, str]:
    return dict(translation.left_out)


def test_a_hugging_face_service_becomes_an_endpoint() -> None:
    endpoint = one(HUGGING_FACE).endpoint
    assert endpoint.name == endpoint.spec.model == "tone"
    assert endpoint.metadata.annotations == {"owner": "ann"}
    assert endpoint.spec.task is Task.TEXT_CLASSIFICATION
    assert endpoint.spec.serving.precision is Precision.FP16
    assert endpoint.spec.serving.max_tokens == 128
    assert endpoint.spec.limits.timeout_seconds == 30
    assert one(HUGGING_FACE).register == "hf://acme/tone:3f2a"


def test_a_canary_is_the_first_weight_of_rollouts() -> None:
    usual = RolloutSpec().steps
    later = [step for step in usual if isinstance(step, WeightStep) and step.weight > 10]
    steps = one(HUGGING_FACE).endpoint.spec.rollout.steps
    assert steps == (ShadowStep(shadow=100), WeightStep(weight=10), *later)


STANDARD = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: tone}
spec:
  predictor:
    model: {modelFormat: {name: huggingface}, storageUri: "models:/tone/3"}
  canary:
  - trafficPercent: 20
    predictor:
      name: v4
      minReplicas: 2
      timeout: 20
      model: {modelFormat: {name: huggingface}, storageUri: "models:/tone/4", runtime: other}
  - trafficPercent: 0
    predictor:
      name: dark
      model: {storageUri: "gs://acme/tone-5", args: [--max_length=64]}
  - trafficPercent: 5
    predictor: {name: same, nodeSelector: {disk: ssd}}
  - trafficPercent: 1
    predictor: {name: tree, lightgbm: {storageUri: "gs://acme/tree"}}
status: {canaryStatuses: [{name: v4, ready: true}]}
"""


def test_canaries_of_standard_mode_become_versions_and_the_smallest_share_the_first_weight() -> (
    None
):
    found = one(STANDARD)
    assert found.endpoint.spec.version == PinnedVersion(pin="3")
    assert found.endpoint.spec.rollout.steps[:2] == (ShadowStep(shadow=100), WeightStep(weight=1))
    told = [sentence for sentence in found.changed if sentence.startswith("The canary ")]
    register = "register it as a further version of the model to try it."
    assert told == [
        "The canary v4 (20 %) is models:/tone/4: name it in spec.version to try it.",
        f"The canary dark (0 %) is gs://acme/tone-5: {register}",
        "The canary same (5 %) has no model of its own, and an endpoint tries models only.",
        f"The canary tree (1 %) is gs://acme/tree: {register}",
    ]


def test_what_else_a_canary_of_standard_mode_says_is_named_with_a_reason() -> None:
    found = left(one(STANDARD))
    assert set(found) == {
        "spec.canary[0].predictor.minReplicas",
        "spec.canary[0].predictor.timeout",
        "spec.canary[0].predictor.model.runtime",
        "spec.canary[1].predictor.model.args",
        "spec.canary[2].predictor.nodeSelector",
    }
    assert "all its versions" in found["spec.canary[0].predictor.timeout"]


def test_what_was_not_carried_over_is_named_with_a_reason() -> None:
    assert set(left(one(HUGGING_FACE))) == {
        "metadata.namespace",
        "metadata.labels",
        "metadata.annotations.sidecar.istio.io/inject",
        "spec.predictor.minReplicas",
        "spec.predictor.serviceAccountName",
        "spec.predictor.model.resources",
        "spec.predictor.model.args --trust_remote_code",
        "spec.transformer",
    }
    assert "preprocessor" in left(one(HUGGING_FACE))["spec.transformer"]


def test_what_is_written_can_be_applied() -> None:
    endpoint = one(HUGGING_FACE).endpoint
    assert document.read(document.as_yaml(document.as_written(endpoint)), "-") == (endpoint,)


def test_the_old_schema_is_read_and_a_registered_version_is_pinned() -> None:
    found = one("""\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: churn}
spec: {predictor: {sklearn: {storageUri: "models:/churn-model/7", protocolVersion: v2}}}
""")
    assert found.endpoint.spec.model == "churn-model"
    assert found.endpoint.spec.version == PinnedVersion(pin="7")
    assert found.register == ""
    assert set(left(found)) == {"spec.predictor.sklearn.protocolVersion"}


def test_a_container_of_kserves_server_is_read_and_its_neighbours_are_reported() -> None:
    found = one("""\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: bert}
spec:
  predictor:
    containers:
    - {name: agent, image: acme/agent:2, args: [--quiet]}
    - name: kserve-container
      image: kserve/huggingfaceserver:latest
      args: [--model_name=bert, --model_id=acme/bert-ner, --tensor_input_names=input_ids]
      env: [{name: HF_TOKEN, value: hf_secret}]
""")
    assert found.register == "acme/bert-ner"
    assert {
        "spec.predictor.containers[0]",
        "spec.predictor.containers[1].env",
    } <= set(left(found))
    assert "hf_secret" not in repr(found)


def test_what_a_person_says_goes_before_the_manifest() -> None:
    found = one(HUGGING_FACE, name="mood", model="moods", task="zero-shot-classification")
    spec = found.endpoint.spec
    assert (found.endpoint.name, spec.model, spec.task) == (
        "mood",
        "moods",
        Task.ZERO_SHOT_CLASSIFICATION,
    )


def test_each_service_of_a_list_is_one_and_other_objects_are_reported() -> None:
    text = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: storage-config}, data: {HF_TOKEN: eA==}}
- &first
  apiVersion: serving.kserve.io/v1beta1
  kind: InferenceService
  metadata: {name: a}
  spec: {predictor: {model: {modelFormat: {name: onnx}, storageUri: "s3://models/a"}}}
- {<<: *first, metadata: {name: b.c}}
"""
    first, second = translate(text, "-", Options())
    assert left(first)["Secret storage-config"] == "it is no InferenceService"
    assert second.endpoint.name == "b-c"
    assert any("b.c became b-c" in sentence for sentence in second.changed)
    with pytest.raises(RefusedError, match="holds 2 models"):
        translate(text, "-", Options(name="x"))


def predictor(**fields: Any) -> str:
    whole = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "m"},
        "spec": {"predictor": fields},
    }
    return document.as_yaml(whole)


@pytest.mark.parametrize(
    ("word", "task"),
    [
        ("token_classification", Task.TOKEN_CLASSIFICATION),
        ("text_embedding", Task.TEXT_EMBEDDING),
        ("embed", Task.TEXT_EMBEDDING),
        ("text2text_generation", Task.TEXT_GENERATION),
    ],
)
def test_a_task_is_known_by_kserves_word_for_it(word: str, task: Task) -> None:
    model = {"modelFormat": {"name": "huggingface"}, "args": [f"--task={word}"]}
    assert one(predictor(model=model)).endpoint.spec.task is task


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (predictor(tensorflow={"storageUri": "gs://f"}), "tensorflow"),
        (predictor(model={"modelFormat": {"name": "pmml"}}), "pmml"),
        (predictor(containers=[{"image": "acme/own:1"}]), "container of your own"),
        (predictor(containers=["x"]), "container of your own"),
        (predictor(), "names no model"),
        (
            predictor(model={"modelFormat": {"name": "huggingface"}, "args": ["--task=fill_mask"]}),
            "fill_mask",
        ),
        (
            predictor(model={"modelFormat": {"name": "huggingface"}, "args": ["--max_length=x"]}),
            "must be a whole number",
        ),
    ],
)
def test_a_model_that_headrace_does_not_serve_is_refused(text: str, says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        one(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "is no YAML"),
        ("", "holds no document"),
        ("- a", "begins with apiVersion"),
        ("kind: Service", "holds no InferenceService"),
        ("kind: InferenceService\nspec: text", "spec: Input should be a valid dictionary"),
        (predictor(timeout="soon"), "spec.predictor.timeout: Input should be a valid number"),
        (
            predictor(batcher={"maxBatchSize": 5000}, model={"modelFormat": {"name": "onnx"}}),
            "maxBatchSize",
        ),
    ],
)
def test_what_is_no_service_is_refused_with_the_place(text: str, says: str) -> None:
    with pytest.raises(BadDocumentError, match=says):
        one(text)


PLACES = (
    (),
    ("metadata",),
    ("spec",),
    ("spec", "predictor"),
    ("spec", "predictor", "model"),
    ("spec", "predictor", "model", "modelFormat"),
    ("spec", "predictor", "batcher"),
    ("spec", "canary", 0),
    ("spec", "canary", 0, "predictor"),
    ("spec", "canary", 0, "predictor", "model"),
)
_NAMES = st.text("abcdef", min_size=1, max_size=3)  # none that KServe has
_VALUES = st.recursive(
    st.integers(1, 9) | st.text("xyz", min_size=1),
    lambda inner: (
        st.dictionaries(_NAMES, inner, min_size=1) | st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.tuples(st.sampled_from(PLACES), _NAMES), _VALUES))
def test_every_field_that_nobody_knows_is_reported_once(
    unknown: dict[tuple[tuple[str | int, ...], str], Any],
) -> None:
    model = {"modelFormat": {"name": "onnx"}, "storageUri": "s3://models/a"}
    service: dict[str, Any] = {
        "kind": "InferenceService",
        "metadata": {"name": "m"},
        "spec": {
            "predictor": {"model": model, "batcher": {"maxBatchSize": 4}},
            "canary": [{"predictor": {"name": "c", "model": dict(model)}}],
        },
    }
    service = json.loads(json.dumps(service))  # nothing is shared
    expected = []
    for (place, name), value in unknown.items():
        part: Any = service
        for step in place:
            part = part[step]
        part[name] = value
        expected.append(".".join((*map(str, place), name)).replace(".0", "[0]"))
    reported = [where for where, _ in one(json.dumps(service)).left_out]
    assert sorted(reported) == sorted(expected)


def test_flags_are_read_in_each_form() -> None:
    given = ["run", "--a-b", "1", "-p", "80", "--c=2", "--on", "--d", "x", "y"]
    assert flags(given) == {"a_b": "1", "p": "80", "c": "2", "on": "true", "d": "x"}


ROOT = Path(__file__).parent.parent.parent


def test_values_and_pages_that_reasons_name_exist() -> None:
    tables = [value for value in vars(migration).values() if isinstance(value, dict)]
    said = " ".join(str(each) for table in tables for each in table.values())
    values = yaml.safe_load((ROOT / "charts/headrace/values.yaml").read_text(encoding="utf-8"))
    parts = "|".join(values)
    for name in re.findall(rf"\b((?:{parts})(?:\.\w+)+)", said):
        found = values
        for step in name.split("."):
            assert step in found, name
            found = found[step]
    pages = re.findall(r"docs/[\w-]+\.md", said)
    assert [page for page in pages if not (ROOT / page).exists()] == []

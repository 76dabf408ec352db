"""Seldon's manifests as endpoints.

The forms are those of Seldon's public documentation and samples; names and places are our own:
https://docs.seldon.ai/seldon-core-1/configuration/servers/huggingface (Core 1), and
samples/models/hf-sentiment.yaml and samples/experiments/sklearn-mirror.yaml of
github.com/SeldonIO/seldon-core (Core 2).
"""

import pytest

from contracts.endpoint import AliasVersion
from contracts.rollout import ShadowStep, WeightStep
from contracts.tasks import Task
from headrace.errors import BadDocumentError, RefusedError
from headrace.migration.draft import Options, Translation
from headrace.migration.seldon import translate

CORE_1 = """\
apiVersion: machinelearning.seldon.io/v1
kind: SeldonDeployment
metadata: {name: reviews, annotations: {owner: ann}}
spec:
  name: anything
  protocol: v2
  predictors:
  - name: default
    replicas: 2
    traffic: 80
    graph:
      name: classifier
      implementation: HUGGINGFACE_SERVER
      envSecretRefName: bucket
      parameters:
      - {name: task, type: STRING, value: text-classification}
      - {name: pretrained_model, type: STRING, value: acme/reviews}
      - {name: optimum_model, type: BOOL, value: "true"}
  - name: canary
    traffic: 20
    componentSpecs: [{spec: {containers: [{name: classifier}]}}]
    graph: {name: classifier, implementation: HUGGINGFACE_SERVER, modelUri: "gs://acme/reviews-2"}
"""

CORE_2 = """\
apiVersion: mlops.seldon.io/v1alpha1
kind: Model
metadata: {name: tone}
spec: {storageUri: "gs://acme/tone", requirements: [huggingface, gpu], memory: 3Gi}
---
apiVersion: mlops.seldon.io/v1alpha1
kind: Model
metadata: {name: tone2}
spec: {storageUri: "gs://acme/tone2", requirements: [huggingface]}
---
apiVersion: mlops.seldon.io/v1alpha1
kind: Experiment
metadata: {name: trial}
spec:
  default: tone
  candidates: [{name: tone, weight: 3}, {name: tone2, weight: 1}]
---
apiVersion: mlops.seldon.io/v1alpha1
kind: Pipeline
metadata: {name: chain}
spec: {steps: [{name: tone}]}
"""

MIRRORED = """\
kind: Model
metadata: {name: tone}
spec: {storageUri: "models:/tones@champion", requirements: [mlflow]}
---
kind: Experiment
metadata: {name: trial}
spec: {default: tone, candidates: [{name: tone, weight: 100}], mirror: {name: two, percent: 40}}
"""


def one(text: str) -> Translation:
    (found,) = translate(text, "seldon.yaml", Options())
    return found


def test_a_deployment_becomes_the_endpoint_of_its_main_predictor() -> None:
    found = one(CORE_1)
    assert found.endpoint.name == "reviews"
    assert found.endpoint.spec.task is Task.TEXT_CLASSIFICATION
    assert found.endpoint.metadata.annotations == {"owner": "ann"}
    assert found.register == "acme/reviews"
    assert found.endpoint.spec.rollout.steps[1] == WeightStep(weight=20)
    assert any("gs://acme/reviews-2" in sentence for sentence in found.changed)


def test_what_was_not_carried_over_is_named() -> None:
    assert {where for where, _ in one(CORE_1).left_out} == {
        "spec.protocol",
        "spec.predictors[0].replicas",
        "spec.predictors[0].graph.envSecretRefName",
        "spec.predictors[0].graph.parameters optimum_model",
        "spec.predictors[1].componentSpecs",
        "spec.predictors[1].graph.name",
        "spec.predictors[1].graph.implementation",
    }


def test_models_of_an_experiment_become_one_endpoint() -> None:
    found = one(CORE_2)
    assert found.endpoint.name == "tone"
    assert found.endpoint.spec.rollout.steps[1] == WeightStep(weight=25)
    assert any("register gs://acme/tone2" in sentence for sentence in found.changed)
    assert {where for where, _ in found.left_out} == {
        "spec.memory",
        "spec.requirements gpu",
        "Pipeline chain",
    }


def test_a_mirror_is_a_shadow_and_an_alias_is_followed() -> None:
    endpoint = one(MIRRORED).endpoint
    assert endpoint.spec.rollout.steps[0] == ShadowStep(shadow=40)
    assert endpoint.spec.model == "tones"
    assert endpoint.spec.version == AliasVersion(alias="champion")


BOTH = """\
kind: Model
metadata: {name: tone}
spec: {storageUri: "gs://acme/tone", requirements: [huggingface]}
---
kind: Experiment
metadata: {name: trial}
spec:
  default: tone
  candidates: [%s]
  mirror: {name: three, percent: 40}
"""
CANDIDATES = ("{name: tone, weight: 60}", "{name: two, weight: 30}", "{name: four, weight: 10}")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_the_steps_are_those_that_the_sentences_say_whatever_the_order(
    order: tuple[int, ...],
) -> None:
    found = one(BOTH % ", ".join(CANDIDATES[i] for i in order))
    shadow, *weights = found.endpoint.spec.rollout.steps
    assert shadow == ShadowStep(shadow=40)
    assert weights[0] == WeightStep(weight=10)
    said = [sentence for sentence in found.changed if "first weight" in sentence]
    assert len(said) == 1
    assert "10 %" in said[0]
    assert any("40 %" in sentence and "shadow" in sentence for sentence in found.changed)


def test_an_experiment_without_its_model_is_reported() -> None:
    text = CORE_2.replace("default: tone", "default: other")
    assert any("Experiment trial" in where for each in translate(text, "-", Options())
               for where, _ in each.left_out)  # fmt: skip


GRAPH = "kind: SeldonDeployment\nmetadata: {name: x}\nspec: {predictors: [{graph: {%s}}]}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GRAPH % "implementation: MLFLOW_SERVER, children: [{name: y}]", "several steps"),
        (GRAPH % "type: ROUTER, implementation: RANDOM_ABTEST", "RANDOM_ABTEST as ROUTER"),
        (GRAPH % "name: own", "container of your own"),
        ("kind: SeldonDeployment\nmetadata: {name: x}\nspec: {}", "has no predictor"),
        ("kind: Model\nmetadata: {name: x}\nspec: {requirements: [alibi-detect]}", "alibi-detect"),
    ],
)
def test_what_headrace_does_not_serve_is_refused(text: str, says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        one(text)


def test_a_file_without_models_is_refused() -> None:
    with pytest.raises(BadDocumentError, match="two of its Models have one name"):
        one("\n---\n".join(["kind: Model\nmetadata: {name: x}"] * 2))
    with pytest.raises(BadDocumentError, match="holds no SeldonDeployment and no Model"):
        one("kind: Pipeline\nmetadata: {name: chain}")

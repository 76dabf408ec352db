"""Text Embeddings Inference's command lines and manifests as endpoints.

The forms are those of its public documentation; names are our own:
https://huggingface.co/docs/text-embeddings-inference/quick_tour and
https://huggingface.co/docs/text-embeddings-inference/cli_arguments.
"""

import pytest

from contracts.endpoint import Precision
from contracts.tasks import Task
from headrace.errors import BadDocumentError, RefusedError
from headrace.migration.draft import Options, Translation
from headrace.migration.tei import translate, translate_command

DOCKER = (
    "docker run --gpus all -p 8080:80 -v /data:/data -e HF_TOKEN=hf_secret -e POOLING=splade "
    "ghcr.io/huggingface/text-embeddings-inference:1.8 --model-id acme/Words_v2 --dtype float16 "
    "--max-client-batch-size 64 --max-batch-tokens=16384 --auto-truncate --api-key hush"
)

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: vectors}
spec:
  replicas: 3
  selector: {matchLabels: {app: vectors}}
  template:
    metadata: {labels: {app: vectors}}
    spec:
      nodeSelector: {disk: fast}
      containers:
      - name: server
        image: ghcr.io/huggingface/text-embeddings-inference:cpu-1.8
        args: [--model-id, /data/minilm, --served-model-name, minilm]
        env:
        - {name: MAX_BATCH_REQUESTS, value: "32"}
        - {name: API_KEY, valueFrom: {secretKeyRef: {name: key, key: key}}}
        - {name: RUST_LOG, value: debug}
        ports: [{containerPort: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: vectors}
"""


def commanded(words: str, **said: str) -> Translation:
    (found,) = translate_command(words.split(), Options(**said))
    return found


def test_a_command_becomes_an_endpoint_named_after_its_model() -> None:
    found = commanded(DOCKER)
    endpoint = found.endpoint
    assert endpoint.name == endpoint.spec.model == "words-v2"
    assert endpoint.spec.serving.precision is Precision.FP16
    assert endpoint.spec.limits.max_texts_per_request == 64
    assert endpoint.spec.task is Task.SPARSE_EMBEDDING
    assert found.register == "acme/Words_v2"


def test_what_was_not_carried_over_is_named_and_secrets_are_not_shown() -> None:
    found = commanded(DOCKER)
    assert {where for where, _ in found.left_out} == {
        "--gpus",
        "--hf-token",
        "--max-batch-tokens",
        "--auto-truncate",
        "--api-key",
    }
    assert "hush" not in repr(found)
    assert "hf_secret" not in repr(found)


def test_the_program_itself_is_a_command_too() -> None:
    found = commanded("text-embeddings-router --model-id acme/rank", task="text-ranking")
    assert found.endpoint.spec.task is Task.TEXT_RANKING
    assert not found.left_out


def test_a_deployment_is_read_with_its_environment() -> None:
    (found,) = translate(DEPLOYMENT, "-", Options())
    assert found.endpoint.name == "vectors"
    assert found.endpoint.spec.serving.max_batch_size == 32
    assert found.register == "/data/minilm"
    assert {where for where, _ in found.left_out} == {
        "--api-key",
        "spec.replicas",
        "spec.selector",
        "spec.template.spec.nodeSelector",
        "spec.template.spec.containers[0].env[2] RUST_LOG",
        "spec.template.spec.containers[0].ports",
        "Service vectors",
    }
    assert any("in place of minilm" in sentence for sentence in found.changed)


def test_a_pooling_of_the_model_is_told() -> None:
    (pooling,) = commanded("text-embeddings-router --model-id a --pooling cls").left_out
    assert pooling[0] == "--pooling"
    assert "modules.json" in pooling[1]


def test_another_program_is_refused() -> None:
    with pytest.raises(BadDocumentError, match="names neither"):
        commanded("docker run nginx")
    with pytest.raises(BadDocumentError, match="holds no pod that runs"):
        translate("kind: Deployment\nmetadata: {name: x}", "-", Options())
    with pytest.raises(RefusedError, match="must be a whole number"):
        commanded("text-embeddings-router --max-client-batch-size many")

"""A version that runs by the packed engine, on the whole stack, without a GPU.

It takes the way that a version takes on GPUs: registered by MLflow's client, converted to a package
of its own weights, placed on both Tritons, and asked by several callers at once at both gateways.
"""

import json
from collections import defaultdict
from pathlib import Path

import httpx
import pytest
from bert_files import LABELS, write_classifier
from rolling_stack import register_folder
from running_stack import TIMEOUT_SECONDS, RunningStack
from tiny_models import WORDS
from traffic import Traffic, answered_by_all
from waiting import until

from contracts.loading import DeviceKind, LoaderReport
from contracts.manifest import WEIGHTS, EngineKind
from registry.packages.store import PackageStore
from registry.stores.endpoints import FileEndpointStore

pytestmark = pytest.mark.real

NAME = "packed"
ENDPOINT = f"""
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {{name: {NAME}}}
spec:
  model: {NAME}
  serving: {{engine: packed, precision: fp32}}
  rollout: {{strategy: direct}}
  limits: {{timeoutSeconds: {TIMEOUT_SECONDS}}}
"""
# Of many lengths, none like another, so that an answer of another text would show.
TEXTS = [" ".join((WORDS * 3)[start : start + 1 + 3 * start]) for start in range(16)]


@pytest.fixture(scope="module")
def packed(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> RunningStack:
    """The stack, with the version in service at both Tritons."""
    stack.apply(ENDPOINT)
    register_folder(stack, NAME, write_classifier(tmp_path_factory.mktemp("version")))
    stack.until_answers(NAME)
    stack.until_all_serve(NAME)
    return stack


def test_its_package_holds_its_own_weights_and_no_graph(packed: RunningStack) -> None:
    stored = FileEndpointStore(packed.home / "endpoints").get(NAME)
    assert stored is not None
    assert stored.status.stable is not None
    store = PackageStore((packed.home / "packages").as_uri())
    manifest = store.manifest(stored.status.stable.package)
    assert manifest.engine is EngineKind.PACKED
    assert WEIGHTS in manifest.files
    assert not any(name.endswith(".onnx") for name in manifest.files)
    assert manifest.labels == LABELS


def test_texts_that_many_callers_send_at_once_are_answered_as_each_alone(
    packed: RunningStack,
) -> None:
    ways = packed.ways(NAME)
    with Traffic(ways, TEXTS, callers=1) as alone:
        first = alone.more(2 * len(TEXTS))
    with Traffic(ways, TEXTS, callers=24) as many:
        replies = [*first, *many.until("all ways answer", 180, answered_by_all(len(ways)))]
        replies += many.more(600)
    assert {reply.status for reply in replies} == {200}
    scores: dict[str, list[float]] = defaultdict(list)
    labels: dict[str, set[str]] = defaultdict(set)
    for reply in replies:
        scores[reply.text].append(reply.score)
        labels[reply.text].add(reply.label)
    assert scores.keys() == set(TEXTS)
    assert all(len(found) == 1 for found in labels.values())
    assert all(max(found) - min(found) < 1e-4 for found in scores.values())


def test_a_text_of_the_greatest_length_and_pairs_are_answered(packed: RunningStack) -> None:
    for inputs in (" ".join(WORDS * 20), {"text": "good film", "text_pair": "bad soup"}):
        said = httpx.post(f"{packed.gateway}/endpoints/{NAME}", json={"inputs": inputs}, timeout=60)
        assert said.status_code == 200, said.text


def test_loaders_say_what_their_tritons_compute_with(packed: RunningStack) -> None:
    def devices() -> list[DeviceKind]:
        files = sorted((packed.home / "reports").glob("*.json"))
        reports = [LoaderReport.model_validate(json.loads(file.read_bytes())) for file in files]
        return [report.device.kind for report in reports if report.device is not None]

    until("both loaders name a device", 60, lambda: len(devices()) == len(packed.tritons))


def test_another_version_takes_its_place(packed: RunningStack, tmp_path: Path) -> None:
    version = register_folder(packed, NAME, write_classifier(tmp_path / "version", seed=1))
    ways = packed.ways(NAME)
    with Traffic(ways, TEXTS, callers=4, pause_seconds=0.1) as callers:
        replies = callers.until(
            "every way is answered by the new version",
            600,
            lambda seen: (
                {(each.gateway, each.dialect) for each in seen if each.version == version}
                == {(way.gateway.name, way.dialect) for way in ways}
            ),
        )
    assert {reply.status for reply in replies} == {200}

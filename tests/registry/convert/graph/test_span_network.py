"""A GLiNER answers as the ``gliner`` package does: over odd texts, in batches, by its graph."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gliner
from fake_mlflow import FakeMlflow, serve
from tiny_gliner import LABELS, TEXT, found_by, open_gliner, write_gliner

from contracts.endpoint import ServingOptions
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.labelled_words import joined_labels
from preprocess.padding import RowPadder
from preprocess.tasks import HEADS
from preprocess.tasks.entity_recognition import entities
from registry.conversions.messages import ConversionRequest
from registry.convert import tokeniser
from registry.convert.errors import VersionError
from registry.convert.flavours import detect
from registry.convert.parity.engine import GraphEngine, TokenisedTexts
from registry.convert.parity.same_tokens import hostile_texts
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.packages.store import PackageStore

pytest.importorskip("gliner", reason="needs the export environment")

pytestmark = [pytest.mark.export, pytest.mark.filterwarnings("ignore")]

HEAD = HEADS[Task.ENTITY_RECOGNITION]
# An encoder of another width, one LSTM; none of either, labels by their words; two LSTMs.
VARIANTS: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "deberta": ("deberta-v2", 8, {}),
    "plain": ("deberta-v2", 9, {"hidden_size": 32, "num_rnn_layers": 0, "embed_ent_token": False}),
    "bert": ("bert", 8, {"num_rnn_layers": 2}),
}


@pytest.fixture(params=VARIANTS)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    kind, seed, config = VARIANTS[request.param]
    return write_gliner(tmp_path / "v", kind, seed=seed, **config)


def odd_texts() -> list[str]:
    odd = hostile_texts(tiny_gliner.words(), 60)
    by_words = ["", " \n", "x-y_z -- a-", "m@x.de", "a " * 70, "\u00a0a\x1cb"]
    return [TEXT, *by_words, *(text for text in odd if "\u200b" not in text)]


def options() -> ServingOptions:
    return ServingOptions(max_tokens=400)


def same(ours: EncodedTexts, values: Any, theirs: Any, **chosen: Any) -> int:
    """How many entities both have found, which are the same."""
    found = [
        [(each.start, each.end, each.label, each.word, each.score) for each in of_text]
        for of_text in entities(ours, values, **chosen)
    ]
    assert [[each[:4] for each in of_text] for of_text in found] == [
        [each[:4] for each in of_text] for of_text in theirs
    ]
    scores = [[each[4] for of_text in side for each in of_text] for side in (found, theirs)]
    np.testing.assert_allclose(np.array(scores[0]), np.array(scores[1]), atol=1e-4)
    return len(scores[0])


def test_the_graph_finds_what_the_package_finds_whatever_is_in_the_batch(
    folder: Path, tmp_path: Path
) -> None:
    from registry.convert.graph import engine_form, export, span_network

    original = detect(folder)
    loaded: Any = span_network.load(original, threads=1, allow_pickle=False)
    built = tokeniser.build(original, options(), pad_id=loaded.pad_id, rows=loaded.embedding_rows)
    export.to_onnx(loaded, Task.ENTITY_RECOGNITION, tmp_path / "out.onnx")
    graph = engine_form.finish(
        engine_form.load(tmp_path / "out.onnx"), Task.ENTITY_RECOGNITION, None
    )
    texts = odd_texts()
    encoded = built.encoder.encode(texts, [joined_labels(LABELS)] * len(texts))
    loaded.require_rows(texts, encoded)
    padder = RowPadder(engine_form.inputs_of(graph), built.spec)
    batches = GraphEngine(graph, threads=1).outputs(TokenisedTexts(encoded, padder, built.buckets))
    package, found = open_gliner(folder), 0
    for outputs in (loaded.outputs(encoded), batches):
        values = HEAD.values(outputs[np.newaxis], width=outputs.shape[1])[0]
        for chosen in ({"threshold": 0.5}, {"threshold": 0.9}, {"multi_label": True}):
            found += same(encoded, values, found_by(package, texts, **chosen), **chosen)
    assert found > len(texts)


@pytest.mark.parametrize("folder", ["deberta"], indirect=True)
def test_places_are_right_behind_a_word_that_has_no_token(folder: Path) -> None:
    from registry.convert.graph import span_network

    original = detect(folder)
    loaded = span_network.load(original, threads=1, allow_pickle=False)
    encoder = tokeniser.build(original, options()).encoder
    texts = [text.replace(" ", " \u200b ") for text in (TEXT, "the city of Berlin", "a b c")]
    texts += ["a\u200bb", "\u200b" * 40]
    encoded = encoder.encode(texts, [joined_labels(LABELS)] * len(texts))
    outputs = loaded.outputs(encoded)
    values = HEAD.values(outputs[np.newaxis], width=outputs.shape[1])[0]
    package = open_gliner(folder)
    without = found_by(package, [text.replace("\u200b", " ") for text in texts])
    ours = [[each[2:4] for each in of_text] for of_text in entities(encoded, values)]
    assert ours == [[each[:2] for each in of_text] for of_text in without]
    assert found_by(package, texts) != without


@pytest.mark.parametrize("folder", ["deberta"], indirect=True)
def test_a_version_is_converted_and_held_to_its_own_numbers(folder: Path, tmp_path: Path) -> None:
    with serve(FakeMlflow(root=folder.parent)) as fake:
        fake.register("pii", f"mlflow-artifacts:/{folder.name}")
        request = ConversionRequest(
            tracking_uri=fake.uri, model="pii", version="1", store_url=str(tmp_path / "s"),
            work_dir=str(tmp_path / "work"), serving=options(),
        )  # fmt: skip
        store = PackageStore(str(tmp_path / "s"))
        ref = convert(request, TrackingServer(fake.uri), store, lambda *_: None)
    manifest = store.manifest(ref.package)
    assert (manifest.task, manifest.dimension) == (Task.ENTITY_RECOGNITION, 5 * 25)
    assert manifest.tokenizer.spans is not None
    assert manifest.parity is not None
    assert manifest.parity.max_abs_difference < 1e-4


@pytest.mark.parametrize("folder", ["deberta"], indirect=True)
def test_a_checkpoint_without_all_weights_is_refused(folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    from registry.convert.graph import span_network

    weights = load_file(folder / "model.safetensors")
    del weights["prompt_rep_layer.0.bias"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(VersionError, match=r"lacks prompt_rep_layer\.0\.bias"):
        span_network.load(detect(folder), threads=1, allow_pickle=False)


@pytest.mark.parametrize("folder", ["deberta"], indirect=True)
def test_weights_that_the_network_does_not_know_are_refused(folder: Path) -> None:
    from registry.convert.graph import span_network

    path = folder / "gliner_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_rnn_layers": 0}))
    with pytest.raises(VersionError, match=r"has more than the network answers with: rnn\.lstm"):
        span_network.load(detect(folder), threads=1, allow_pickle=False)

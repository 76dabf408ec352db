"""Architectures that the packed engine does not take, for GPUs: fused, in fp16 and fixed shapes."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fixed_graphs
import numpy as np
import onnxruntime
import pytest
from fake_mlflow import FakeMlflow
from numpy.typing import NDArray
from promotable import assert_promotable
from tiny_models import SPECIAL, WORDS, write_json

from contracts.endpoint import EngineChoice, Precision, ServingOptions
from contracts.loading import DeviceKind
from contracts.manifest import (
    CONFIG_PYTHON,
    DEVICE_PROOF,
    MODEL_ONNX,
    TOKENIZER,
    EngineKind,
    Manifest,
)
from registry.conversions.messages import ConversionRequest
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.errors import TritonRefusedError
from registry.loading import device_check
from registry.packages.store import PackageStore
from registry.packages.triton_config import fixed_settings

pytestmark = [pytest.mark.export, pytest.mark.filterwarnings("default")]

SIZE: dict[str, Any] = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
}
# What each becomes, of two layers: found by running the tool, version 1.31.1.
NORMS_AND_GELU = {"BiasGelu", "SkipLayerNormalization"}
FUSED: Mapping[str, tuple[dict[str, Any], set[str]]] = {
    "bert": ({}, {"Attention", *NORMS_AND_GELU}),
    "data2vec-text": ({"pad_token_id": 0}, {"Attention", *NORMS_AND_GELU}),
    "roberta-prelayernorm": ({"pad_token_id": 0}, {"Attention", *NORMS_AND_GELU}),
    "mpnet": ({"pad_token_id": 0}, NORMS_AND_GELU),
    "deberta-v2": (
        {
            "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16,
            "position_biased_input": False, "share_att_key": True, "max_relative_positions": -1,
            "norm_rel_ebd": "layer_norm",
        },
        NORMS_AND_GELU,
    ),
}  # fmt: skip


class FixedHarness:
    """A registry with one version, and a store."""

    def __init__(self, fake: FakeMlflow, folder: Path) -> None:
        self.folder = folder
        self.version = fake.root / "v"
        self.store = PackageStore((folder / "store").as_uri())
        self._fake = fake
        self._conversions = 0
        fake.register("tiny", "mlflow-artifacts:/v")

    def write(self, kind: str, head: str = "AutoModel", **config: Any) -> None:
        """A random model that transformers saved, with a tokeniser."""
        import torch
        import transformers

        torch.manual_seed(0)
        made = transformers.AutoConfig.for_model(kind, **{**SIZE, **config})
        getattr(transformers, head).from_config(made).save_pretrained(self.version)
        (self.version / "vocab.txt").write_text("\n".join((*SPECIAL, *WORDS)) + "\n")
        write_json(self.version / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})

    def convert(self, *, device: DeviceKind = DeviceKind.GPU, **changes: Any) -> Manifest:
        self._conversions += 1
        work = self.folder / f"work-{self._conversions}"
        work.mkdir()
        request = ConversionRequest(
            tracking_uri=self._fake.uri,
            model="tiny",
            version="1",
            store_url="unused",
            serving=ServingOptions(**{"max_batch_size": 6, "max_tokens": 32, **changes}),
            device=device,
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
def harness(fake: FakeMlflow, tmp_path: Path) -> FixedHarness:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    pytest.importorskip("transformers", reason="needs the export environment")
    return FixedHarness(fake, tmp_path)


class Serving16:
    """The package behind a loader's Triton, as far as the proof needs it: the model's own file."""

    def __init__(self, folder: Path, manifest: Manifest, *, scale: float = 1.0) -> None:
        told = json.loads(json.dumps(fixed_settings(manifest)))
        session = onnxruntime.InferenceSession(
            str(folder / MODEL_ONNX), providers=["CPUExecutionProvider"]
        )
        self.session = fixed_graphs.fixed_shapes().FixedShapes(session, told)
        self.sent: list[tuple[int, ...]] = []
        self._output, self._scale = told["output"], scale

    async def outputs(
        self, name: str, inputs: Mapping[str, NDArray[np.generic]]
    ) -> NDArray[np.float32]:
        self.sent.append(inputs["input_ids"].shape)
        (found,) = self.session.run([self._output], inputs)
        spoilt: NDArray[np.float32] = found * np.float32(self._scale) + (1 - self._scale)
        return spoilt


@pytest.mark.parametrize("kind", FUSED)
def test_an_architecture_is_fused_made_fp16_and_told_its_shapes(
    harness: FixedHarness, kind: str
) -> None:
    further, operators = FUSED[kind]
    harness.write(kind, **further)
    manifest = harness.convert(engine=EngineChoice.PADDED if kind == "bert" else EngineChoice.AUTO)
    assert manifest.parity is not None
    assert (manifest.engine, manifest.precision) == (EngineKind.PADDED, Precision.FP16), (
        manifest.parity.fallback
    )
    assert manifest.fixed is not None
    assert manifest.fixed.rows == (1, 2, 4, 6)
    assert manifest.fixed.fused.keys() >= operators
    assert manifest.fixed.fused.get("Attention", 2) == 2
    assert manifest.files.keys() == {MODEL_ONNX, CONFIG_PYTHON, TOKENIZER, DEVICE_PROOF}
    assert manifest.parity.limits
    assert manifest.parity.mean_abs_difference > 0  # it is fp16


@pytest.mark.parametrize("head", ["AutoModel", "AutoModelForTokenClassification"])
async def test_the_package_s_proof_passes_in_its_fixed_shapes_and_finds_an_engine_that_strays(
    harness: FixedHarness, head: str
) -> None:
    harness.write("data2vec-text", head, pad_token_id=0)
    manifest = harness.convert()
    folder = harness.fetched(manifest)
    honest = Serving16(folder, manifest)
    await device_check.check(honest, "tiny", folder, manifest, None)  # type: ignore[arg-type]
    assert max(rows for rows, _ in honest.sent) == 6
    assert {length for _, length in honest.sent} <= set(manifest.length_buckets)
    spoilt = Serving16(folder, manifest, scale=0.5 if head == "AutoModel" else 0.1)
    with pytest.raises(TritonRefusedError, match="strays from the original"):
        await device_check.check(spoilt, "tiny", folder, manifest, None)  # type: ignore[arg-type]


def test_a_graph_of_which_nothing_fuses_stays_as_it_is_and_says_so(harness: FixedHarness) -> None:
    harness.write("mobilebert", embedding_size=32, intra_bottleneck_size=32)
    manifest = harness.convert()
    assert manifest.parity is not None
    assert "nothing of the graph could be fused" in manifest.parity.fallback
    assert (manifest.fixed, manifest.precision) == (None, Precision.FP32)


def test_the_same_version_is_fused_to_the_same_package(harness: FixedHarness) -> None:
    harness.write("data2vec-text", pad_token_id=0)
    assert harness.convert().package_id() == harness.convert().package_id()


def test_float32_that_was_asked_for_is_fused_too_and_cpus_get_the_graph_as_it_is(
    harness: FixedHarness,
) -> None:
    harness.write("data2vec-text", pad_token_id=0)
    manifest = harness.convert(precision=Precision.FP32)
    assert manifest.precision is Precision.FP32
    assert manifest.fixed is not None
    on_cpus = harness.convert(device=DeviceKind.CPU, precision=Precision.FP32)
    assert on_cpus.fixed is None
    assert DEVICE_PROOF not in on_cpus.files

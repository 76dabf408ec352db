"""What becomes of a checkpoint whose weights do not fit its configuration."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_models import tokenizer

from registry.convert.errors import VersionError
from registry.convert.flavours import detect
from registry.convert.steps import load_network

pytestmark = pytest.mark.export

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
    "vocab_size": 200, "max_position_embeddings": 64,
}  # fmt: skip


def saved(folder: Path, kind: str, *, labels: int = 2, **config: Any) -> Path:
    """A tiny BERT as transformers saves it, with a tokeniser; its config changed afterwards."""
    import transformers

    network = getattr(transformers, kind)(transformers.BertConfig(**SMALL, num_labels=labels))
    network.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def load(folder: Path) -> object:
    from registry.convert.graph import export

    return export.load(detect(folder), threads=1, allow_pickle=False, allow_remote_code=False)


def renamed(folder: Path, **names: str) -> None:
    """Weights with a part of their names replaced."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    for old, new in names.items():
        tensors = {name.replace(old, new): value for name, value in tensors.items()}
    save_file(tensors, path, {"format": "pt"})


def test_a_whole_checkpoint_is_loaded(tmp_path: Path) -> None:
    assert load(saved(tmp_path, "BertForSequenceClassification"))


def test_an_embedding_needs_no_pooler(tmp_path: Path) -> None:
    folder = saved(tmp_path, "BertForMaskedLM", architectures=["BertModel"])
    assert load(folder)


def test_a_head_that_the_checkpoint_lacks_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path, "BertModel", architectures=["BertForSequenceClassification"])
    with pytest.raises(VersionError, match=r"lacks weights.*classifier\.(bias|weight)"):
        load(folder)


def test_a_layer_that_is_named_otherwise_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path, "BertForSequenceClassification")
    renamed(folder, query="query_proj")
    with pytest.raises(VersionError, match=r"lacks weights.*query\.(bias|weight)"):
        load(folder)


def test_a_head_of_other_labels_is_named_with_both_sizes(tmp_path: Path) -> None:
    names = {str(at): f"label {at}" for at in range(3)}
    folder = saved(
        tmp_path, "BertForSequenceClassification", id2label=names,
        label2id={name: int(at) for at, name in names.items()},
    )  # fmt: skip
    with pytest.raises(VersionError, match=r"classifier\.\w+ is .*2.* in the files and .*3"):
        load(folder)


def test_weights_of_an_adapters_layers_are_refused_as_that(tmp_path: Path) -> None:
    folder = saved(tmp_path, "BertForSequenceClassification")
    renamed(folder, **{"query.weight": "query.base_layer.weight"})
    with pytest.raises(VersionError, match=r"adapter.*base_layer.*merge_and_unload\) and register"):
        load(folder)


@pytest.mark.parametrize(
    ("kind", "labels", "says"),
    [("BertModel", 1, "lacks weights"), ("BertForSequenceClassification", 3, "in the files and")],
)
def test_what_a_cross_encoders_checkpoint_lacks_is_named_too(
    tmp_path: Path, kind: str, labels: int, says: str
) -> None:
    folder = saved(
        tmp_path, kind, labels=labels, architectures=["BertForSequenceClassification"],
        id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0},
        sentence_transformers={"version": "6.0.0", "activation_fn": "torch.nn.Identity"},
    )  # fmt: skip
    with pytest.raises(VersionError, match=says):
        load(folder)


def test_two_conversions_of_one_checkpoint_load_the_same_numbers(tmp_path: Path) -> None:
    import torch

    folder = saved(tmp_path, "BertForSequenceClassification")
    first, second = (load(folder).network.state_dict() for _ in range(2))  # type: ignore[attr-defined]
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_layer_that_two_files_hold_with_different_numbers_is_refused_by_name(
    tmp_path: Path,
) -> None:
    from safetensors.torch import load_file, save_file

    folder = saved(tmp_path, "BertForSequenceClassification")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    first, second = (f"model-0000{at}-of-00002.safetensors" for at in (1, 2))
    files = dict.fromkeys(tensors, second) | {"classifier.bias": first}
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file({"classifier.bias": tensors["classifier.bias"]}, folder / first, {"format": "pt"})
    save_file(tensors, folder / second, {"format": "pt"})
    request: Any = SimpleNamespace(threads=1, allow_pickle=False, allow_remote_code=False)
    assert load_network(request, detect(folder))
    tensors["classifier.bias"] += 1
    save_file(tensors, folder / second, {"format": "pt"})
    with pytest.raises(VersionError, match=r"hold different weights called classifier\.bias, "):
        load_network(request, detect(folder))


def test_a_field_of_images_that_the_network_does_not_read_changes_nothing(tmp_path: Path) -> None:
    assert load(saved(tmp_path, "BertForSequenceClassification", vision_config={"image_size": 8}))


def test_a_network_that_takes_images_beside_texts_is_told_so(tmp_path: Path) -> None:
    import transformers

    config = transformers.LayoutLMv3Config(
        **SMALL, coordinate_size=8, shape_size=8, visual_embed=False
    )
    transformers.LayoutLMv3ForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(VersionError, match=r"LayoutLMv3For\w+ reads images \(pixel_values\)"):
        load(tmp_path)

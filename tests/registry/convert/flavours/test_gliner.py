"""A GLiNER is recognised by its configuration, and of another kind refused as what it is."""

from pathlib import Path
from typing import Any

import pytest
from tiny_models import tokenizer, write_json

from contracts.tasks import Task
from registry.convert.errors import VersionError
from registry.convert.flavours import detect

ENCODER = {"model_type": "deberta-v2", "max_position_embeddings": 128}
USUAL: dict[str, Any] = {
    "model_name": "microsoft/deberta-v3-small",
    "encoder_config": ENCODER,
    "max_width": 8,
    "max_types": 40,
    "max_len": 100,
}


def checkpoint(folder: Path, **config: Any) -> Path:
    write_json(folder / "gliner_config.json", {**USUAL, **config})
    (folder / "model.safetensors").write_bytes(b"")
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def test_its_configuration_says_how_rows_are_made(tmp_path: Path) -> None:
    found = detect(checkpoint(tmp_path))
    assert (found.flavour, found.task) == ("gliner", Task.ENTITY_RECOGNITION)
    assert found.max_tokens == 128
    assert found.spans is not None
    assert (found.spans.widest, found.spans.most_labels, found.spans.most_words) == (8, 40, 100)
    assert (found.spans.label_mark, found.spans.text_mark) == ("<<ENT>>", "<<SEP>>")


def test_an_encoder_without_positions_of_its_own_has_no_longest_row(tmp_path: Path) -> None:
    encoder = {**ENCODER, "position_biased_input": False}
    assert detect(checkpoint(tmp_path, encoder_config=encoder)).max_tokens is None


@pytest.mark.parametrize(("said", "taken"), [(3, 25), (None, 25), (1000, 64)])
def test_a_request_may_name_25_to_64_labels(tmp_path: Path, said: Any, taken: int) -> None:
    spans = detect(checkpoint(tmp_path, max_types=said)).spans
    assert spans is not None
    assert spans.most_labels == taken


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"labels_encoder": "BAAI/bge-small"}, "a bi-encoder"),
    ({"labels_decoder": "gpt2"}, "a GLiNER whose decoder writes labels"),
    ({"relations_layer": "dot"}, "a GLiNER that finds relations"),
    ({"span_mode": "token_level"}, "a GLiNER with span_mode 'token_level'"),
    ({"span_mode": "markerV1"}, "a GLiNER with span_mode 'markerV1'"),
    ({"model_type": "gliner_streaming_span"}, "reads a text piece by piece"),
    ({"fuse_layers": True}, "a GLiNER with fuse_layers"),
    ({"post_fusion_schema": "l2l"}, "a GLiNER with post_fusion_schema"),
    ({"span_encoder_config": {"model_type": "rnn"}}, "a GLiNER with span_encoder_config"),
    ({"words_splitter_type": "spacy"}, "words_splitter_type in gliner_config.json is 'spacy'"),
    ({"subtoken_pooling": "mean"}, "subtoken_pooling in gliner_config.json is 'mean'"),
    ({"encoder_config": None}, "does not have its configuration"),
    ({"max_width": 0}, "max_width in gliner_config.json is '0'"),
]


@pytest.mark.parametrize(("config", "words"), REFUSED)
def test_another_kind_is_refused_as_what_it_is(
    tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    with pytest.raises(VersionError, match=words):
        detect(checkpoint(tmp_path, **config))


def test_a_kind_that_is_not_served_is_named_before_its_missing_files(tmp_path: Path) -> None:
    write_json(tmp_path / "gliner_config.json", {**USUAL, "labels_encoder": "BAAI/bge-small"})
    with pytest.raises(VersionError, match="a bi-encoder"):
        detect(tmp_path, refused=("pytorch_model.bin",))


def test_an_adapter_beside_it_is_refused_by_name(tmp_path: Path) -> None:
    write_json(checkpoint(tmp_path) / "adapter_config.json", {"peft_type": "LORA"})
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(VersionError, match="a LORA adapter beside the model"):
        detect(tmp_path)


def test_an_endpoint_of_another_task_is_told_what_it_does(tmp_path: Path) -> None:
    with pytest.raises(VersionError, match="asks for text-embedding, but GLiNER does entity-reco"):
        detect(checkpoint(tmp_path), task=Task.TEXT_EMBEDDING)

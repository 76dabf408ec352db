"""How an encoder-decoder begins and goes on, and which ones are refused. No torch is needed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_models import write_json

from contracts.manifest import TokenRules
from contracts.tasks import Task
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel
from registry.convert.graph.encoder_decoder import positions_of, start_id, token_rules

T5 = {"model_type": "t5", "relative_attention_num_buckets": 32, "decoder_start_token_id": 4}


def original(folder: Path, config: dict[str, object], **generation: object) -> OriginalTextModel:
    write_json(folder / "config.json", config)
    if generation:
        write_json(folder / "generation_config.json", generation)
    return OriginalTextModel("transformers", folder, folder, Task.TEXT_GENERATION)


def test_the_first_token_is_that_of_generation_where_it_names_one(tmp_path: Path) -> None:
    assert start_id(original(tmp_path, T5)) == 4
    assert start_id(original(tmp_path, T5, decoder_start_token_id=0)) == 0


def test_what_can_not_begin_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(VersionError, match="has decoder_start_token_id"):
        start_id(original(tmp_path, {**T5, "decoder_start_token_id": None}))


def network(table: object, **config: object) -> SimpleNamespace:
    decoder = SimpleNamespace(embed_positions=table)
    return SimpleNamespace(config=SimpleNamespace(**config), get_decoder=lambda: decoder)


def test_positions_are_given_to_what_has_a_table_of_them() -> None:
    table = SimpleNamespace(num_embeddings=1026)
    assert positions_of(network(table, model_type="bart")) is table
    relative = network(None, model_type="t5", relative_attention_num_buckets=32)
    assert positions_of(relative) is None
    with pytest.raises(VersionError, match="a m2m_100 counts them otherwise"):
        positions_of(network(object(), model_type="m2m_100"))


# As facebook/bart-large-cnn and Helsinki-NLP/opus-mt-en-de have them.
SUMMARIES = {
    "bos_token_id": 0,
    "decoder_start_token_id": 2,
    "early_stopping": True,
    "eos_token_id": 2,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "length_penalty": 2.0,
    "max_length": 142,
    "min_length": 56,
    "no_repeat_ngram_size": 3,
    "num_beams": 4,
}
TRANSLATION = {
    "bad_words_ids": [[58100]],
    "decoder_start_token_id": 58100,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "max_length": 512,
    "num_beams": 6,
    "pad_token_id": 58100,
}


@pytest.mark.parametrize(
    ("config", "rules"),
    [
        ({}, {}),
        (
            SUMMARIES,
            {
                "forced_bos_token_id": 0,
                "forced_eos_token_id": 2,
                "no_repeat_ngram_size": 3,
                "min_new_tokens": 55,
            },
        ),
        (TRANSLATION, {"forced_eos_token_id": 0, "bad_words_ids": ((58100,),)}),
        # What ends a text can't be forbidden so, as ``generate`` has it.
        ({"bad_words_ids": [[3], [7, 3]], "eos_token_id": [3, 4]}, {"bad_words_ids": ((7, 3),)}),
        ({"suppress_tokens": [5, 6], "min_length": 0}, {"bad_words_ids": ((5,), (6,))}),
        ({"min_length": 9, "min_new_tokens": 4}, {"min_new_tokens": 4}),
        ({"min_length": 9, "min_new_tokens": 0, "no_repeat_ngram_size": 0}, {}),
        ({"forced_eos_token_id": [9, 8]}, {"forced_eos_token_id": 8}),
    ],
)
def test_what_is_forced_and_forbidden_is_taken_and_beams_are_not(
    config: dict[str, Any], rules: dict[str, Any]
) -> None:
    assert token_rules(config) == TokenRules(**rules)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"bad_words_ids": [[each] for each in range(1001)]}, "forbids 1001 sequences"),
        ({"bad_words_ids": [["word"]]}, "can't be used"),
        ({"forced_bos_token_id": "first"}, "can't be used"),
        ({"no_repeat_ngram_size": -1}, "can't be used"),
    ],
)
def test_what_can_not_be_kept_to_is_refused(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(VersionError, match=reason):
        token_rules(config)

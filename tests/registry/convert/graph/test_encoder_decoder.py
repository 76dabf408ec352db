"""With which token an encoder-decoder begins, and which ones are refused. No torch is needed."""

from pathlib import Path

import pytest
from tiny_models import write_json

from contracts.tasks import Task
from registry.convert.errors import VersionError
from registry.convert.flavours import Original
from registry.convert.graph.encoder_decoder import start_id

T5 = {"model_type": "t5", "relative_attention_num_buckets": 32, "decoder_start_token_id": 4}


def original(folder: Path, config: dict[str, object], **generation: object) -> Original:
    write_json(folder / "config.json", config)
    if generation:
        write_json(folder / "generation_config.json", generation)
    return Original("transformers", folder, folder, Task.TEXT_GENERATION)


def test_the_first_token_is_that_of_generation_where_it_names_one(tmp_path: Path) -> None:
    assert start_id(original(tmp_path, T5)) == 4
    assert start_id(original(tmp_path, T5, decoder_start_token_id=0)) == 0


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "bart", "decoder_start_token_id": 2}, "a bart counts its positions"),
        ({**T5, "decoder_start_token_id": None}, "has decoder_start_token_id"),
    ],
)
def test_what_can_not_begin_is_refused_with_a_sentence(
    tmp_path: Path, config: dict[str, object], reason: str
) -> None:
    with pytest.raises(VersionError, match=reason):
        start_id(original(tmp_path, config))

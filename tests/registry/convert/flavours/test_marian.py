"""A ``tokenizer.json`` of Marian's own files; ``tests/support/marian_files.py`` made those here."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_json
from tokenizers import Tokenizer

from registry.convert.errors import VersionError
from registry.convert.flavours import marian

FILES = Path(__file__).parent / "marian"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(marian.tokenizer_json(FILES))


def test_texts_are_cut_and_numbered_as_sentencepiece_does(tokenizer: Tokenizer) -> None:
    read = [[text, tokenizer.encode(text).ids] for text, _ in EXPECTED["read"]]
    assert read == EXPECTED["read"]
    assert len(read) > 100


def test_what_is_written_is_decoded_as_marian_decodes_it(tokenizer: Tokenizer) -> None:
    written = [[ids, tokenizer.decode(ids).strip()] for ids, _ in EXPECTED["written"]]
    assert written == EXPECTED["written"]


def test_pieces_have_the_numbers_of_the_vocabulary(tokenizer: Tokenizer) -> None:
    numbers = json.loads((FILES / "vocab.json").read_text(encoding="utf-8"))
    for piece, number in numbers.items():
        named = tokenizer.id_to_token(number)
        assert named is not None
        assert named.removeprefix("\ue000") == piece
    assert tokenizer.get_vocab_size(with_added_tokens=True) == len(numbers)


def test_only_a_folder_without_tokenizer_json_is_taken(tmp_path: Path) -> None:
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    assert marian.has_files(tmp_path)
    (tmp_path / "tokenizer.json").touch()
    assert not marian.has_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("tokenizer_config.json", {"separate_vocabs": True}, "vocabularies of their own"),
        ("vocab.json", {"</s>": 0, "<unk>": 1, "<pad>": 3}, "number its pieces from 0"),
        ("vocab.json", {"</s>": 0, "<unk>": 1}, "number its pieces from 0"),
        ("vocab.json", ["</s>"], "can't be read"),
        ("vocab.json", {"</s>": 0, "<unk>": 1, "<pad>": 2}, "no piece of source.spm"),
        ("source.spm", "no protobuf", "no model of sentencepiece"),
    ],
)
def test_what_can_not_be_brought_to_one_file_is_refused(
    tmp_path: Path, name: str, content: object, reason: str
) -> None:
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / name, content)
    with pytest.raises(VersionError, match=reason):
        marian.tokenizer_json(tmp_path)

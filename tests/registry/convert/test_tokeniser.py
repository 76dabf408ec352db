from pathlib import Path

import pytest
from tiny_models import tokenizer, write_json
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from contracts.endpoint import ServingOptions
from contracts.tasks import Task
from registry.convert import tokeniser
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel
from registry.convert.flavours.original import OriginalSides


def original(folder: Path, **changes: object) -> OriginalTextModel:
    base = {"flavour": "x", "folder": folder, "tokenizer": folder, "task": Task.TEXT_EMBEDDING}
    return OriginalTextModel(**{**base, **changes})  # type: ignore[arg-type]  # checked by the tests


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A folder with the tiny tokeniser alone."""
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_ids_are_read_from_the_tokenisers_own_files(plain: Path) -> None:
    made = tokeniser.build(original(plain), ServingOptions())
    assert (made.spec.pad_id, made.spec.unk_id) == (0, 1)
    assert made.spec.vocabulary == tokenizer().get_vocab_size()


def test_a_padding_token_of_another_name_is_found(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "<void>": 1, "<unk>": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {"pad_token": {"content": "<void>"}})
    made = tokeniser.build(original(tmp_path), ServingOptions())
    assert (made.spec.pad_id, made.spec.unk_id) == (1, 2)


def test_a_byte_level_vocabulary_has_no_unknown_token(tmp_path: Path) -> None:
    letters = {letter: place for place, letter in enumerate(sorted(_alphabet()))}
    words = Tokenizer(models.BPE({**letters, "<unk>": len(letters)}, [], unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.save(str(tmp_path / "tokenizer.json"))
    assert tokeniser.build(original(tmp_path), ServingOptions()).spec.unk_id is None


def test_a_vocabulary_that_takes_texts_apart_by_chance_is_refused(tmp_path: Path) -> None:
    words = Tokenizer(models.BPE({"a": 0, "aa": 1}, [("a", "a")], dropout=0.3))
    words.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(VersionError, match=r"dropout of 0\.3"):
        tokeniser.build(original(tmp_path), ServingOptions())


def test_a_byte_level_vocabulary_with_gaps_counts_its_unknown_token(tmp_path: Path) -> None:
    letters = {letter: place for place, letter in enumerate("abc")}
    words = Tokenizer(models.BPE({**letters, "<unk>": 3}, [], unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.save(str(tmp_path / "tokenizer.json"))
    made = tokeniser.build(original(tmp_path), ServingOptions())
    assert made.spec.unk_id == 3
    assert made.encoder.encode(["abc", "aéb"]).unk == [0, 2]


@pytest.mark.parametrize("whole", [True, False])
def test_byte_fallback_leaves_nothing_unknown_only_if_it_has_every_byte(
    tmp_path: Path, whole: bool
) -> None:
    spelled = {f"<0x{byte:02X}>": byte for byte in range(256 if whole else 200)}
    words = Tokenizer(
        models.BPE({**spelled, "<unk>": 256, "a": 257}, [], unk_token="<unk>", byte_fallback=True)
    )
    words.save(str(tmp_path / "tokenizer.json"))
    made = tokeniser.build(original(tmp_path), ServingOptions())
    assert made.spec.unk_id == (None if whole else 256)
    assert made.encoder.encode(["a☃"]).unk == [0 if whole else 1]


def _alphabet() -> list[str]:
    return list(pre_tokenizers.ByteLevel.alphabet())


def test_the_configs_padding_id_goes_before_one_that_is_guessed_by_name(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}, "<unk>"))
    words.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "config.json", {"pad_token_id": 2})
    assert tokeniser.build(original(tmp_path), ServingOptions()).spec.pad_id == 2


@pytest.mark.parametrize("odd", [-1, 99, True, [0], None, "1"])
def test_a_padding_id_that_no_token_has_is_not_taken(tmp_path: Path, odd: object) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "<pad>": 1, "<unk>": 2}, "<unk>"))
    words.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "config.json", {"pad_token_id": odd})
    assert tokeniser.build(original(tmp_path), ServingOptions()).spec.pad_id == 1


@pytest.mark.parametrize(
    "model",
    [
        models.Unigram([("a", -1.0), ("b", -2.0)], unk_id=None),
        models.WordLevel({"a": 0}, unk_token="<unk>"),
        models.WordPiece({"a": 0, "b": 1}, unk_token="[UNK]"),
        models.BPE({"a": 0}, [], unk_token="<unk>"),
    ],
    ids=["unigram", "words", "pieces", "pairs"],
)
def test_a_vocabulary_that_fails_on_an_unknown_character_is_refused(
    tmp_path: Path, model: models.Model
) -> None:
    Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(VersionError, match="fails on a text with characters that it does not know"):
        tokeniser.build(original(tmp_path), ServingOptions())


@pytest.mark.parametrize("where", ["tokenizer_config.json", "tokenizer.json"])
def test_truncation_from_the_left_is_refused_by_its_name(tmp_path: Path, where: str) -> None:
    words = tokenizer()
    if where == "tokenizer.json":
        words.enable_truncation(8, direction="left")
    else:
        write_json(tmp_path / where, {"truncation_side": "left"})
    words.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(VersionError, match=r"long texts from the left \(truncation_side\)"):
        tokeniser.build(original(tmp_path), ServingOptions())


def test_the_shorter_of_both_limits_holds(plain: Path) -> None:
    assert tokeniser.build(original(plain, max_tokens=100), ServingOptions()).buckets[-1] == 100
    short = ServingOptions(max_tokens=16)
    assert tokeniser.build(original(plain, max_tokens=100), short).spec.max_tokens == 16


def test_a_users_own_buckets_end_at_the_limit(plain: Path) -> None:
    serving = ServingOptions(length_buckets=(10, 20, 600))
    assert tokeniser.build(original(plain, max_tokens=64), serving).buckets == (10, 20, 64)


def test_its_own_padding_and_truncation_are_not_published(tmp_path: Path) -> None:
    words = tokenizer()
    words.enable_padding(length=128)
    words.enable_truncation(4)
    words.save(str(tmp_path / "tokenizer.json"))
    published = Tokenizer.from_str(
        tokeniser.build(original(tmp_path), ServingOptions()).data.decode()
    )
    assert published.padding is None
    assert published.truncation is None


def test_lowercasing_becomes_part_of_the_tokeniser_and_prompts_of_the_manifest(
    tmp_path: Path,
) -> None:
    words = tokenizer()
    plain = words.encode("the good film").ids
    words.normalizer = None
    words.save(str(tmp_path / "tokenizer.json"))
    prompts = {"article": "THE ", "none": ""}
    version = original(tmp_path, prompts=prompts, default_prompt="article", lowercase=True)
    made = tokeniser.build(version, ServingOptions())
    assert (made.spec.prompts, made.spec.default_prompt) == (prompts, "article")
    for texts in (
        made.encoder.prompted(["GOOD Film"]),
        made.encoder.prompted(["THE GOOD Film"], "none"),
    ):
        assert made.encoder.encode(texts).ids == [plain]


def write_sides(folder: Path, max_tokens: int = 16, **options: object) -> OriginalTextModel:
    tokenizer().save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"eos_token": "[SEP]"})
    usual = {"left_out_of": ("document",), **options}
    sides = OriginalSides(**usual)  # type: ignore[arg-type]  # checked by the tests
    return original(folder, max_tokens=max_tokens, sides=sides, prompts={"query": ""})


def test_both_sides_of_late_interaction_get_their_lengths_and_ids(tmp_path: Path) -> None:
    size = tokenizer().get_vocab_size()
    good, sep = (tokenizer().token_to_id(word) for word in ("good", "[SEP]"))
    version = write_sides(
        tmp_path, document_tokens=30, positions=24, filled_to=8, left_out=("good", "no-token")
    )
    made = tokeniser.build(version, ServingOptions(), rows=size)
    spec = made.spec.sides
    assert spec is not None
    # The file's own length, as far as there are positions; the tokeniser's for the other side.
    assert (spec.document_tokens, spec.query_tokens, made.spec.max_tokens) == (24, 16, 24)
    assert (spec.filled_to, spec.fill_id) == (8, size), "an id of no token: nothing attends to it"
    assert (spec.left_out, spec.left_out_of_documents) == ((good,), True)
    assert made.encoder.encode_prompted(["good"], prompt_name="query").tokens == [8]
    attended = write_sides(tmp_path, filled_to=8, is_fixed=True, attends=True)
    spec = tokeniser.build(attended, ServingOptions(), rows=size).spec.sides
    assert spec is not None
    assert (spec.query_tokens, spec.document_tokens, spec.fill_id) == (8, 16, sep)


def test_queries_that_are_filled_up_further_than_rows_go_are_refused(tmp_path: Path) -> None:
    version = write_sides(tmp_path, max_tokens=64, filled_to=40, is_fixed=True)
    with pytest.raises(VersionError, match=r"filled up to 40.*has 32: raise spec\.serving"):
        tokeniser.build(version, ServingOptions(max_tokens=32), rows=99)
    lacks = write_sides(tmp_path, filled_to=8, fill_token="[FILL]")
    with pytest.raises(VersionError, match=r"filled up with '\[FILL\]', which"):
        tokeniser.build(lacks, ServingOptions(), rows=99)


def test_an_authors_expression_that_takes_long_is_the_versions_fault(plain: Path) -> None:
    path = plain / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    tokenizer.save(str(path))
    with pytest.raises(VersionError, match="takes too long on some texts"):
        tokeniser.build(original(plain), ServingOptions())


def test_a_file_that_is_no_tokeniser_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(VersionError, match=r"tokenizer\.json is not a tokeniser"):
        tokeniser.build(original(tmp_path), ServingOptions())


def test_older_files_alone_are_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(VersionError, match="save it with a fast tokeniser"):
        tokeniser.build(original(tmp_path), ServingOptions())


def test_no_room_beside_the_special_tokens_is_refused(plain: Path) -> None:
    with pytest.raises(VersionError, match="can't be used"):
        tokeniser.build(original(plain, max_tokens=2), ServingOptions())


def test_a_token_that_the_network_has_no_row_for_is_refused_by_name(plain: Path) -> None:
    size = tokenizer().get_vocab_size()
    assert tokeniser.build(original(plain), ServingOptions(), rows=size).spec.vocabulary == size
    with pytest.raises(VersionError, match=f"among the network's {size - 1}, such as 'yes'"):
        tokeniser.build(original(plain), ServingOptions(), rows=size - 1)
    words = tokenizer()
    words.add_tokens(["[TAG]"])
    words.save(str(plain / "tokenizer.json"))
    with pytest.raises(VersionError, match=r"such as '\[TAG\]': resize"):
        tokeniser.build(original(plain), ServingOptions(), rows=size)


def test_a_special_token_without_a_row_is_read_as_any_text(plain: Path) -> None:
    size = tokenizer().get_vocab_size()
    words = tokenizer()
    words.add_special_tokens(["[MASK]"])
    words.save(str(plain / "tokenizer.json"))
    made = tokeniser.build(original(plain), ServingOptions(), rows=size)
    assert made.encoder.encode(["[MASK]"]).ids == tokeniser_ids("[MASK]")
    assert max(made.encoder.encode(["a [MASK] film"]).ids[0]) < size


def tokeniser_ids(text: str) -> list[list[int]]:
    return [tokenizer().encode(text).ids]

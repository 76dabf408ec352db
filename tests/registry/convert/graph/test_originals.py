"""Originals that answered otherwise than their copies: prompts, end tokens, tokens, positions."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tried_models
from tiny_models import SPECIAL, WORDS, tokenizer, write_json
from tokenizers import Tokenizer
from tried_models import TRIED, Tried

from contracts.endpoint import ServingOptions
from registry.conversions.messages import ConversionRequest
from registry.convert import texts
from registry.convert.errors import VersionError
from registry.convert.flavours import detect
from registry.convert.flavours.config import OFFSET_POSITIONS
from registry.convert.graph import engine_form, export, last_end
from registry.convert.graph.own_code import stand_in
from registry.convert.parity.engine import GraphEngine
from registry.convert.steps import encode_texts, load_original

pytestmark = [
    pytest.mark.export,
    # Torch, transformers and onnx warn of each other's plans; that is theirs to mend.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def libraries() -> tuple[Any, Any]:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    torch = pytest.importorskip("torch", reason="needs the export environment")
    transformers = pytest.importorskip("transformers", reason="needs the export environment")
    pytest.importorskip("sentence_transformers", reason="needs the export environment")
    torch.manual_seed(0)
    return torch, transformers


def request(work: Path) -> ConversionRequest:
    return ConversionRequest(
        tracking_uri="http://unused", model="tiny", version="1", store_url="unused",
        serving=ServingOptions(max_tokens=64), work_dir=str(work),
    )  # fmt: skip


def tried(architecture: str) -> Tried:
    return next(each for each in TRIED if each.architecture == architecture)


def test_a_cross_encoders_usual_prompt_goes_before_the_first_text_of_each_pair(
    libraries: tuple[Any, Any], tmp_path: Path
) -> None:
    import sentence_transformers

    torch, _ = libraries
    reranker = next(each for each in TRIED if each.cross_encoder)
    folder = tmp_path / "v"
    tried_models.write(reranker, folder)
    original = detect(folder)
    loaded, built, answers = load_original(request(tmp_path), original)
    pair = texts.EvaluationTexts(("who?",), "", own=True, pairs=("a film",))
    found, name = answers(pair)
    library = sentence_transformers.CrossEncoder(str(folder), device="cpu")

    def scored(first: str, **options: Any) -> float:
        identity = torch.nn.Identity()
        return float(library.predict([(first, "a film")], activation_fn=identity, **options)[0])

    assert name == "transformers folder"
    assert found[0, 0] == pytest.approx(scored("who?"), abs=1e-6)
    assert abs(scored("who?") - scored("who?", prompt="")) > 1e-3  # else nothing is shown
    assert scored("who?") == pytest.approx(scored("rank: who?", prompt=""), abs=1e-6)
    export.to_onnx(loaded, original.task, tmp_path / "m.onnx")
    model = engine_form.finish(engine_form.load(tmp_path / "m.onnx"), original.task, None)
    rows = encode_texts(pair, built, engine_form.inputs_of(model))
    assert GraphEngine(model, threads=1).outputs(rows)[0, 0] == pytest.approx(found[0, 0], abs=1e-5)


@pytest.mark.parametrize("architecture", ["BartForSequenceClassification",
                                          "T5ForSequenceClassification"])  # fmt: skip
def test_texts_with_end_tokens_do_not_break_their_neighbours(
    libraries: tuple[Any, Any], tmp_path: Path, architecture: str
) -> None:
    torch, _ = libraries
    tried_models.write(tried(architecture), tmp_path / "v")
    original = detect(tmp_path / "v")
    loaded, built, _ = load_original(request(tmp_path), original)
    assert last_end.suits(loaded.network)
    asked = texts.EvaluationTexts(("a film", "a </s> film </s>", "</s>", "no"), "", own=True)
    with pytest.raises(ValueError, match="same number of <eos> tokens"), torch.no_grad():
        loaded.network(**loaded.tokenizer(list(asked.texts), return_tensors="pt", padding=True))
    export.to_onnx(loaded, original.task, tmp_path / "m.onnx")
    model = engine_form.finish(engine_form.load(tmp_path / "m.onnx"), original.task, None)
    rows = encode_texts(asked, built, engine_form.inputs_of(model))
    together = GraphEngine(model, threads=1).rows(rows, range(4), 16)
    alone = export.originals(loaded, original.task, asked.texts, max_tokens=64)
    np.testing.assert_allclose(np.concatenate(together), alone, atol=1e-5)


def test_padding_by_end_tokens_does_not_move_a_rows_last_end(
    libraries: tuple[Any, Any], tmp_path: Path
) -> None:
    bart = tried("BartForSequenceClassification")
    ends = replace(bart, config={**bart.config, "pad_token_id": bart.config["eos_token_id"]})
    tried_models.write(ends, tmp_path / "v")
    original = detect(tmp_path / "v")
    loaded, built, _ = load_original(request(tmp_path), original)
    export.to_onnx(loaded, original.task, tmp_path / "m.onnx")
    model = engine_form.finish(engine_form.load(tmp_path / "m.onnx"), original.task, None)
    asked = texts.EvaluationTexts(("a film", "no", "a film that nobody has seen yet"), "", own=True)
    rows = encode_texts(asked, built, engine_form.inputs_of(model))
    together = GraphEngine(model, threads=1).rows(rows, range(3), 16)
    alone = export.originals(loaded, original.task, asked.texts, max_tokens=64)
    np.testing.assert_allclose(np.concatenate(together), alone, atol=1e-5)


@pytest.mark.parametrize(
    "architecture", ["BartForSequenceClassification", "T5ForSequenceClassification"]
)
def test_a_config_with_which_the_library_itself_fails_is_named(
    libraries: tuple[Any, Any], tmp_path: Path, architecture: str
) -> None:
    folder = tmp_path / "v"
    tried_models.write(tried(architecture), folder)
    said = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**said, "return_dict": False})
    original = detect(folder)
    loaded, _, _ = load_original(request(tmp_path), original)
    with pytest.raises(VersionError, match=r"return_dict false, with which .* fails in its own"):
        export.to_onnx(loaded, original.task, tmp_path / "m.onnx")


def test_padding_on_the_left_does_not_make_answers_depend_on_their_company(
    libraries: tuple[Any, Any], tmp_path: Path
) -> None:
    """In a batch it moves the positions of a BERT, in its own library too."""
    folder = tmp_path / "v"
    tried_models.write(tried("BertForMaskedLM"), folder)
    file = folder / "tokenizer_config.json"
    write_json(file, {**json.loads(file.read_text()), "padding_side": "left"})
    original = detect(folder)
    loaded, _, _ = load_original(request(tmp_path), original)
    asked = ["a film", "a film that nobody has seen yet, and that everybody talks about"]
    assert loaded.tokenizer.padding_side == "left"
    together = export.originals(loaded, original.task, asked, max_tokens=64)
    alone = [export.originals(loaded, original.task, [each], max_tokens=64) for each in asked]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-6)


def test_a_tokeniser_that_fails_on_a_text_is_told_of(
    libraries: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its library raises plain exceptions, of an unknown token that the vocabulary lacks."""
    folder = tmp_path / "v"
    tried_models.write(tried("NomicBertModel"), folder)
    loaded, _, _ = load_original(request(tmp_path), detect(folder))

    def fail(*_: object) -> None:
        raise Exception("WordPiece error: Missing [UNK] token")

    monkeypatch.setattr(loaded.sentences, "preprocess", fail)
    read = export.reader_of(loaded, max_tokens=8)
    with pytest.raises(VersionError, match=r"own tokeniser fails on the text 'ꙮ': .*Missing"):
        read("ꙮ", None)


def test_weights_are_not_rounded_to_what_the_first_of_them_is_in(
    libraries: tuple[Any, Any], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    torch, _ = libraries
    folder = tmp_path / "v"
    tried_models.write(tried("T5EncoderModel"), folder)
    said = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**said, "dtype": "bfloat16"})
    file = folder / "model.safetensors"
    weights = load_file(file)
    halved = next(iter(weights))
    weights[halved] = weights[halved].to(torch.bfloat16)
    save_file(weights, file, {"format": "pt"})
    loaded, _, _ = load_original(request(tmp_path), detect(folder))
    (dense,) = (part for part in loaded.sentences if hasattr(part, "linear"))
    exact = load_file(next(folder.glob("*_Dense/model.safetensors")))["linear.weight"]
    torch.testing.assert_close(dense.linear.weight, exact, rtol=0, atol=0)
    found = loaded.network.state_dict()
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight.float(), rtol=0, atol=0)


def test_tables_that_own_code_computes_are_computed_and_not_what_memory_held(
    libraries: tuple[Any, Any], tmp_path: Path
) -> None:
    """transformers 5 leaves them as the memory was, in the original and in its copy."""
    from safetensors.torch import load_file

    torch, transformers = libraries
    folder = tmp_path / "v"
    tried_models.write(tried("NeoBERTForSequenceClassification"), folder)
    own: dict[str, Any] = {"trust_remote_code": True}
    with stand_in(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **own)
        network = transformers.AutoModelForSequenceClassification.from_config(config, **own)
    network.load_state_dict(load_file(folder / "model.safetensors"))
    asked = request(tmp_path).model_copy(update={"allow_remote_code": True})
    loaded, _, _ = load_original(asked, detect(folder, allow_remote_code=True))
    given = loaded.tokenizer(["a fine film", "no"], return_tensors="pt", padding=True)
    with torch.no_grad():
        right, found = network.eval()(**given).logits, loaded.network(**given).logits
    np.testing.assert_allclose(found, right, atol=1e-6)
    assert loaded.network.model.turns.abs().mean() == pytest.approx(1.0)


def test_a_tokeniser_that_the_library_makes_again_is_served_as_the_library_makes_it(
    libraries: tuple[Any, Any], tmp_path: Path
) -> None:
    """A tokenizer.json of whole words without a tokenizer_config.json becomes a BertTokenizer."""
    _, transformers = libraries
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS), hidden_size=32, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    loaded, built, _ = load_original(request(tmp_path), detect(tmp_path))
    assert tokenizer().encode("...").ids != loaded.tokenizer("...").input_ids
    assert built.encoder.encode(["..."]).ids == [loaded.tokenizer("...").input_ids]


@pytest.mark.parametrize(
    ("words", "named", "differs"),
    [
        (tried_models.unigram, {"tokenizer_class": "XLMRobertaTokenizer"}, " "),
        (tried_models.bytes_between, {"tokenizer_class": "Qwen2Tokenizer"}, "cafe\u0301"),
        (tried_models.pieces, {"tokenizer_class": "BertTokenizer", "do_lower_case": False}, "The"),
    ],
    ids=["unigram", "bytes", "pieces"],
)
def test_a_class_that_reads_texts_in_its_own_way_is_followed(
    libraries: tuple[Any, Any],
    tmp_path: Path,
    words: tried_models.Words,
    named: dict[str, object],
    differs: str,
) -> None:
    _, transformers = libraries
    config = transformers.BertConfig(
        vocab_size=600, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path)
    words(tmp_path)
    written = json.loads((tmp_path / "tokenizer_config.json").read_text())
    write_json(tmp_path / "tokenizer_config.json", {**written, **named})
    loaded, built, _ = load_original(request(tmp_path), detect(tmp_path))
    by_file = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(differs).ids
    assert built.encoder.encode([differs]).ids == [loaded.tokenizer(differs).input_ids]
    assert built.encoder.encode([differs]).ids != [by_file]


def test_tokens_that_the_network_has_no_row_for_are_refused_by_name(
    libraries: tuple[Any, Any], tmp_path: Path
) -> None:
    _, transformers = libraries
    tried_models.pieces(tmp_path)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path)
    load_original(request(tmp_path), detect(tmp_path))
    words.add_tokens(["[TAG]"])
    words.save_pretrained(tmp_path)
    with pytest.raises(VersionError, match=r"tokens .* have no row .*'\[TAG\]'"):
        load_original(request(tmp_path), detect(tmp_path))


def test_every_network_whose_positions_begin_behind_the_padding_id_is_known(
    libraries: tuple[Any, Any],
) -> None:
    _, transformers = libraries
    called = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    readers = transformers.models.auto.modeling_auto
    reading = {
        kind
        for names in ("SEQUENCE_CLASSIFICATION", "MASKED_LM", "TOKEN_CLASSIFICATION")
        for kind in getattr(readers, f"MODEL_FOR_{names}_MAPPING_NAMES")
    }
    folder = Path(transformers.__file__).parent / "models"
    found = set()
    for source in folder.glob("*/modeling_*.py"):
        text = source.read_text(encoding="utf-8")
        behind = re.search(
            r"create_position_ids_from_input_ids\(\s*input_ids, self\.padding_idx", text
        )
        if behind is None or "nn.Embedding" not in text:
            continue
        found |= {
            kind
            for kind in reading & called.keys()
            if transformers.CONFIG_MAPPING[kind].__module__.split(".")[2] == source.parent.name
        }
    of_other_parts = {kind for kind in found if "vision" in kind}
    assert found - of_other_parts - OFFSET_POSITIONS == set()
    assert {"roberta", "xlm-roberta", "camembert", "data2vec-text"} <= found


def changed(folder: Path, name: str, **fields: Any) -> None:
    path = folder / name
    known = json.loads(path.read_text()) if path.is_file() else {}
    write_json(path, {**known, **fields})


@pytest.mark.parametrize("architecture", ["GteModel", "XLMRobertaForSequenceClassification"])
def test_a_library_that_would_take_padding_for_text_is_refused_as_that(
    libraries: tuple[Any, Any], tmp_path: Path, architecture: str
) -> None:
    folder = tmp_path / "v"
    tried_models.write(tried(architecture), folder)
    changed(folder, "tokenizer_config.json", model_input_names=["input_ids"])
    with pytest.raises(VersionError, match=r"model_input_names .* leaves out attention_mask"):
        load_original(request(tmp_path), detect(folder))


def test_a_special_token_that_another_file_names_is_the_one_that_is_served(
    libraries: tuple[Any, Any], tmp_path: Path
) -> None:
    _, transformers = libraries
    folder = tmp_path / "v"
    tried_models.write(tried("GteModel"), folder)
    changed(folder, "special_tokens_map.json", cls_token="[NEW]")
    _, built, _ = load_original(request(tmp_path), detect(folder))
    library = transformers.AutoTokenizer.from_pretrained(folder)
    row = library("a [NEW] film")["input_ids"]
    assert library.convert_tokens_to_ids("[NEW]") in row
    assert built.encoder.encode(["a [NEW] film"]).ids == [row]

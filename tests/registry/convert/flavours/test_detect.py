import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from tiny_models import (
    classifier,
    labeller,
    reader,
    token_vectors,
    tokenizer,
    write_json,
    write_onnx_version,
)

from contracts.tasks import Task
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel, Pooling, PoolingMode, detect
from registry.convert.flavours.config import task_of
from registry.convert.flavours.detect import is_pickle
from registry.convert.flavours.original import OriginalSides
from registry.convert.flavours.unserved import require_texts

MODULES = [
    {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
SPLADE = [
    {"idx": 0, "path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"},
    {
        "idx": 1,
        "path": "1_Pooling",
        "type": "sentence_transformers.sparse_encoder.models.SpladePooling",
    },
]
OF_LATE = "sentence_transformers.multi_vector_encoder"
NORMALIZE = {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}


def hf_folder(folder: Path, **config: Any) -> Path:
    """A folder in Hugging Face layout; its weights are never read here."""
    defaults = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "n"}}
    write_json(folder / "config.json", {**defaults, **config})
    (folder / "model.safetensors").write_bytes(b"")
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def sentences(folder: Path, modules: list[dict[str, Any]], pooling: dict[str, Any]) -> Path:
    hf_folder(folder, architectures=["BertModel"], id2label={})
    write_json(folder / "1_Pooling" / "config.json", pooling)
    write_json(folder / "modules.json", modules)
    return folder


def test_a_plain_folder_is_detected(tmp_path: Path) -> None:
    found = detect(hf_folder(tmp_path, id2label={"1": "pos", "0": "neg"}))
    assert found.flavour == "transformers folder"
    assert found.task is Task.TEXT_CLASSIFICATION
    assert found.labels == ("neg", "pos")
    assert found.onnx is None


@pytest.mark.parametrize(
    "architecture",
    [
        "GPT2LMHeadModel",
        "T5ForConditionalGeneration",
        "BartForConditionalGeneration",
        "MarianMTModel",
    ],
)
def test_what_writes_is_known_by_its_architecture(tmp_path: Path, architecture: str) -> None:
    found = detect(hf_folder(tmp_path, architectures=[architecture]))
    assert found.task is Task.TEXT_GENERATION


def test_mlflows_transformers_layout_is_detected(tmp_path: Path) -> None:
    hf_folder(tmp_path / "model")
    (tmp_path / "MLmodel").write_text("flavors: {transformers: {}}")
    (tmp_path / "components" / "tokenizer").mkdir(parents=True)
    place = tmp_path / "components" / "tokenizer" / "tokenizer.json"
    (tmp_path / "model" / "tokenizer.json").rename(place)
    found = detect(tmp_path)
    assert found.flavour == "transformers"
    assert found.tokenizer == place.parent.resolve()


def test_mlflows_sentence_transformers_layout_is_detected(tmp_path: Path) -> None:
    sentences(tmp_path / "model.sentence_transformer", MODULES, {"pooling_mode": "cls"})
    found = detect(tmp_path)
    assert (found.flavour, found.task) == ("sentence-transformers", Task.TEXT_EMBEDDING)
    assert found.pooling == Pooling((PoolingMode.CLS,))


def test_mlflows_onnx_layout_is_detected(tmp_path: Path) -> None:
    found = detect(write_onnx_version(tmp_path))
    assert found.flavour == "onnx"
    assert found.onnx == tmp_path / "model.onnx"
    assert found.labels == ("bad", "good")
    assert found.max_tokens == 24


def test_of_several_graphs_the_one_called_model_counts(tmp_path: Path) -> None:
    write_onnx_version(tmp_path)
    (tmp_path / "model_quantized.onnx").write_bytes(b"")
    assert detect(tmp_path).onnx == tmp_path / "model.onnx"
    (tmp_path / "model.onnx").rename(tmp_path / "another.onnx")
    with pytest.raises(VersionError, match="several ONNX graphs"):
        detect(tmp_path)


def bare_graph(folder: Path, model: onnx.ModelProto, **metadata: object) -> Path:
    """A graph and its tokeniser, and no config.json."""
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=json.dumps(value))
    onnx.save(model, str(folder / "model.onnx"))
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def test_without_a_config_the_graphs_output_tells_the_task(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert detect(bare_graph(tmp_path / "a", classifier())).task is Task.TEXT_CLASSIFICATION
    found = detect(bare_graph(tmp_path / "b", token_vectors()))
    assert (found.task, found.pooling) == (Task.TEXT_EMBEDDING, Pooling())
    (tmp_path / "c").mkdir()
    assert detect(bare_graph(tmp_path / "c", labeller())).task is Task.TOKEN_CLASSIFICATION


@pytest.mark.parametrize("metadata", [{"id2label": {"0": "x", "1": "y"}}, {"labels": ["x", "y"]}])
def test_without_a_config_the_graphs_metadata_names_the_labels(
    tmp_path: Path, metadata: dict[str, object]
) -> None:
    assert detect(bare_graph(tmp_path, classifier(), **metadata)).labels == ("x", "y")


@pytest.mark.parametrize(
    ("architecture", "loaders", "task"),
    [
        ("NeoBERTLMHead", ["AutoModelForMaskedLM"], Task.TEXT_EMBEDDING),
        ("NeoBERT", ["AutoModel"], Task.TEXT_EMBEDDING),
        ("Ranker", ["AutoModel", "AutoModelForSequenceClassification"], Task.TEXT_CLASSIFICATION),
        # A name that says it by itself is believed first, whatever else loads its class.
        ("InternLM2ForCausalLM", ["AutoModel", "AutoModelForCausalLM"], Task.TEXT_GENERATION),
        ("OwnForSequenceClassification", ["AutoModel"], Task.TEXT_CLASSIFICATION),
        ("OwnModel", ["AutoModelForSequenceClassification"], Task.TEXT_EMBEDDING),
    ],
)
def test_an_architecture_of_own_code_is_what_the_class_that_loads_it_is(
    architecture: str, loaders: list[str], task: Task
) -> None:
    mapped = {"AutoConfig": "m.Config", **dict.fromkeys(loaders, f"m.{architecture}")}
    labels = {"id2label": {"0": "bad", "1": "good"}}
    config = {"architectures": [architecture], "auto_map": mapped, **labels}
    assert task_of(config, None) is task
    if architecture in {"NeoBERT", "NeoBERTLMHead", "Ranker"}:
        wrong: tuple[Any, ...] = ({"AutoModel": 3}, [], None, "AutoModel")
        for hostile in wrong:
            with pytest.raises(VersionError, match="the architecture is"):
                task_of({**config, "auto_map": hostile}, None)


def test_a_graph_that_nothing_says_the_task_of_is_refused_unless_the_endpoint_does(
    tmp_path: Path,
) -> None:
    bare_graph(tmp_path, classifier(output="y"))
    with pytest.raises(VersionError, match="name one of them logits"):
        detect(tmp_path)
    requested = Task.TEXT_CLASSIFICATION
    assert detect(tmp_path, task=requested).task is requested


@pytest.mark.parametrize(
    ("pooling", "modes"),
    [
        ({"pooling_mode_cls_token": True}, ["cls"]),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, ["max", "mean"]),
        ({"pooling_mode": "mean"}, ["mean"]),
        ({"pooling_mode": ["mean", "lasttoken"]}, ["mean", "lasttoken"]),
    ],
)
def test_pooling_is_what_the_models_own_files_say(
    tmp_path: Path, pooling: dict[str, Any], modes: list[str]
) -> None:
    found = detect(sentences(tmp_path, [*MODULES, NORMALIZE], pooling))
    assert found.pooling == Pooling(tuple(PoolingMode(mode) for mode in modes), normalise=True)


def test_a_sparse_encoder_is_told_by_its_modules_and_loaded_by_its_own_class(
    tmp_path: Path,
) -> None:
    sentences(tmp_path, SPLADE, {"pooling_strategy": "max"})
    write_json(tmp_path / "config_sentence_transformers.json", {"model_type": "SparseEncoder"})
    found = detect(tmp_path)
    assert (found.task, found.pooling) == (Task.SPARSE_EMBEDDING, Pooling((PoolingMode.SPLADE,)))
    assert found.loaded_by == "SparseEncoder"


MASK = {"idx": 1, "path": "1_Pooling", "type": f"{OF_LATE}.modules.MultiVectorMask"}
OF_TOKENS = {"module_input_name": "token_embeddings"}
LATE = [MODULES[0], MASK, NORMALIZE]


def late(folder: Path, mask: dict[str, Any], said: dict[str, Any], read: dict[str, Any]) -> Path:
    """Late interaction: the module that masks, what is said of all, how texts are read."""
    sentences(folder, LATE, mask)
    write_json(folder / "2_Normalize" / "config.json", OF_TOKENS)
    write_json(
        folder / "config_sentence_transformers.json", {"model_type": "MultiVectorEncoder", **said}
    )
    write_json(folder / "sentence_bert_config.json", read)
    return folder


def test_late_interaction_is_told_by_its_modules_and_both_sides_are_read(tmp_path: Path) -> None:
    mask = {"skiplist_words": [".", "!"], "skiplist_tasks": ["query"], "keep_only_token_ids": [7]}
    said = {"prompts": {"query": "[Q] "}, "similarity_fn_name": "meanmaxsim"}
    filling = {"strategy": "fixed", "attend": True, "token": "film", "length": 9}
    read = {"document_length": 30, "query_length": 12, "query_expansion": filling}
    found = detect(late(tmp_path, mask, said, read))
    assert (found.task, found.loaded_by) == (Task.MULTI_VECTOR_EMBEDDING, "MultiVectorEncoder")
    assert found.pooling == Pooling((PoolingMode.EACH_TOKEN,), normalise=True)
    assert (found.prompts, found.default_prompt) == ({"query": "[Q] ", "document": ""}, "document")
    assert found.sides == OriginalSides(
        query_tokens=12, document_tokens=30, filled_to=9, is_fixed=True, fill_token="film",
        attends=True, left_out=(".", "!"), left_out_of=("query",), only=(7,), mean=True,
    )  # fmt: skip


def test_late_interaction_without_options_leaves_nothing_out(tmp_path: Path) -> None:
    found = detect(late(tmp_path, {}, {}, {}))
    assert found.sides == OriginalSides(left_out_of=("document",))
    write_json(tmp_path / "2_Normalize" / "config.json", {})  # of vectors of texts, which it lacks
    assert detect(tmp_path).pooling == Pooling((PoolingMode.EACH_TOKEN,))


@pytest.mark.parametrize(
    ("said", "read", "words"),
    [
        ({"similarity_fn_name": "cosine"}, {}, "similarity_fn_name 'cosine'"),
        ({"model_type": "SentenceTransformer"}, {}, "those of a MultiVectorEncoder"),
        ({"model_type": "ColBERT"}, {}, "a ColBERT as PyLate saves it"),
        ({"query_prefix": None}, {}, "a ColBERT as PyLate saves it"),
        ({}, {"query_length": 0}, "query_length of the transformer is 0"),
        ({}, {"query_expansion": {"strategy": "twice", "length": 9}}, "query_expansion"),
        ({}, {"query_expansion": {"strategy": "min"}}, "query_expansion"),
        ({}, {"processing_kwargs": {"text": {"max_length": 9}}}, "processing_kwargs"),
    ],
)
def test_what_late_interaction_can_not_be_served_with_is_named(
    tmp_path: Path, said: dict[str, Any], read: dict[str, Any], words: str
) -> None:
    with pytest.raises(VersionError, match=words):
        detect(late(tmp_path, {}, said, read))


def test_queries_that_are_filled_up_on_the_left_are_refused(tmp_path: Path) -> None:
    late(tmp_path, {}, {}, {"query_expansion": {"strategy": "min", "length": 9}})
    write_json(tmp_path / "tokenizer_config.json", {"padding_side": "left"})
    with pytest.raises(VersionError, match="filled up on the left"):
        detect(tmp_path)


def test_late_interaction_by_other_libraries_says_how_it_becomes_one_that_is_served(
    tmp_path: Path,
) -> None:
    hf_folder(tmp_path, architectures=["HF_ColBERT"])
    with pytest.raises(VersionError, match=r"colbert-ai package saves it.*save_pretrained"):
        detect(tmp_path)


def test_late_interaction_that_is_only_a_graph_is_refused(tmp_path: Path) -> None:
    late(tmp_path, {}, {}, {})
    (tmp_path / "model.safetensors").unlink()
    onnx.save(token_vectors(), str(tmp_path / "model.onnx"))
    with pytest.raises(VersionError, match="served from its safetensors"):
        detect(tmp_path)


def test_a_pooling_beside_the_mask_of_late_interaction_is_refused(tmp_path: Path) -> None:
    late(tmp_path, {}, {}, {})
    pooling = {**MODULES[1], "path": "3_Pooling"}
    write_json(tmp_path / "modules.json", [*LATE, pooling])
    with pytest.raises(VersionError, match="module Pooling that can't be part of the graph"):
        detect(tmp_path)
    write_json(tmp_path / "modules.json", [*LATE, MASK])
    with pytest.raises(VersionError, match="several modules MultiVectorMask"):
        detect(tmp_path)


def test_a_masked_language_model_is_sparse_where_the_endpoint_says_so(tmp_path: Path) -> None:
    write_onnx_version(tmp_path, token_vectors(), architecture="TinyForMaskedLM")
    assert detect(tmp_path).task is Task.TEXT_EMBEDDING
    found = detect(tmp_path, task=Task.SPARSE_EMBEDDING)
    assert (found.task, found.labels) == (Task.SPARSE_EMBEDDING, ())
    assert found.pooling == Pooling((PoolingMode.SPLADE,))
    again = detect(tmp_path, usual=Task.SPARSE_EMBEDDING)
    assert again.task is Task.SPARSE_EMBEDDING


HALF = "\ud83d"  # of an emoji


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("config.json", {"id2label": {"0": f"good {HALF}", "1": "bad"}}, "id2label.0"),
        ("config.json", {"label2id": {HALF: 0}}, "label2id"),
        ("tokenizer_config.json", {"pad_token": {"content": HALF}}, "pad_token.content"),
        ("tokenizer_config.json", {"chat_template": HALF}, "chat_template"),
        ("sentence_bert_config.json", {"nonsense": [0, HALF]}, r"nonsense\[1\]"),
        ("config_sentence_transformers.json", {"prompts": {"query": HALF}}, "prompts.query"),
        ("config_sentence_transformers.json", {"prompts": {HALF: "query: "}}, "prompts"),
        ("modules.json", [{**MODULES[0], "name": HALF}, MODULES[1]], r"\[0\].name"),
        ("1_Pooling/config.json", {"pooling_mode": HALF}, "pooling_mode"),
    ],
)
@pytest.mark.parametrize("raw", [False, True], ids=["escaped", "raw"])
def test_half_of_a_surrogate_pair_in_a_configuration_is_refused_by_its_place(
    tmp_path: Path, name: str, content: Any, place: str, *, raw: bool
) -> None:
    sentences(tmp_path, MODULES, {"pooling_mode": "mean"})
    written = json.dumps(content, ensure_ascii=not raw)
    (tmp_path / name).write_bytes(written.encode("utf-8", "surrogatepass"))
    with pytest.raises(VersionError, match=f"{Path(name).name}: {place}: half of a surrogate pair"):
        detect(tmp_path)


@pytest.mark.parametrize("metadata", [{"id2label": {"0": "x", "1": HALF}}, {"labels": ["x", HALF]}])
def test_half_of_a_surrogate_pair_in_a_graphs_metadata_is_refused(
    tmp_path: Path, metadata: dict[str, object]
) -> None:
    with pytest.raises(VersionError, match=r"metadata: .*1.*half of a surrogate pair"):
        detect(bare_graph(tmp_path, classifier(), **metadata))


def test_a_file_name_that_is_no_unicode_is_escaped_in_the_reason(tmp_path: Path) -> None:
    (tmp_path / "odd-\udcff.bin").touch()
    with pytest.raises(VersionError) as refused:
        detect(tmp_path)
    assert r"it holds odd-\udcff.bin" in refused.value.reason


def test_a_whole_pair_is_a_character_like_any_other(tmp_path: Path) -> None:
    assert detect(hf_folder(tmp_path, id2label={"0": "😀"})).labels == ("😀",)
    assert b"\\ud83d\\ude00" in (tmp_path / "config.json").read_bytes()


@pytest.mark.parametrize(
    ("modules", "pooling", "words"),
    [
        ([{"path": "", "type": "sentence_transformers.models.CNN"}], {}, "module CNN"),
        (MODULES, {"pooling_mode": "telepathy"}, "telepathy"),
        (MODULES, {"pooling_mode": "mean", "include_prompt": False}, "prompt"),
        (MODULES, {}, "no Pooling"),
        ([{**MODULES[0], "path": "../.."}], {}, "outside"),
        ([MODULES[1], NORMALIZE], {"pooling_mode": "mean"}, "does not begin with a Transformer"),
        ([NORMALIZE, *MODULES[::-1]], {"pooling_mode": "mean"}, "Pooling that can't be part"),
        ([MODULES[0], NORMALIZE, MODULES[1]], {"pooling_mode": "mean"}, "in this order"),
        ([], {}, "does not begin with a Transformer"),
        ([*MODULES, MODULES[0]], {"pooling_mode": "mean"}, "module Transformer that can't be"),
        (SPLADE, {"pooling_strategy": "sum"}, "sparse pooling by sum with relu"),
        (SPLADE, {"activation_function": "log1p_relu"}, "with log1p_relu"),
        ([{"path": "", "type": "antigravity.Transformer"}], {}, "'antigravity.Transformer', which"),
        ([{"path": "", "type": "sentence_transformers_.Transformer"}], {}, "other code is not run"),
        ([{"path": "", "type": "Pooling"}], {}, "other code is not run"),
    ],
)
def test_a_module_that_can_not_be_in_the_graph_is_named(
    tmp_path: Path, modules: list[dict[str, Any]], pooling: dict[str, Any], words: str
) -> None:
    with pytest.raises(VersionError, match=words):
        detect(sentences(tmp_path / "m", modules, pooling))


@pytest.mark.parametrize("merges", [["@@a b"], [["a", "@@b"], ["@@a", "b"]]])
def test_merges_at_which_the_tokenisers_library_ends_the_process_are_refused(
    tmp_path: Path, merges: list[Any]
) -> None:
    hf_folder(tmp_path)
    pieces = {each: at for at, each in enumerate(("a", "b", "@@a", "@@b", "a@@b"))}
    model: dict[str, Any] = {"type": "BPE", "vocab": pieces, "merges": merges}
    model["continuing_subword_prefix"] = "@@"
    write_json(tmp_path / "tokenizer.json", {"model": model})
    with pytest.raises(VersionError, match=r"continuing_subword_prefix '@@'.*such as 'b'"):
        detect(tmp_path)
    model["merges"] = [["a", "@@b"], ["@@a", "@@b"]]
    write_json(tmp_path / "tokenizer.json", {"model": model})
    assert detect(tmp_path).task is Task.TEXT_CLASSIFICATION


def test_a_prompt_lowercasing_and_a_shorter_limit_are_read(tmp_path: Path) -> None:
    sentences(tmp_path, MODULES, {"pooling_mode": "mean"})
    write_json(
        tmp_path / "sentence_bert_config.json", {"max_seq_length": 17, "do_lower_case": True}
    )
    write_json(
        tmp_path / "config_sentence_transformers.json",
        {"default_prompt_name": "query", "prompts": {"query": "query: "}},
    )
    found = detect(tmp_path)
    assert (found.prompts, found.default_prompt) == ({"query": "query: "}, "query")
    assert (found.lowercase, found.max_tokens) == (True, 17)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"prompts": {"query": 1}}, "not texts by name"),
        ({"prompts": ["query: "]}, "not texts by name"),
        ({"prompts": {"query": "q"}, "default_prompt_name": "answer"}, "usual prompt is answer"),
    ],
)
def test_prompts_that_can_not_be_used_are_refused(
    tmp_path: Path, written: dict[str, Any], words: str
) -> None:
    sentences(tmp_path, MODULES, {"pooling_mode": "mean"})
    write_json(tmp_path / "config_sentence_transformers.json", written)
    with pytest.raises(VersionError, match=words):
        detect(tmp_path)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"max_position_embeddings": 512}, 512),
        ({"max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1}, 512),
        ({"max_position_embeddings": 130, "model_type": "data2vec-text", "pad_token_id": 1}, 128),
        ({"max_position_embeddings": 130, "model_type": "ibert"}, 128),
        ({"max_position_embeddings": 130, "model_type": "roberta-prelayernorm"}, 128),
        ({}, None),
    ],
)
def test_the_longest_row_is_what_the_positions_allow(
    tmp_path: Path, config: dict[str, Any], limit: int | None
) -> None:
    assert detect(hf_folder(tmp_path, **config)).max_tokens == limit


def test_a_tokenisers_limit_without_end_is_none(tmp_path: Path) -> None:
    hf_folder(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"model_max_length": 10**30})
    assert detect(tmp_path).max_tokens is None


def test_a_bare_encoder_is_an_embedding_by_the_mean(tmp_path: Path) -> None:
    found = detect(hf_folder(tmp_path, architectures=["BertModel"]))
    assert (found.task, found.pooling) == (Task.TEXT_EMBEDDING, Pooling())


def test_multi_label_models_are_known_by_their_problem_type(tmp_path: Path) -> None:
    found: OriginalTextModel = detect(
        hf_folder(tmp_path, problem_type="multi_label_classification")
    )
    assert found.multi_label


@pytest.mark.parametrize(
    ("config", "task", "words"),
    [
        ({"architectures": ["GPT2LMHeadModel", "X"]}, None, "GPT2LMHeadModel"),
        ({"id2label": {"0": "a", "2": "b"}}, None, "id2label"),
        ({}, Task.TEXT_EMBEDDING, "asks for text-embedding"),
    ],
)
def test_a_config_of_something_else_is_refused_with_its_words(
    tmp_path: Path, config: dict[str, Any], task: Task | None, words: str
) -> None:
    with pytest.raises(VersionError, match=words):
        detect(hf_folder(tmp_path, **config), task=task)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pkl", "data/model.pth"])
def test_a_version_of_pickles_alone_is_refused_by_the_files_name(tmp_path: Path, name: str) -> None:
    assert is_pickle(name)
    write_json(tmp_path / "config.json", {})
    with pytest.raises(VersionError, match=f"{name}, a pickle"):
        detect(tmp_path, refused=[name])


def test_a_pickle_beside_safetensors_does_no_harm(tmp_path: Path) -> None:
    assert detect(hf_folder(tmp_path), refused=["pytorch_model.bin"]).labels == ("n",)


def test_a_layer_after_pooling_is_of_torch_alone(tmp_path: Path) -> None:
    dense = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    sentences(tmp_path, [*MODULES, dense], {"pooling_mode": "mean"})
    layer = tmp_path / "2_Dense" / "config.json"
    write_json(layer, {"in_features": 8, "activation_function": "antigravity.Tanh"})
    with pytest.raises(VersionError, match=r"activation antigravity\.Tanh"):
        detect(tmp_path)
    write_json(layer, {"in_features": 8, "activation_function": "torch.nn.modules.activation.Tanh"})
    with pytest.raises(VersionError, match=r"2_Dense has no model\.safetensors"):
        detect(tmp_path)
    (layer.parent / "model.safetensors").write_bytes(b"")
    assert detect(tmp_path).pooling


def test_an_index_of_weights_that_names_anything_but_safetensors_is_refused(tmp_path: Path) -> None:
    hf_folder(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    write_json(index, {"weight_map": {"a": "model-1.safetensors", "b": "x.dat"}})
    with pytest.raises(VersionError, match=r"index\.json names 'x\.dat', which is not safetensors"):
        detect(tmp_path)
    assert detect(tmp_path, allow_pickle=True).task is Task.TEXT_CLASSIFICATION


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_the_models_own_is_refused_unless_allowed(tmp_path: Path, name: str) -> None:
    hf_folder(tmp_path)
    asking = {"architectures": ["BertForSequenceClassification"], "auto_map": {"AutoModel": "x.Y"}}
    write_json(tmp_path / name, asking)
    with pytest.raises(VersionError, match=f"{name} asks for code of its own"):
        detect(tmp_path)
    assert detect(tmp_path, allow_remote_code=True).task is Task.TEXT_CLASSIFICATION


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("config.json", {"AutoModel": "jinaai/bert--modeling_bert.JinaBertModel"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["jinaai/bert--tokenization.T", None]}),
    ],
)
def test_code_that_lies_in_another_repository_is_never_downloaded(
    tmp_path: Path, name: str, code: dict[str, Any]
) -> None:
    hf_folder(tmp_path, auto_map={"AutoConfig": "beside.Config"})
    asking = {"architectures": ["BertForSequenceClassification"], "auto_map": code}
    write_json(tmp_path / name, asking)
    with pytest.raises(VersionError, match=f"{name} takes its code from jinaai/bert.*never down"):
        detect(tmp_path, allow_remote_code=True)


def test_a_graph_runs_no_code_wherever_it_lies(tmp_path: Path) -> None:
    write_onnx_version(tmp_path)
    path = tmp_path / "extra_files" / "config.json"
    config = json.loads(path.read_text())
    write_json(path, config | {"auto_map": {"AutoModel": "other/bert--modeling.Bert"}})
    assert detect(tmp_path, allow_remote_code=True).onnx is not None


def test_what_is_nothing_we_know_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "model.cbm").write_bytes(b"")
    with pytest.raises(VersionError, match=r"none of.*it holds model\.cbm"):
        detect(tmp_path)


def test_a_broken_config_is_refused(tmp_path: Path) -> None:
    hf_folder(tmp_path)
    (tmp_path / "config.json").write_text("{nope")
    with pytest.raises(VersionError, match="not JSON"):
        detect(tmp_path)


CROSS_ENCODER = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
OLDER_CROSS_ENCODER = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}


@pytest.mark.parametrize("marks", [CROSS_ENCODER, OLDER_CROSS_ENCODER])
def test_a_cross_encoder_of_one_label_ranks_texts(tmp_path: Path, marks: dict[str, Any]) -> None:
    found = detect(hf_folder(tmp_path, id2label={"0": "LABEL_0"}, **marks))
    assert (found.task, found.labels) == (Task.TEXT_RANKING, ("LABEL_0",))


def test_a_cross_encoder_in_its_own_library_s_layout_ranks_texts(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path)
    write_json(folder / "modules.json", MODULES[:1])
    write_json(folder / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    found = detect(folder)
    assert (found.task, found.loaded_by) == (Task.TEXT_RANKING, "CrossEncoder")


def test_a_cross_encoders_prompts_are_read(tmp_path: Path) -> None:
    hf_folder(tmp_path)
    write_json(
        tmp_path / "config_sentence_transformers.json",
        {
            "model_type": "CrossEncoder",
            "prompts": {"search": "rank: ", "none": None},
            "default_prompt_name": "search",
        },
    )
    found = detect(tmp_path)
    assert (found.task, found.loaded_by) == (Task.TEXT_RANKING, "CrossEncoder")
    assert found.prompts == {"search": "rank: ", "none": ""}
    assert found.default_prompt == "search"


def test_a_cross_encoder_with_more_than_a_transformer_is_refused(tmp_path: Path) -> None:
    hf_folder(tmp_path)
    write_json(tmp_path / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    score = {"path": "1", "type": "sentence_transformers.cross_encoder.modules.LogitScore"}
    write_json(tmp_path / "modules.json", [MODULES[0], score])
    with pytest.raises(VersionError, match="CrossEncoder has the module LogitScore"):
        detect(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config_sentence_transformers.json", {"truncate_dim": 4}, "says truncate_dim 4"),
        ("config_sentence_transformers.json", {"new_one": 4}, "has the field 'new_one'"),
        ("sentence_bert_config.json", {"query_length": 4}, "says query_length 4"),
        ("1_Pooling/config.json", {"pooling_mode": "cls", "new": 1}, "has the field 'new'"),
        ("modules.json", [{**MODULES[0], "new": 1}, MODULES[1]], "has the field 'new'"),
    ],
)
def test_a_field_that_would_change_answers_is_refused_by_its_name(
    tmp_path: Path, file: str, content: Any, words: str
) -> None:
    sentences(tmp_path, MODULES, {"pooling_mode": "cls"})
    write_json(tmp_path / file, content)
    with pytest.raises(VersionError, match=f"{Path(file).name} {words}"):
        detect(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("sentence_roberta_config.json", {"max_seq_length": 17, "do_lower_case": True}),
        (
            "sentence_bert_config.json",
            {"processor_kwargs": {"model_max_length": 17}, "do_lower_case": True},
        ),
        (
            "sentence_bert_config.json",
            {"tokenizer_args": {"model_max_length": 17}, "do_lower_case": True},
        ),
    ],
)
def test_limits_are_read_by_older_and_by_newer_names(
    tmp_path: Path, file: str, content: dict[str, Any]
) -> None:
    sentences(tmp_path, MODULES, {"pooling_mode": "cls"})
    write_json(tmp_path / file, content)
    found = detect(tmp_path)
    assert (found.max_tokens, found.lowercase) == (17, True)


def test_a_tokeniser_of_sentencepiece_alone_is_found(tmp_path: Path) -> None:
    hf_folder(tmp_path)
    (tmp_path / "tokenizer.json").rename(tmp_path / "spm.model")
    assert detect(tmp_path).tokenizer == tmp_path.resolve()


def test_a_cross_encoder_of_several_labels_classifies_pairs(tmp_path: Path) -> None:
    found = detect(hf_folder(tmp_path, id2label={"0": "no", "1": "yes"}, **CROSS_ENCODER))
    assert found.task is Task.TEXT_CLASSIFICATION


def test_a_classifier_of_one_label_ranks_texts_only_where_it_is_asked_to(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path)
    assert detect(folder).task is Task.TEXT_CLASSIFICATION
    assert detect(folder, task=Task.TEXT_RANKING).task is Task.TEXT_RANKING


@pytest.mark.parametrize("labels", [{"0": "score"}, {"0": "joy", "1": "anger"}])
def test_a_regression_is_no_classifier_and_may_only_rank_texts(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    folder = hf_folder(tmp_path, id2label=labels, problem_type="regression")
    for asked in (None, Task.TEXT_CLASSIFICATION):
        with pytest.raises(VersionError, match="problem_type"):
            detect(folder, task=asked)
    if len(labels) == 1:
        assert detect(folder, task=Task.TEXT_RANKING).task is Task.TEXT_RANKING


def test_what_the_stable_version_does_goes_before_the_marks_of_a_file(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path, **CROSS_ENCODER)
    assert detect(folder, usual=Task.TEXT_CLASSIFICATION).task is Task.TEXT_CLASSIFICATION
    assert detect(folder, usual=Task.TEXT_EMBEDDING).task is Task.TEXT_RANKING


def test_a_classifier_of_two_labels_can_not_rank_texts(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path, id2label={"0": "no", "1": "yes"})
    with pytest.raises(VersionError, match="asks for text-ranking"):
        detect(folder, task=Task.TEXT_RANKING)


NLI = {"0": "contradiction", "1": "neutral", "2": "ENTAILMENT"}


def test_a_model_of_entailment_takes_callers_labels_only_where_it_is_asked_to(
    tmp_path: Path,
) -> None:
    folder = hf_folder(tmp_path, id2label=NLI)
    assert detect(folder).task is Task.TEXT_CLASSIFICATION
    asked = Task.ZERO_SHOT_CLASSIFICATION
    assert detect(folder, task=asked).task is asked
    assert detect(folder, usual=asked).task is asked


@pytest.mark.parametrize("labels", [{"0": "bad", "1": "good"}, {"0": "entailment"}, {}])
def test_a_model_without_entailment_can_not_take_callers_labels(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    folder = hf_folder(tmp_path, id2label=labels)
    with pytest.raises(VersionError, match="no label begins with 'entail'"):
        detect(folder, task=Task.ZERO_SHOT_CLASSIFICATION)


def test_a_bare_graph_takes_callers_labels_where_it_names_entailment(tmp_path: Path) -> None:
    labels = ["entailment", "not_entailment"]
    folder = bare_graph(tmp_path, classifier(), labels=labels)
    found = detect(folder, task=Task.ZERO_SHOT_CLASSIFICATION)
    assert found.labels == ("entailment", "not_entailment")


@pytest.mark.parametrize("stacked", [False, True])
def test_a_graph_of_starts_and_ends_answers_questions(tmp_path: Path, stacked: bool) -> None:
    folder = bare_graph(tmp_path, reader(stacked=stacked))
    asked = Task.QUESTION_ANSWERING
    assert detect(folder, task=asked).task is asked
    # Columns without a name of their own could be labels of tokens.
    assert (detect(folder).task is asked) is not stacked


def test_a_model_for_question_answering_is_detected(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path, architectures=["BertForQuestionAnswering"], id2label={})
    assert detect(folder).task is Task.QUESTION_ANSWERING


def test_safetensors_are_the_original_whatever_graphs_lie_beside_them(tmp_path: Path) -> None:
    hf_folder(tmp_path)
    (tmp_path / "onnx").mkdir()
    for name in ("model.onnx", "model_fp16.onnx", "model_quantized.onnx"):
        (tmp_path / "onnx" / name).write_bytes(b"")
    assert detect(tmp_path).onnx is None
    (tmp_path / "onnx" / "model.onnx").unlink()
    assert detect(tmp_path).onnx is None


ADAPTER = {"peft_type": "LORA", "r": 4, "base_model_name_or_path": "team/base"}
MERGE_IT = r"merge_and_unload\) and register what save_pretrained writes"


@pytest.mark.parametrize("place", ["", "adapter", "peft"])
def test_an_adapter_beside_a_model_is_refused_by_name(tmp_path: Path, place: str) -> None:
    hf_folder(tmp_path)
    write_json(tmp_path / place / "adapter_config.json", ADAPTER)
    (tmp_path / place / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(VersionError, match=rf"a LORA adapter beside the model.*{MERGE_IT}"):
        detect(tmp_path)


def test_an_adapter_without_its_model_is_refused_as_that(tmp_path: Path) -> None:
    write_json(tmp_path / "adapter_config.json", ADAPTER)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    says = rf"a LORA adapter of team/base, without that model.*{MERGE_IT}"
    with pytest.raises(VersionError, match=says):
        detect(tmp_path)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"architectures": ["ViTForImageClassification"], "image_size": 224}, "it reads images"),
        ({"architectures": ["CLIPModel"], "vision_config": {}}, "it reads images"),
        (
            {"architectures": ["WhisperForConditionalGeneration"], "num_mel_bins": 80},
            "it reads sound",
        ),
        (
            {"architectures": ["Wav2Vec2ForSequenceClassification"], "conv_dim": [512]},
            "it reads sound",
        ),
    ],
)
def test_what_reads_no_text_is_told_so_and_not_to_bring_a_tokeniser(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    hf_folder(tmp_path, **config)
    (tmp_path / "tokenizer.json").unlink()
    write_json(tmp_path / "preprocessor_config.json", {})
    with pytest.raises(VersionError, match=says):
        detect(tmp_path)


@pytest.mark.parametrize(
    "field", [{"vision_config": {"image_size": 224}}, {"image_size": 56}, {"audio_config": {}}]
)
def test_a_field_of_images_in_the_config_of_a_network_of_texts_refuses_nothing(
    tmp_path: Path, field: dict[str, Any]
) -> None:
    hf_folder(tmp_path, vocab_size=50, **field)
    assert detect(tmp_path).task is Task.TEXT_CLASSIFICATION


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"vision_config": {}, "text_config": {"vocab_size": 50}}, "it reads images beside texts"),
        (
            {"vocab_size": 50, "vision_config": {}, "text_config": {}},
            "it reads images beside texts",
        ),
        ({"vocab_size": 32, "conv_dim": [512]}, "it reads sound"),
    ],
)
def test_what_reads_images_or_sound_as_well_is_told_so_with_its_tokeniser_too(
    tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    hf_folder(tmp_path, **fields)
    with pytest.raises(VersionError, match=says):
        detect(tmp_path)


@pytest.mark.parametrize("said", ["SparseEncoder", "CrossEncoder"])
def test_modules_that_the_class_of_a_model_would_leave_out_are_refused(
    tmp_path: Path, said: str
) -> None:
    sentences(tmp_path, [*MODULES, NORMALIZE], {"pooling_mode": "cls"})
    write_json(tmp_path / "config_sentence_transformers.json", {"model_type": said})
    with pytest.raises(VersionError, match=f"{said}.* modules.json"):
        detect(tmp_path)


def test_a_network_without_ids_of_tokens_is_told_what_it_takes() -> None:
    require_texts("Bert", ["input_ids", "attention_mask"])
    with pytest.raises(VersionError, match=r"Series takes past_values, .* no input_ids"):
        require_texts("Series", ["past_values"])


def test_a_graph_that_reads_texts_may_be_one_part_of_a_model_of_images(tmp_path: Path) -> None:
    hf_folder(tmp_path, architectures=["CLIPModel"], vision_config={"image_size": 224})
    (tmp_path / "model.safetensors").unlink()
    onnx.save(token_vectors(), str(tmp_path / "model.onnx"))
    assert detect(tmp_path).task is Task.TEXT_EMBEDDING
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(VersionError, match="it reads images"):
        detect(tmp_path)

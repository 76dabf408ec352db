"""The table of config fields: what is refused, and that it lacks none of the libraries' own."""

import ast
import dataclasses
import inspect
import os
import textwrap
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from registry.convert.errors import VersionError
from registry.convert.flavours import fields
from registry.convert.flavours.fields import Effect, Fields, require_known


def list_unknown(names: Collection[str], table: Fields) -> list[str]:
    """Which of a library's fields the table lacks, in order."""
    return sorted(set(names) - table.keys())


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        (fields.SENTENCES, "model_type", "ColBERT"),
        (fields.SENTENCES, "truncate_dim", 8),
        (fields.SENTENCES, "max_active_dims", 64),
        (fields.TRANSFORMER, "transformer_task", "text-generation"),
        (fields.TRANSFORMER, "modality_config", {"image": {}}),
        (fields.TRANSFORMER, "processing_kwargs", {"text": {"max_length": 9}}),
        (fields.TRANSFORMER, "query_length", 32),
        (fields.MODULES["Dense"], "use_residual", True),
        (fields.MODULES["Dense"], "module_input_name", "token_embeddings"),
        (fields.MODULES["Normalize"], "module_input_name", "token_embeddings"),
        (fields.SIDED_MODULES["Dense"], "module_input_name", "sentence_embedding"),
        (fields.SIDED_MODULES["Normalize"], "module_output_name", "sentence_embedding"),
    ],
)
def test_a_value_that_would_change_answers_is_refused_by_its_fields_name(
    table: fields.Fields, name: str, value: object
) -> None:
    with pytest.raises(VersionError, match=f"x.json says {name} .*not served"):
        require_known("x.json", {name: value}, table)


def test_a_field_that_nobody_knows_is_refused_by_its_name() -> None:
    with pytest.raises(VersionError, match="has the field 'attend_to_the_moon'"):
        require_known("x.json", {"attend_to_the_moon": True}, fields.SENTENCES)


@pytest.mark.parametrize("table", [fields.SENTENCES, fields.TRANSFORMER, *fields.MODULES.values()])
def test_what_is_limited_says_what_else_it_would_do_and_may_be_absent(table: fields.Fields) -> None:
    limited = {name: each for name, each in table.items() if each.effect is Effect.LIMITED}
    assert all(each.why and each.allowed is not None for each in limited.values())
    require_known("x.json", dict.fromkeys(limited), table)


@pytest.fixture(scope="module")
def libraries() -> tuple[Any, Any]:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    transformers = pytest.importorskip("transformers", reason="needs the export environment")
    sentences = pytest.importorskip("sentence_transformers", reason="needs the export environment")
    return transformers, sentences


exported = pytest.mark.export


def literals_of(*functions: Any) -> set[str]:
    """The string keys that functions ask a mapping for: ``x["a"]``, ``x.get("a")``, ``{"a": ..}``.

    Keys of any mapping count: what comes of others is left out by name in the test.
    """
    return {name for each in functions for name in _keys(ast.parse(_source(each)))}


def _source(function: Any) -> str:
    return textwrap.dedent(inspect.getsource(function))


def _keys(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        keys: list[ast.expr | None] = []
        if isinstance(node, ast.Subscript):
            keys = [node.slice]
        elif isinstance(node, ast.Dict):
            keys = list(node.keys)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"get", "pop", "setdefault"} and node.args:
                keys = [node.args[0]]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
            keys = [node.left]
        for key in keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value


@exported
def test_no_field_of_a_sentence_transformers_model_is_unknown(libraries: tuple[Any, Any]) -> None:
    _, sentences = libraries
    classes = (
        *(sentences.SentenceTransformer, sentences.CrossEncoder, sentences.SparseEncoder),
        sentences.MultiVectorEncoder,
    )
    functions = [
        getattr(each, name)
        for each in classes
        for name in ("_get_model_config", "_parse_model_config")
    ]
    base = classes[0].__mro__[1]
    found = literals_of(*functions, base._get_model_config, base._parse_model_config)
    inside_of_versions = {"sentence_transformers", "transformers", "pytorch"}
    of_filling = {"strategy", "attend", "length"}
    found -= inside_of_versions | of_filling | fields.OF_PYLATE
    assert list_unknown(found, fields.SENTENCES) == []
    assert {"prompts", "default_prompt_name", "truncate_dim", "activation_fn"} <= found


@exported
def test_no_field_of_a_served_module_is_unknown(libraries: tuple[Any, Any]) -> None:
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    for module in (Dense, Normalize, Pooling, SpladePooling, MultiVectorMask):
        table = fields.MODULES[module.__name__]
        renamed = set(getattr(module, "config_key_renames", {}))
        assert list_unknown({*module.config_keys, *renamed}, table) == [], module.__name__
    taken = set(inspect.signature(inspect.unwrap(Transformer.__init__)).parameters)
    not_of_the_file = {"self", "model_name_or_path", "backend"}
    written = {*Transformer.config_keys, *taken} - not_of_the_file
    assert list_unknown(written, fields.TRANSFORMER) == []


@exported
def test_no_common_field_of_a_tokeniser_is_unknown(libraries: tuple[Any, Any]) -> None:
    transformers, _ = libraries
    base = transformers.PreTrainedTokenizerBase
    found = literals_of(base.__init__, transformers.PreTrainedTokenizerFast.__init__)
    found |= set(base.SPECIAL_TOKENS_ATTRIBUTES)
    private = {name for name in found if name.startswith("_")}
    of_truncation_and_padding = {"direction", "strategy", "length", "pad_type_id", "name"}
    of_templates = {"template"}
    found -= private | of_truncation_and_padding | of_templates
    assert list_unknown(found, fields.TOKENIZER) == []
    assert {"truncation_side", "model_max_length", "split_special_tokens"} <= found


@exported
def test_no_common_field_of_a_network_is_unknown(libraries: tuple[Any, Any]) -> None:
    transformers, _ = libraries
    config = transformers.PreTrainedConfig
    found = {each.name for each in dataclasses.fields(config)}
    found |= literals_of(config.__post_init__)
    private = {name for name in found if name.startswith("_")} - {"_name_or_path"}
    assert list_unknown(found - private, fields.NETWORK) == []
    assert {"id2label", "problem_type", "is_encoder_decoder"} <= found

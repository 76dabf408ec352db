"""What becomes of each field of the libraries' config files: one table.

A field that changes answers is read by us, is followed by the library by which the original is
loaded (so that the comparison shows whether the graph follows it too), or is refused by its name. A
test holds the table to the newest releases of the libraries. It reads no file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from registry.convert.errors import VersionError
from registry.convert.flavours.config import Json

Allowed = Callable[[object], bool]


class Effect(Enum):
    """What a field does to answers here."""

    READ = "read, and kept to"
    COMPARED = "followed by the library; the comparison with it shows what the graph makes of it"
    NONE = "no effect on answers"
    LIMITED = "refused unless its value is one that changes nothing"


@dataclass(frozen=True)
class Field:
    """One field.

    ``allowed`` tells the values of a limited one that pass, and ``why`` what the others would do.
    """

    effect: Effect
    allowed: Allowed | None = None
    why: str = ""


Fields = Mapping[str, Field]

_READ, _COMPARED, _NONE = (Field(each) for each in (Effect.READ, Effect.COMPARED, Effect.NONE))


def _limit_values(why: str, *allowed: object) -> Field:
    """A field that may be absent, null, or one of some values."""
    return Field(Effect.LIMITED, lambda value: value is None or value in allowed, why)


def _is_for_texts(value: object) -> bool:
    return value is None or (isinstance(value, Mapping) and "text" in value)


_ROWS = "rows would be cut or filled otherwise for queries and for documents"
_OTHER_VECTORS = "it would read or write other vectors than those of whole texts"
_SENTENCE = "sentence_embedding"

# Of config_sentence_transformers.json, whichever class wrote it.
SENTENCES: Fields = MappingProxyType(
    {
        "model_type": _limit_values(
            "no other class of the library is",
            *("SentenceTransformer", "CrossEncoder", "SparseEncoder", "MultiVectorEncoder"),
        ),
        "__version__": _NONE,
        "requirements": _COMPARED,
        "prompts": _READ,
        "default_prompt_name": _READ,
        # Of late interaction, which ranks; other vectors are compared by the caller.
        "similarity_fn_name": _READ,
        "truncate_dim": _limit_values("vectors would be shorter: callers ask for that themselves"),
        "max_active_dims": _limit_values("only the largest weights of each text would be left"),
        "activation_fn": _NONE,  # a ranker's logit is answered beside its score
        "keep_in_fp32_modules": _NONE,  # fewer bits are compared with float32 in any case
    }
)
# Of the same file as PyLate writes it. Whatever their values, even null, the library then reads the
# version as one of PyLate's: it is refused as such.
OF_PYLATE = frozenset(
    {
        *("query_prefix", "document_prefix", "query_length", "document_length", "skiplist_words"),
        *("query_expansion", "do_query_expansion"),
        *("attend_to_expansion_tokens", "attend_to_mask_tokens"),
    }
)
# Of sentence_bert_config.json, and of the same by older names.
TRANSFORMER: Fields = MappingProxyType(
    {
        "max_seq_length": _READ,
        "do_lower_case": _READ,
        "transformer_task": _limit_values(
            "the transformer would do another task",
            *("feature-extraction", "fill-mask", "sequence-classification"),
        ),
        "modality_config": Field(Effect.LIMITED, _is_for_texts, "it would not read plain texts"),
        "module_output_name": _limit_values(_OTHER_VECTORS, "token_embeddings", "scores"),
        "processing_kwargs": _limit_values("texts would be cut or joined otherwise", {}),
        "unpad_inputs": _NONE,
        "query_length": _limit_values(_ROWS),
        "document_length": _limit_values(_ROWS),
        "query_expansion": _limit_values(_ROWS),
        "tokenizer_name_or_path": _limit_values("the tokeniser would be that of another folder"),
        # How the library loads network, tokeniser and config; the older names come first.
        "model_args": _COMPARED,
        "model_kwargs": _COMPARED,
        "tokenizer_args": _READ,
        "processor_kwargs": _READ,
        "config_args": _COMPARED,
        "config_kwargs": _COMPARED,
    }
)
_POOLING: Fields = {
    "embedding_dimension": _NONE,
    "word_embedding_dimension": _NONE,
    "pooling_mode": _READ,
    "pooling_mode_cls_token": _READ,
    "pooling_mode_max_tokens": _READ,
    "pooling_mode_mean_tokens": _READ,
    "pooling_mode_mean_sqrt_len_tokens": _READ,
    "pooling_mode_weightedmean_tokens": _READ,
    "pooling_mode_lasttoken": _READ,
    "include_prompt": _READ,
}
_SPLADE: Fields = {
    "pooling_strategy": _READ,
    "activation_function": _READ,
    "embedding_dimension": _NONE,
    "word_embedding_dimension": _NONE,
    "chunk_size": _NONE,  # how many tokens at once
}
_DENSE: Fields = {
    "in_features": _READ,
    "out_features": _NONE,  # the weights have it
    "bias": _NONE,  # as well
    "activation_function": _READ,
    "module_input_name": _limit_values(_OTHER_VECTORS, _SENTENCE),
    "module_output_name": _limit_values(_OTHER_VECTORS, _SENTENCE),
    "use_residual": _limit_values("what goes in would be added to what comes out", False),
}
_NORMALIZE: Fields = {
    "module_input_name": _limit_values(_OTHER_VECTORS, _SENTENCE),
    "module_output_name": _limit_values(_OTHER_VECTORS, _SENTENCE),
}
# The same of late interaction, whose queries and documents are made apart.
SIDED_TRANSFORMER: Fields = MappingProxyType(
    {
        **TRANSFORMER,
        "query_length": _READ,
        "document_length": _READ,
        "query_expansion": _READ,
    }
)
_TOKENS = "token_embeddings"
_NO_TOKENS = "it would read or write other vectors than those of tokens"
_OF_TOKENS: Fields = {
    "module_input_name": _limit_values(_NO_TOKENS, _TOKENS),
    "module_output_name": _limit_values(_NO_TOKENS, _TOKENS),
}
_MASK: Fields = {
    "skiplist_words": _READ,
    "skiplist_tasks": _READ,
    "keep_only_token_ids": _READ,
}
# Of config.json of each module that is served, but for the transformer's own.
MODULES: Mapping[str, Fields] = MappingProxyType(
    {
        "Pooling": _POOLING,
        "SpladePooling": _SPLADE,
        "Dense": _DENSE,
        "Normalize": _NORMALIZE,
        "MultiVectorMask": _MASK,
    }
)
# Of those of late interaction.
SIDED_MODULES: Mapping[str, Fields] = MappingProxyType(
    {
        "Dense": {**_DENSE, **_OF_TOKENS},
        "Normalize": _OF_TOKENS,
        "MultiVectorMask": _MASK,
    }
)
# Of an entry of modules.json; ``kwargs`` names what callers of the library may hand to a module.
ENTRY: Fields = MappingProxyType(
    {"idx": _NONE, "name": _NONE, "path": _READ, "type": _READ, "kwargs": _NONE}
)
# Of tokenizer_config.json, what its common class reads. Any other field is of one class: the ids
# of its tokeniser are compared with ours over hostile texts.
TOKENIZER: Fields = MappingProxyType(
    {
        "truncation_side": _READ,
        "model_max_length": _READ,
        "max_len": _READ,
        "pad_token": _READ,
        "unk_token": _READ,
        "auto_map": _READ,
        "padding_side": _NONE,  # the mask says what is padding, and each row's company is varied
        "pad_to_multiple_of": _NONE,
        "pad_token_type_id": _NONE,
        "max_length": _NONE,
        "stride": _NONE,
        "truncation_strategy": _NONE,  # both are the caller's to say
        "clean_up_tokenization_spaces": _NONE,  # of ids to text
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": _NONE,
        "chat_template": _NONE,
        "response_template": _NONE,
        "response_schema": _NONE,
        "chat_control_tokens": _NONE,
        "verbose": _NONE,
        "name_or_path": _NONE,
        "processor_class": _NONE,
        "backend": _NONE,
        "files_loaded": _NONE,
        "model_input_names": _COMPARED,
        "split_special_tokens": _COMPARED,
        "additional_special_tokens": _COMPARED,
        "extra_special_tokens": _COMPARED,
        "model_specific_special_tokens": _COMPARED,
        "added_tokens_decoder": _COMPARED,
        "add_prefix_space": _COMPARED,
        "add_bos_token": _COMPARED,
        "add_eos_token": _COMPARED,
        "bos_token": _COMPARED,
        "eos_token": _COMPARED,
        "sep_token": _COMPARED,
        "cls_token": _COMPARED,
        "mask_token": _COMPARED,
        "tokenizer_class": _COMPARED,
        "init_inputs": _COMPARED,
        "unk_id": _COMPARED,
        "vocab": _COMPARED,
        "merges": _COMPARED,
        "vocab_file": _COMPARED,
        "merges_file": _COMPARED,
        "tokenizer_file": _COMPARED,
        "gguf_file": _COMPARED,
        "fix_mistral_regex": _COMPARED,
        "post_processor": _COMPARED,
        "tokenizer": _COMPARED,
        "tokenizer_object": _COMPARED,
        "tokenizer_truncation": _COMPARED,
        "tokenizer_padding": _COMPARED,
    }
)
# Of config.json, what the class of all configurations reads. Any other field is of one network,
# which its library makes by it.
NETWORK: Fields = MappingProxyType(
    {
        "architectures": _READ,
        "model_type": _READ,
        "id2label": _READ,
        "problem_type": _READ,
        "is_encoder_decoder": _READ,
        "auto_map": _READ,
        "label2id": _NONE,  # the same by the other side
        "num_labels": _COMPARED,
        "transformers_version": _NONE,
        "name_or_path": _NONE,
        "_name_or_path": _NONE,
        "output_hidden_states": _NONE,  # the output is taken by its name
        "output_attentions": _NONE,
        "return_dict": _NONE,
        "dtype": _NONE,  # converted from float32, and compared below it
        "torch_dtype": _NONE,
        "chunk_size_feed_forward": _NONE,
        "attn_implementation": _NONE,
        "experts_implementation": _NONE,
        "per_layer_config": _COMPARED,
        "rope_scaling": _COMPARED,
        "rope_theta": _COMPARED,
    }
)


def require_known(file: str, config: Json, fields: Fields) -> None:
    """Refuses a field that would change answers, or that nothing is known of.

    Raises:
        VersionError: with the field's name.
    """
    for name, value in config.items():
        if name not in fields:
            raise VersionError(
                f"{file} has the field {name!r}, of which it is not known what it does to answers: "
                "take it out if the model answers the same without it"
            )
        field = fields[name]
        if field.allowed is not None and not field.allowed(value):
            raise VersionError(
                f"{file} says {name} {repr(value)[:60]}, which is not served: {field.why}"
            )

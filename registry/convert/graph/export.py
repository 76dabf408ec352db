"""Exports PyTorch models to ONNX and gives the originals' answers to compare with.

For versions that are not ONNX. The only module that needs torch, transformers and
sentence-transformers, which are imported when it is first used. Nothing is ever downloaded, and no
code of the model's own is run unless the operator allows it.
"""

import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.tasks import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS, Task
from registry.convert.errors import ExportMissingError, VersionError, first_line
from registry.convert.flavours import marian
from registry.convert.flavours.config import CONFIG, read_json
from registry.convert.flavours.folders import transformer_folder
from registry.convert.flavours.original import OriginalTextModel, Reader, TokenisedRow
from registry.convert.flavours.sentences import CROSS_ENCODER, MULTI_VECTOR_ENCODER
from registry.convert.flavours.unserved import MERGE, require_texts
from registry.convert.forms import FORMS, MEAN, SPLADE
from registry.convert.graph import last_end, own_code

log = logging.getLogger(__name__)

OPSET = 17
_ROWS, _LENGTH = 2, 9  # of the traced example; both stay variable
_ADAPTERS = re.compile(r"\.(base_layer|lora_\w+|modules_to_save|ia3_l|hada_\w+)\.")
_UNREAD = ("pooler.",)  # of token vectors, which are pooled by us


@dataclass(frozen=True)
class TorchModel:
    """A PyTorch model in memory.

    Attributes:
        network: the transformer, or the classifier with its head.
        sentences: the model of sentence-transformers around it, of whichever class, if it is one.
        tokenizer: the original's own; None of a Marian, whose needs a library of its own
            (``flavours.marian`` makes another of its files).
    """

    network: Any
    sentences: Any | None
    tokenizer: Any

    @property
    def unattended(self) -> int | None:
        """The token that fills queries up and that no other attends to; None if there is none.

        In rows it is an id behind the last of the network's own (``rows_of``).
        """
        filling = getattr(self.sentences[0], "query_expansion", None) if self.sentences else None
        if not filling or filling["attend"]:
            return None
        if filling["token"] is not None:
            return int(self.tokenizer.convert_tokens_to_ids(filling["token"]))
        found = self.tokenizer.mask_token_id
        return int(self.tokenizer.eos_token_id if found is None else found)

    @property
    def inputs(self) -> list[str]:
        """What the tokeniser gives of what the network takes."""
        taken = _inputs_of(self.network)
        given = [INPUT_IDS, ATTENTION_MASK]
        if TOKEN_TYPE_IDS in self.tokenizer.model_input_names:
            given.append(TOKEN_TYPE_IDS)
        return [name for name in given if name in taken]


def load(
    original: OriginalTextModel, *, threads: int, allow_pickle: bool, allow_remote_code: bool
) -> TorchModel:
    """Loads the version as its own library does.

    Raises:
        ExportMissingError: torch or the library is not installed.
        VersionError: the library can't load it.
    """
    try:
        import torch  # noqa: PLC0415
        import transformers  # noqa: PLC0415
    except ImportError as error:
        raise ExportMissingError(
            f"this version is PyTorch, and the export environment is not installed ({error.name})"
        ) from error
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options: dict[str, Any] = {
        "attn_implementation": "eager",  # its parts can be fused again
        "dtype": torch.float32,  # or all weights are rounded to what the first of them is in
    }
    if not allow_pickle:
        options["use_safetensors"] = True
    if not allow_remote_code:
        return _load(original, options, (), allow_remote_code=False)
    with own_code.loading(original.folder) as lacking:
        return _load(original, options, lacking, allow_remote_code=True)


def _load(
    original: OriginalTextModel,
    options: dict[str, Any],
    lacking: Sequence[str],
    *,
    allow_remote_code: bool,
) -> TorchModel:
    """As ``load``; ``lacking`` holds weights that the files lack, once own code is loaded."""
    import transformers  # noqa: PLC0415

    try:
        if original.loaded_by:
            return _load_sentences(original, options, lacking, allow_remote_code=allow_remote_code)
        form = FORMS[original.task]
        loader = form.encoder_decoder if is_encoder_decoder(original) else form.loader
        kind = getattr(transformers, loader or form.loader)
        by_itself = {**options, "trust_remote_code": allow_remote_code}
        network = _whole(kind, original.folder, by_itself, lacking)
        tokenizer = None
        if not (form.generates and marian.has_files(original.tokenizer)):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                original.tokenizer, local_files_only=True, trust_remote_code=allow_remote_code
            )
            if not form.generates:
                _require_taken(tokenizer.model_input_names, network)
    except (ExportMissingError, VersionError):
        raise
    except Exception as error:  # the libraries raise many kinds, all about these files
        raise VersionError(f"transformers can't load the version: {error}") from error
    return TorchModel(network.float().eval(), None, tokenizer)


def _whole(
    kind: Any,  # noqa: ANN401
    folder: Path,
    options: dict[str, Any],
    lacking: Sequence[str],
) -> Any:  # noqa: ANN401
    """A network of transformers all of whose weights the files have.

    transformers makes up those that are missing, by chance, and leaves out those that it does not
    know: the version would answer, and as nobody trained it.

    Raises:
        VersionError: what is missing, of another size, or an adapter's.
    """
    network, found = kind.from_pretrained(
        folder,
        local_files_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        **options,
    )
    require_texts(type(network).__name__, _inputs_of(network))
    if adapters := sorted(each for each in found["unexpected_keys"] if _ADAPTERS.search(each)):
        raise VersionError(
            f"the weights are those of a model with an adapter ({adapters[0]}), which would be "
            f"left out: {MERGE}"
        )
    if other := sorted(found["mismatched_keys"]):
        name, in_files, by_config = other[0]
        raise VersionError(
            f"{name} is {_size(in_files)} in the files and {_size(by_config)} by {CONFIG}: save "
            "the model with the configuration that it was trained with"
        )
    unread = () if "For" in kind.__name__ else _UNREAD
    lost = {*found["missing_keys"], *lacking}
    if missing := sorted(each for each in lost if not each.startswith(unread)):
        names = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise VersionError(
            f"the checkpoint lacks weights that {type(network).__name__} answers with: {names}"
        )
    return network


def _require_taken(given: Sequence[str], network: Any) -> None:  # noqa: ANN401
    """Refuses a tokeniser that gives what the network does not take; raises ``VersionError``."""
    import inspect  # noqa: PLC0415

    taken = inspect.signature(network.forward).parameters
    if any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return
    if lost := [name for name in given if name not in taken]:
        raise VersionError(
            f"its tokeniser gives {lost[0]}, which {type(network).__name__} does not take, so that "
            "its library fails on every text: take it out of model_input_names in "
            "tokenizer_config.json"
        )


def _inputs_of(network: Any) -> list[str]:  # noqa: ANN401
    import inspect  # noqa: PLC0415

    return list(inspect.signature(network.forward).parameters)


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def is_encoder_decoder(original: OriginalTextModel) -> bool:
    """Whether an encoder reads and a decoder writes."""
    return bool(read_json(original.folder / CONFIG).get("is_encoder_decoder"))


def _load_sentences(
    original: OriginalTextModel,
    options: dict[str, Any],
    lacking: Sequence[str],
    *,
    allow_remote_code: bool,
) -> TorchModel:
    try:
        import sentence_transformers  # noqa: PLC0415
        import transformers  # noqa: PLC0415
    except ImportError as error:
        raise ExportMissingError("sentence-transformers is not installed") from error
    folder = transformer_folder(original)
    by_itself = {**options, "trust_remote_code": allow_remote_code}
    del by_itself["dtype"]  # its weights are not used
    try:
        sentences = getattr(sentence_transformers, original.loaded_by)(
            str(original.folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=allow_remote_code,
            model_kwargs=options,
        )
    except (ValueError, RuntimeError):
        # What does not fit is said better here.
        _whole(getattr(transformers, FORMS[original.task].loader), folder, by_itself, lacking)
        raise
    if ATTENTION_MASK not in getattr(sentences.tokenizer, "model_input_names", ()):
        raise VersionError(
            "model_input_names in tokenizer_config.json leaves out attention_mask, without which "
            "its library takes padding for text, so that answers depend on their neighbours"
        )
    sentences = sentences.float().eval()
    # The library does not say what was missing: the weights are looked at once more, and let go.
    _whole(type(sentences.transformers_model), folder, by_itself, lacking)
    return TorchModel(sentences.transformers_model, sentences, sentences.tokenizer)


def to_onnx(loaded: TorchModel, task: Task, path: Path) -> None:
    """Writes the graph with variable batch and length, ending in logits or token vectors.

    Raises:
        VersionError: neither of torch's exporters can.
    """
    import torch  # noqa: PLC0415

    names = loaded.inputs
    output = FORMS[task].exported
    unattended = loaded.unattended
    rows = None if unattended is None else rows_of(loaded)

    class Positional(torch.nn.Module):
        """The network with its inputs by position, as the exporters want them."""

        def __init__(self) -> None:
            super().__init__()
            ends = last_end.suits(loaded.network)
            self.network = last_end.by_place(loaded.network) if ends else loaded.network

        def forward(self, *tensors: Any) -> Any:  # noqa: ANN401
            given = dict(zip(names, tensors, strict=True))
            if unattended is not None:
                fills = given[INPUT_IDS] >= rows
                given[INPUT_IDS] = given[INPUT_IDS].masked_fill(fills, unattended)
                given[ATTENTION_MASK] = given[ATTENTION_MASK].masked_fill(fills, 0)
            result = self.network(**given, return_dict=True)
            return _values(result, task)

    ids = torch.full((_ROWS, _LENGTH), 5, dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, _LENGTH // 2 :] = 0
    values = {INPUT_IDS: ids, ATTENTION_MASK: mask, TOKEN_TYPE_IDS: torch.zeros_like(ids)}
    example = tuple(values[name] for name in names)
    axes = {0: "batch", 1: "length"}
    with warnings.catch_warnings(), torch.no_grad():
        # Tracing warns of every branch that it follows; parity is what proves the result.
        warnings.simplefilter("ignore")
        module = Positional().eval()

        def trace() -> None:
            torch.onnx.export(
                module,
                example,
                str(path),
                input_names=names,
                output_names=[output],
                dynamic_axes=dict.fromkeys([*names, output], axes),
                opset_version=OPSET,
                dynamo=False,
            )

        try:
            trace()
        except MemoryError:
            raise
        except Exception as tracing:  # whatever it is, there is another way
            why = str(tracing)
            if "tuple" in why and not getattr(loaded.network.config, "return_dict", True):
                raise VersionError(
                    f"{CONFIG} says return_dict false, with which {type(loaded.network).__name__} "
                    "fails in its own library: take it out, it changes no answer"
                ) from tracing
            log.info("tracing failed, exporting another way", extra={"reason": why})
            by_program = partial(_by_program, module, example, names, output, path)
            if "Complex" in why:
                _in_pairs(loaded.network, trace, by_program)
            else:
                by_program()


def _in_pairs(
    network: Any,  # noqa: ANN401
    trace: Callable[[], None],
    by_program: Callable[[], None],
) -> None:
    """Exports with pairs of real numbers in place of complex ones."""
    from registry.convert.graph.complex_pairs import as_pairs  # noqa: PLC0415 - it needs torch

    with as_pairs(network):
        try:
            trace()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # there is another way
            log.info("tracing pairs failed", extra={"reason": str(error)})
            by_program()


def _by_program(
    module: Any,  # noqa: ANN401
    example: tuple[Any, ...],
    names: Sequence[str],
    output: str,
    path: Path,
) -> None:
    """The slower of torch's exporters, which takes what tracing can't."""
    import torch  # noqa: PLC0415

    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    try:
        torch.onnx.export(
            module,
            example,
            str(path),
            input_names=list(names),
            output_names=[output],
            dynamic_shapes=(tuple({0: batch, 1: length} for _ in example),),
            dynamo=True,
            external_data=False,
        )
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        why = first_line(cause)
        if "complex" in why:
            why = f"it computes with complex numbers, of which ONNX has none ({why})"
        raise VersionError(f"torch can't export the model to ONNX: {why}") from error


def originals(
    loaded: TorchModel,
    task: Task,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_tokens: int,
) -> NDArray[np.float32]:
    """The original's own outputs, text by text: logits or vectors, float32 ``[texts, n]``.

    Of labels of tokens they are those of the tokens of all texts, ``[tokens, n]``.

    Raises:
        VersionError: the original fails on a text.
    """
    import torch  # noqa: PLC0415

    try:
        with torch.inference_mode():
            if loaded.sentences is not None:
                return _of_sentences(loaded.sentences, texts, pairs, max_tokens=max_tokens)
            rows = []
            for index, text in enumerate(texts):
                tensors = loaded.tokenizer(
                    text,
                    None if pairs is None else pairs[index],
                    return_tensors="pt",
                    truncation=True,
                    max_length=max_tokens,
                )
                rows.append(_one(loaded, task, tensors))
            return np.concatenate(rows).astype(np.float32)
    except Exception as error:
        raise VersionError(f"the original model fails on a text: {error}") from error


def _of_sentences(
    sentences: Any,  # noqa: ANN401
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    *,
    max_tokens: int,
) -> NDArray[np.float32]:
    """By the library's own call, which puts the usual prompt before each text."""
    import torch  # noqa: PLC0415

    # Padding on the left moves the positions of some networks: a text alone has its own answer.
    alone = getattr(sentences.tokenizer, "padding_side", "right") == "left"
    options = {"batch_size": 1 if alone else 8, "show_progress_bar": False}
    if type(sentences).__name__ == MULTI_VECTOR_ENCODER:
        return _of_sides(sentences, texts, pairs or (), max_tokens=max_tokens)
    sentences.max_seq_length = max_tokens
    if type(sentences).__name__ == CROSS_ENCODER:
        both = list(zip(texts, pairs or (), strict=True))
        logits = sentences.predict(both, activation_fn=torch.nn.Identity(), **options)
        return np.asarray(logits, dtype=np.float32).reshape(len(texts), -1)
    vectors = sentences.encode(list(texts), convert_to_tensor=True, **options)
    if vectors.is_sparse:
        vectors = vectors.to_dense()
    return np.asarray(vectors.cpu(), dtype=np.float32)


def _of_sides(
    sentences: Any,  # noqa: ANN401
    queries: Sequence[str],
    documents: Sequence[str],
    *,
    max_tokens: int,
) -> NDArray[np.float32]:
    """Vectors of the tokens of each query, once where it comes again, and of its documents."""
    _shorten_sides(sentences, max_tokens)
    options = {"batch_size": 1, "show_progress_bar": False, "convert_to_numpy": True}
    rows: list[NDArray[np.float32]] = []
    last: str | None = None
    for query, document in zip(queries, documents, strict=True):
        if query is not last:
            last = query
            rows += sentences.encode_query([query], **options)
        rows += sentences.encode_document([document], **options)
    return np.concatenate(rows).astype(np.float32)


def _shorten_sides(sentences: Any, max_tokens: int) -> None:  # noqa: ANN401
    """Lets no row be longer, if the endpoint asks for less than the model takes."""
    transformer = sentences[0]
    for name in ("query_length", "document_length"):
        length = getattr(transformer, name)
        if length is not None and length > max_tokens:
            setattr(transformer, name, max_tokens)
    usual = sentences.max_seq_length
    if usual is None or usual > max_tokens:
        sentences.max_seq_length = max_tokens


def reader_of(loaded: TorchModel, *, max_tokens: int, side: str = "") -> Reader:
    """What the original's own tokeniser makes of a text, or of a pair.

    Args:
        loaded: the original.
        max_tokens: of the longest row.
        side: of late interaction, whether texts are queries or documents.
    """
    typed = TOKEN_TYPE_IDS in loaded.inputs

    def read(text: str, pair: str | None) -> TokenisedRow:
        if side and loaded.sentences is not None:
            _shorten_sides(loaded.sentences, max_tokens)
            given = loaded.sentences.preprocess([text], task=side)
            fills = given.get("query_expansion_positions")
            if fills is not None and loaded.unattended is not None:
                given[INPUT_IDS] = given[INPUT_IDS].masked_fill(fills, rows_of(loaded))
            found = {name: given[name][0].tolist() for name in given if name in loaded.inputs}
        elif loaded.sentences is not None:
            loaded.sentences.max_seq_length = max_tokens
            given = loaded.sentences.preprocess([text if pair is None else (text, pair)])
            found = {name: given[name][0].tolist() for name in given if name in loaded.inputs}
        else:
            # As lists: an empty second text by itself would count as none.
            second = None if pair is None else [pair]
            batch = loaded.tokenizer([text], second, truncation=True, max_length=max_tokens)
            found = {name: rows[0] for name, rows in batch.items()}
        return TokenisedRow(list(found[INPUT_IDS]), list(found[TOKEN_TYPE_IDS]) if typed else None)

    def read_or_refuse(text: str, pair: str | None) -> TokenisedRow:
        try:
            return read(text, pair)
        except (VersionError, MemoryError):
            raise
        except Exception as error:  # of a library in Rust, which has one class for all
            why = f"{text[:40]!r}: {first_line(error)}"
            raise VersionError(f"the version's own tokeniser fails on the text {why}") from error

    return read_or_refuse


def special_tokens_of(loaded: TorchModel) -> tuple[str, ...]:
    """The original's own special and added tokens, whichever file names them.

    Without those that the network has no row for: a text that holds one is an error there.
    """
    reader, rows = loaded.tokenizer, rows_of(loaded)
    names = dict.fromkeys([*reader.all_special_tokens, *reader.get_added_vocab()])
    ids = ((name, reader.convert_tokens_to_ids(name)) for name in names)
    return tuple(name for name, at in ids if at is not None and (rows is None or at < rows))


def _one(loaded: TorchModel, task: Task, tensors: Any) -> NDArray[np.float32]:  # noqa: ANN401
    result = loaded.network(**tensors, return_dict=True)
    form = FORMS[task]
    values = _values(result, task)
    if form.pooling:  # a plain folder; there is no padding here
        values = _POOLED[form.pooling](values)
    row: NDArray[np.float32] = values.numpy()
    return row[0] if row.ndim == 3 else row


# Vectors of token vectors ``[1, tokens, n]``.
_POOLED: Mapping[str, Callable[[Any], Any]] = {
    MEAN: lambda states: states.mean(dim=1),
    SPLADE: lambda logits: logits.relu().log1p().amax(dim=1),
}


def _values(result: Any, task: Task) -> Any:  # noqa: ANN401
    """What is meant of the network's result; several outputs of tokens as columns of one."""
    form = FORMS[task]
    if not form.stacked:
        return result[form.exported]
    import torch  # noqa: PLC0415

    return torch.stack([result[name] for name in form.stacked], dim=-1)


def pad_id_of(loaded: TorchModel) -> int | None:
    """The padding id by which the network finds the ends of rows; None if it has none."""
    config = loaded.network.config
    found = getattr(config.get_text_config(), "pad_token_id", None)
    return found if isinstance(found, int) and found >= 0 else None


def rows_of(loaded: TorchModel) -> int | None:
    """How many tokens the network has a row for; None if that is not known."""
    rows = getattr(loaded.network.get_input_embeddings(), "num_embeddings", None)
    return rows if isinstance(rows, int) else None


def fast_tokenizer(loaded: TorchModel) -> str:
    """``tokenizer.json`` of a version that has only older tokeniser files.

    Raises:
        VersionError: it has no fast tokeniser.
    """
    if not getattr(loaded.tokenizer, "is_fast", False):
        raise VersionError(
            "the tokeniser has no tokenizer.json and can't be converted to one; "
            "save the version with a fast tokeniser"
        )
    return str(loaded.tokenizer.backend_tokenizer.to_str())

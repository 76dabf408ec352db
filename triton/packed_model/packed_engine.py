"""A model of transformers on rows that follow one another without padding.

The rows of a run are one long row ``[1, T]`` for the model's own layers, which look at each token
by itself; only attention, positions and what follows the token vectors know where a row begins.
Attention goes through transformers' ``AttentionInterface``, under a name of its own, for which
transformers makes no masks. What follows is pooling on the long row, or the model's own classifier
on one vector of each row. Weights are read from safetensors only, nothing is downloaded, and no
code of a model's own is run.

It needs torch, transformers and numpy, and no other file of ours: Triton's model runs it, and so
does conversion, which proves with it that a package answers as its original does.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import functional

SETTINGS_FILE = "packed.json"  # beside the weights: how they are loaded and what follows
ATTENTION = "headrace"
ROWS = "headrace_rows"  # the argument that carries ``RowLayout`` through a model to its attention
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Of the self-check, relative to the largest value: rounding differs with the order of sums. Values
# that are all near 0, as a ranker's logits may be, are rounded like those before them.
TOLERANCES = {"fp32": 1e-4, "fp16": 5e-2, "bf16": 2e-1}
_LEAST_SIZE = 0.1

AUTO_MODEL = "AutoModel"
CLASSIFIER = "AutoModelForSequenceClassification"
LOADERS = (
    *(AUTO_MODEL, CLASSIFIER, "AutoModelForTokenClassification"),
    *("AutoModelForQuestionAnswering", "AutoModelForMaskedLM"),
)
# ``model_type`` of configurations; the tests hold each against the model run text by text.
ARCHITECTURES = (
    *("albert", "bert", "camembert", "distilbert", "electra", "eurobert", "gemma3_text"),
    *("modernbert", "nomic_bert", "roberta", "xlm-roberta"),
)
# Their frequencies depend on the longest row of a run: a text's answer would on its company.
_COMMON_FREQUENCIES = frozenset({"dynamic", "longrope"})
_ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "": lambda values: values,
    "Identity": lambda values: values,
    "Tanh": torch.tanh,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
}


class UnsuitableError(Exception):
    """A model that this engine can't run; the words are for people."""


def suits(config: Mapping[str, Any], loader: str) -> str:
    """Why such a model can't be run without padding; empty if it can."""
    kind = str(config.get("model_type", ""))
    known = ", ".join(ARCHITECTURES)
    positions = str(config.get("position_embedding_type") or "absolute")
    frequencies = ", ".join(sorted(_COMMON_FREQUENCIES & set(_rope_types(config))))
    is_gemma, is_eurobert = kind == "gemma3_text", kind == "eurobert"
    looks_back = is_gemma and not config.get("use_bidirectional_attention")
    late = is_eurobert and config.get("classifier_pooling", "late") == "late"
    reasons = {
        f"it does not load models by {loader!r}": loader not in LOADERS,
        f"it does not take the architecture {kind!r}; it takes {known}": kind not in ARCHITECTURES,
        "it takes encoders, and the model is a decoder": config.get("is_decoder")
        or config.get("add_cross_attention"),
        f"it has no positions of the kind {positions!r}": positions != "absolute",
        f"positions of the kind {frequencies} depend on a run's longest row": frequencies,
        "the model's tokens look only back (use_bidirectional_attention is not set)": looks_back,
        f"it loads the architecture {kind!r} only by {AUTO_MODEL}": is_gemma
        and loader != AUTO_MODEL,
        "the model caps its attention's logits": config.get("attn_logit_softcapping"),
        "the classifier looks at every token (classifier_pooling is 'late')": late
        and loader == CLASSIFIER,
    }
    why = next((reason for reason, holds in reasons.items() if holds), "")
    return f"the packed engine can't run it: {why}" if why else ""


def _rope_types(value: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Every kind of rotary positions that a configuration names, however deep."""
    if not isinstance(value, Mapping):
        return []
    found = [str(value[name]) for name in ("rope_type", "type") if name in value]
    return found + [kind for part in value.values() for kind in _rope_types(part)]


@dataclass(frozen=True)
class RowLayout:
    """Where the rows of a run lie, on its device. Rows may be empty.

    Attributes:
        starts: int32 ``[n + 1]``.
        owners: int32 ``[T]``: the row of each token.
        places: int32 ``[T]``: of each token in its row, from 0.
        longest: no row is longer.
        groups: rows of one length each, and the places of all their tokens: for attention
            without variable lengths. None if there is such attention.
    """

    starts: torch.Tensor
    owners: torch.Tensor
    places: torch.Tensor
    longest: int
    groups: tuple[tuple[int, torch.Tensor], ...] | None

    @property
    def count(self) -> int:
        """Rows, empty ones included."""
        return len(self.starts) - 1

    @property
    def lengths(self) -> torch.Tensor:
        """Tokens of each row, at least 1: an empty one divides by it, and nobody reads it."""
        return (self.starts[1:] - self.starts[:-1]).clamp(min=1).unsqueeze(1)

    def first(self, values: torch.Tensor) -> torch.Tensor:
        """Of values of tokens, those of each row's first token."""
        return values.index_select(0, self.starts[:-1].clamp(max=len(values) - 1))

    def last(self, values: torch.Tensor) -> torch.Tensor:
        """Of values of tokens, those of each row's last token."""
        return values.index_select(0, (self.starts[1:] - 1).clamp(min=0))

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of each row's tokens, in float32."""
        sums = torch.zeros(self.count, values.shape[1], device=values.device)
        return sums.index_add_(0, self.owners, values.float())

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """The largest of each row's tokens."""
        width = values.shape[1]
        most = values.new_full((self.count, width), float("-inf"))
        owners = self.owners.long().unsqueeze(1).expand(-1, width)
        return most.scatter_reduce_(0, owners, values, "amax").float()


# By the names of sentence-transformers, whose formulas these are, as those of the graphs' Pooler.
POOLING: Mapping[str, Callable[[torch.Tensor, RowLayout], torch.Tensor]] = {
    "mean": lambda states, rows: rows.total(states) / rows.lengths,
    "mean_sqrt_len_tokens": lambda states, rows: rows.total(states) / rows.lengths.sqrt(),
    "cls": lambda states, rows: rows.first(states).float(),
    "lasttoken": lambda states, rows: rows.last(states).float(),
    "max": lambda states, rows: rows.largest(states),
    "splade": lambda logits, rows: rows.largest(logits).relu().log1p(),
    "weightedmean": lambda states, rows: (
        rows.total(states.float() * (rows.places + 1).unsqueeze(1))
        / (rows.lengths * (rows.lengths + 1) / 2)
    ),
}


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    **given: Any,  # noqa: ANN401 - each architecture passes its own
) -> tuple[torch.Tensor, None]:
    """Attention of each token to those of its own row, for transformers' ``AttentionInterface``.

    ``sliding_window`` is what the attentions of transformers take: nearer than that, both ways.
    """
    rows: RowLayout | None = given.get(ROWS)
    if rows is None:
        raise UnsuitableError("the model does not tell its attention where rows begin")
    if getattr(module, "is_causal", False):
        raise UnsuitableError("the model's tokens look only backward")
    if given.get("softcap") or given.get("s_aux") is not None:
        raise UnsuitableError("the model's attention has a part that the packed engine lacks")
    tokens = tuple(each[0].transpose(0, 1) for each in (query, key, value))
    window = (given.get("sliding_window") or 0) - 1
    within = _by_length if rows.groups is not None else _variable_length
    return within(tokens, rows, given.get("scaling"), window).unsqueeze(0), None


def _variable_length(
    tokens: tuple[torch.Tensor, ...], rows: RowLayout, scale: float | None, window: int
) -> torch.Tensor:
    """On a GPU, in half precision: one kernel for all rows; ``[T, heads, width]``."""
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415 - with CUDA only
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415

    width = tokens[0].shape[2]
    scale = width**-0.5 if scale is None else scale
    # Flash attention takes heads of 8 values and more by 8: zeros change no product.
    query, key, value = (functional.pad(each, (0, -width % 8)) for each in tokens)
    # Only what is not usual, since earlier releases of torch take fewer of these arguments.
    further: dict[str, Any] = {}
    if not math.isclose(scale, query.shape[2] ** -0.5):
        further["scale"] = scale
    if window >= 0:
        further["window_size"] = (window, window)
    if query.shape[1] != key.shape[1]:
        further["enable_gqa"] = True
    ends, longest = rows.starts, rows.longest
    # Flash: cuDNN, which torch would prefer, compiles a plan for each new shape.
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        answer: torch.Tensor = varlen_attn(
            query, key, value, ends, ends, longest, longest, **further
        )
    return answer[..., :width]


def _by_length(
    tokens: tuple[torch.Tensor, ...], rows: RowLayout, scale: float | None, window: int
) -> torch.Tensor:
    """Rows of one length at a time; ``[T, heads, width]``."""
    query, key, value = tokens
    answer = query.new_empty((*query.shape[:2], value.shape[2]))
    for length, members in rows.groups or ():
        mask = None
        if 0 <= window < length - 1:
            places = torch.arange(length, device=query.device)
            mask = (places.unsqueeze(0) - places.unsqueeze(1)).abs() <= window
        attended = functional.scaled_dot_product_attention(
            *(
                each[members].unflatten(0, (-1, length)).transpose(1, 2)
                for each in (query, key, value)
            ),
            attn_mask=mask,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        answer[members] = attended.transpose(1, 2).flatten(0, 1)
    return answer


class PackedEngine:
    """A model, ready to run.

    Args:
        folder: holds ``model.safetensors``, ``config.json`` and the files that ``settings`` names.
        settings: what ``packed.json`` says; None to read it.
        device: ``cpu``, or ``cuda:`` and a number.

    Attributes:
        device: where it runs.
        by_token: whether there is an answer for each token; else for each row.
        vocabulary: ids are less.
        types: ids of types are less; 0 if the model has none.
        row_tokens: of the longest row that it takes.

    Raises:
        UnsuitableError: the model can't be run like this; says why.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any] | None = None, device: str = "cpu"
    ) -> None:
        if settings is None:
            settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
        self.device = torch.device(device)
        self.by_token = settings["rank"] == 3
        self._precision = str(settings["dtype"])
        self._modes = tuple(str(mode) for mode in settings["modes"])
        self._normalises = bool(settings["normalise"])
        self._dense = [
            _Dense(folder / str(layer["file"]), str(layer["activation"]), self.device)
            for layer in settings["dense"]
        ]
        if odd := set(self._modes) - set(POOLING):
            raise UnsuitableError(f"the packed engine does not know the pooling {min(odd)!r}")
        if settings["loader"] == AUTO_MODEL and not self._modes:
            raise UnsuitableError("the package says no pooling, and the model gives token vectors")
        self._model = _load_model(
            folder, str(settings["loader"]), DTYPES[self._precision], self.device
        )
        config = self._model.config
        self._first_place = _first_place(self._model)
        self._takes_types = bool(getattr(config, "type_vocab_size", 0)) and hasattr(
            self._embeddings(), "token_type_embeddings"
        )
        self.types = int(config.type_vocab_size) if self._takes_types else 0
        self.vocabulary = int(self._model.get_input_embeddings().num_embeddings)
        self.row_tokens = int(config.max_position_embeddings) - self._first_place
        if str(settings["loader"]) == CLASSIFIER:
            self._model.base_model.register_forward_hook(_one_vector_a_row, with_kwargs=True)

    @property
    def has_variable_lengths(self) -> bool:
        """Whether one kernel attends in rows of all lengths: on GPUs, in half precision."""
        return self.device.type == "cuda" and self._precision != "fp32"

    def run(
        self, ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None = None
    ) -> np.ndarray:
        """Answers of rows, float32 ``[n, width]``, or ``[T, width]`` of tasks with one a token.

        Args:
            ids: int32 ``[T]``.
            starts: int32 ``[n + 1]``.
            types: uint8 ``[T]``; None if all are 0.
        """
        with torch.inference_mode():
            tensors = torch.from_numpy(self.inputs(ids, starts, types)).to(self.device)
            values = self.forward(tensors, len(ids), int(np.diff(starts).max()))
        return np.asarray(values.cpu().numpy())

    def inputs(self, ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None) -> np.ndarray:
        """All that ``forward`` takes, as one array, which is copied to a device at once.

        The starts may have more tokens than there are ids: 0 stands for the rest.
        """
        tokens, lengths = int(starts[-1]), np.diff(starts)
        made = np.zeros((4 * tokens + len(starts)), np.int32)
        made[: len(ids)] = ids
        if types is not None:
            made[tokens : tokens + len(ids)] = types
        owners, places = made[2 * tokens : 3 * tokens], made[3 * tokens : 4 * tokens]
        owners[:] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        places[:] = np.arange(tokens, dtype=np.int32) - np.repeat(starts[:-1], lengths)
        made[4 * tokens :] = starts
        return made

    def forward(self, inputs: torch.Tensor, tokens: int, longest: int) -> torch.Tensor:
        """Answers on the device; nothing here waits for it, or depends on values, on a GPU."""
        ids, types, owners, places = inputs[: 4 * tokens].view(4, tokens).unbind(0)
        starts = inputs[4 * tokens :]
        groups = None if self.has_variable_lengths else _groups(starts)
        rows = RowLayout(starts, owners, places, longest, groups)
        further = {"token_type_ids": types.unsqueeze(0)} if self._takes_types else {}
        result = self._model(
            input_ids=ids.unsqueeze(0),
            position_ids=self._positions(ids, rows).unsqueeze(0),
            **further,
            **{ROWS: rows},
        )
        return self._finish(_values(result), rows)

    def _positions(self, ids: torch.Tensor, rows: RowLayout) -> torch.Tensor:
        """Of each token. RoBERTa's leave the padding's id out, and a text may have it."""
        if not self._first_place:
            return rows.places
        padding = self._first_place - 1
        counts = (ids != padding).int()
        sums = counts.cumsum(0, dtype=torch.int32)
        before = (sums - counts).index_select(0, rows.starts.index_select(0, rows.owners))
        return (sums - before) * counts + padding

    def check(self) -> None:
        """Rows together answer as the model answers each by itself, the usual way.

        Raises:
            UnsuitableError: they differ, or a row can't be run.
        """
        window = getattr(self._model.config, "sliding_window", None) or 0
        lengths = [min(self.row_tokens, length) for length in (5, 2 * window + 9, 1, 12)]
        random = np.random.default_rng(0)
        starts = np.cumsum([0, *lengths]).astype(np.int32)
        ids = random.integers(0, self.vocabulary, starts[-1]).astype(np.int32)
        types = (random.integers(0, self.types, starts[-1]) if self.types else ids * 0).astype(
            np.uint8
        )
        together = self.run(ids, starts, types)
        each = itertools.pairwise(starts)
        apart = np.concatenate([self._by_itself(ids[a:b], types[a:b]) for a, b in each])
        difference = float(np.abs(together - apart).max() / max(np.abs(apart).max(), _LEAST_SIZE))
        if not difference <= TOLERANCES[self._precision]:
            raise UnsuitableError(
                f"rows together differ by {difference:.2g} of the largest value from each by itself"
            )

    def _by_itself(self, ids: np.ndarray, types: np.ndarray) -> np.ndarray:
        """A row as transformers runs it: with its own attention, masks and positions."""
        tokens = len(ids)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        if self._takes_types:
            given["token_type_ids"] = types
        tensors = {
            name: torch.from_numpy(np.asarray(values, np.int64)).to(self.device).unsqueeze(0)
            for name, values in given.items()
        }
        ends = torch.tensor([0, tokens], dtype=torch.int32, device=self.device)
        places = torch.arange(tokens, dtype=torch.int32, device=self.device)
        self._model.set_attn_implementation("sdpa")
        try:
            with torch.inference_mode():
                values = _values(self._model(**tensors))
                rows = RowLayout(ends, places * 0, places, tokens, None)
                return np.asarray(self._finish(values, rows).cpu().numpy())
        finally:
            self._model.set_attn_implementation(ATTENTION)

    def _finish(self, values: torch.Tensor, rows: RowLayout) -> torch.Tensor:
        """What follows the model's own result ``[T, width]``, or ``[n, width]`` of classifiers."""
        if not self._modes:
            return values.float()
        vectors = torch.cat([POOLING[mode](values, rows) for mode in self._modes], dim=1)
        for dense in self._dense:
            vectors = dense(vectors)
        return functional.normalize(vectors, dim=1) if self._normalises else vectors

    def _embeddings(self) -> torch.nn.Module:
        return getattr(self._model.base_model, "embeddings", self._model.base_model)


class _Dense:
    """A layer after pooling, in float32."""

    def __init__(self, path: Path, activation: str, device: torch.device) -> None:
        tensors = {name: each.float().to(device) for name, each in load_file(path).items()}
        self._weight, self._bias = tensors["linear.weight"], tensors.get("linear.bias")
        self._activation = _ACTIVATIONS[activation]

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        return self._activation(functional.linear(vectors, self._weight, self._bias))


def _load_model(
    folder: Path, loader: str, dtype: torch.dtype, device: torch.device
) -> transformers.PreTrainedModel:
    given = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if why := suits(given, loader):
        raise UnsuitableError(why)
    transformers.AttentionInterface.register(ATTENTION, attend)
    offline = {"local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(folder, **offline)
    config.return_dict = True
    config.output_hidden_states = config.output_attentions = False
    model, found = getattr(transformers, loader).from_pretrained(
        folder,
        config=config,
        use_safetensors=True,
        attn_implementation=ATTENTION,
        dtype=dtype,
        output_loading_info=True,
        **offline,
    )
    if loader == AUTO_MODEL and getattr(model, "pooler", None) is not None:
        model.pooler = None  # nothing reads it
    # transformers makes up weights that are missing, and the model answers by chance.
    lacking = sorted(
        name
        for name in found["missing_keys"]
        if loader != AUTO_MODEL or not name.startswith("pooler.")
    )
    if lacking or found["mismatched_keys"]:
        what = ", ".join(map(str, [*lacking, *found["mismatched_keys"]][:3]))
        raise UnsuitableError(f"the weights don't fit the model: {what}")
    return model.to(device).eval()


def _first_place(model: transformers.PreTrainedModel) -> int:
    """The position of a row's first token: RoBERTa's count from behind the padding's id."""
    for module in model.modules():
        padding = getattr(module, "padding_idx", None)
        positions = getattr(module, "position_embeddings", None)
        if isinstance(padding, int) and isinstance(positions, torch.nn.Embedding):
            return padding + 1
    return 0


def _values(result: Any) -> torch.Tensor:  # noqa: ANN401 - each class of models has its own
    """What is meant of a model's result: of the only batch ``[T, width]``, or ``[n, width]``."""
    if "start_logits" in result:
        return torch.stack([result.start_logits[0], result.end_logits[0]], dim=-1)
    values: torch.Tensor = result.logits if "logits" in result else result.last_hidden_state
    return values[0] if values.ndim == 3 else values


def _groups(starts: torch.Tensor) -> tuple[tuple[int, torch.Tensor], ...]:
    """The tokens of rows of one length each. It looks at values: not for a graph."""
    ends = starts.tolist()
    by_length: dict[int, list[int]] = {}
    for start, end in itertools.pairwise(ends):
        if end > start:
            by_length.setdefault(end - start, []).append(start)
    return tuple(
        (
            length,
            (
                torch.tensor(begins, device=starts.device).unsqueeze(1)
                + torch.arange(length, device=starts.device)
            ).flatten(),
        )
        for length, begins in by_length.items()
    )


def _one_vector_a_row(
    base: torch.nn.Module,
    _args: Sequence[Any],
    given: Mapping[str, Any],
    result: Any,  # noqa: ANN401 - a hook of torch
) -> Any:  # noqa: ANN401
    """Gives a classifier's own head a batch of rows of one token each, in place of the long row.

    That token is the row's first, which such heads look at, or the mean, of those that take it: a
    mean of one token is the token.
    """
    rows: RowLayout | None = given.get(ROWS)
    if rows is None:
        return result
    states = result.last_hidden_state[0]
    pooling = str(getattr(base.config, "classifier_pooling", "cls"))
    vectors = POOLING["mean" if pooling == "mean" else "cls"](states, rows)
    vectors = vectors.to(states.dtype).unsqueeze(1)
    result.last_hidden_state = vectors
    pooler = getattr(base, "pooler", None)
    if isinstance(pooler, torch.nn.Linear):  # ALBERT's, whose activation is beside it
        result.pooler_output = base.pooler_activation(pooler(vectors[:, 0]))
    elif pooler is not None:
        result.pooler_output = pooler(vectors)
    return result

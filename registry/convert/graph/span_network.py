"""The network of a GLiNER with one encoder and ``markerV0``, in PyTorch: to export and to compare.

It has the names and the arithmetic of the ``gliner`` package's ``UniEncoderSpanModel``, which is no
dependency: its graph takes other inputs, and it wants an older transformers. Tests compare the two.
Two sums are done in another order, for less work: the first product of a span's ends is done for
each word and not for each span, and labels go through the last product in place of spans. Weights
are read whole: none may lack, none may be left. It never pads and never chooses a row.

The layout of rows is that of ``preprocess.labelled_words``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.manifest import TOKENIZER, SpanSpec
from contracts.tasks import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from preprocess.encoder import EncodedTexts
from preprocess.labelled_words import LENGTH_BASE
from registry.convert.errors import ExportMissingError, VersionError
from registry.convert.flavours import gliner
from registry.convert.flavours.config import read_json
from registry.convert.flavours.original import OriginalTextModel

_SHOWN = 60
_COUNTED = ".position_ids"  # 0, 1, 2, ..., which older checkpoints hold
_NO_SPAN = -16.0  # the logit of what is no span, or no label: a probability of 1e-7
_DROPPED = 0.0  # dropout does nothing when a model answers


@dataclass(frozen=True)
class SpanModel:
    """A GLiNER in memory, with what ``export.to_onnx`` asks of a model.

    Attributes:
        network: takes rows, gives ``logits`` ``[rows, length, widths * labels]``.
        tokenizer: the original's own.
        spans: how rows are made.
    """

    network: Any
    tokenizer: Any
    spans: SpanSpec

    @property
    def inputs(self) -> list[str]:
        """What the network takes."""
        return [INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS]

    @property
    def unattended(self) -> None:
        """No token of a row is there without being read."""
        return

    @property
    def pad_id(self) -> int | None:
        """The encoder's own padding id, if it has one."""
        found = getattr(self.network.config, "pad_token_id", None)
        return found if isinstance(found, int) and found >= 0 else None

    @property
    def embedding_rows(self) -> int:
        """How many tokens the encoder has a row for."""
        encoder = self.network.token_rep_layer.bert_layer.model
        return int(encoder.get_input_embeddings().num_embeddings)

    def require_rows(self, texts: Sequence[str], encoded: EncodedTexts) -> None:
        """Compares the tokens of rows that were not cut with those of the original's tokeniser.

        Raises:
            VersionError: the first text that differs.
        """
        windows = encoded.windows
        if windows is None:
            raise ValueError("rows of spans have windows")
        spans = self.spans
        prompt = [piece for label in windows.labels for piece in (spans.label_mark, label)]
        for row, text in enumerate(texts):
            if windows.statistics[row][3]:
                continue
            words = [text[start:end] for start, end in windows.offsets[row]]
            pieces = [*prompt, spans.text_mark, *words]
            theirs = self.tokenizer([pieces], is_split_into_words=True)[INPUT_IDS][0]
            if theirs != encoded.ids[row]:
                raise VersionError(
                    "the version's own tokeniser and the one that would be served make different "
                    f"tokens of {text[:_SHOWN]!r}"
                )

    def outputs(self, encoded: EncodedTexts) -> NDArray[np.float32]:
        """The logits of every row by itself, joined: float32 ``[tokens of all rows, n]``."""
        import torch  # noqa: PLC0415

        found = []
        with torch.inference_mode():
            for ids, types in zip(encoded.ids, encoded.type_ids or (), strict=True):
                row, laid = torch.tensor([ids]), torch.tensor([types])
                found.append(self.network(row, torch.ones_like(row), laid)["logits"][0].numpy())
        return np.concatenate(found).astype(np.float32)


def load(original: OriginalTextModel, *, threads: int, allow_pickle: bool) -> SpanModel:
    """Loads a version.

    Raises:
        ExportMissingError: torch or transformers is not installed.
        VersionError: the files do not go together.
    """
    try:
        import torch  # noqa: PLC0415
        import transformers  # noqa: PLC0415
    except ImportError as error:
        raise ExportMissingError(
            f"this version is PyTorch, and the export environment is not installed ({error.name})"
        ) from error
    if original.spans is None or not (original.tokenizer / TOKENIZER).is_file():
        raise VersionError(
            "the version has a tokeniser but no tokenizer.json; save it with a fast tokeniser"
        )
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    try:
        network = _network(read_json(original.folder / gliner.CONFIG), original.spans)
        weights = _read_weights(original.folder, allow_pickle=allow_pickle)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            original.tokenizer, local_files_only=True
        )
    except (VersionError, MemoryError):
        raise
    except Exception as error:  # the libraries raise many kinds, all about these files
        raise VersionError(f"the version can't be loaded: {error}") from error
    try:
        found = network.load_state_dict(weights, strict=False)
    except RuntimeError as error:  # of other sizes
        raise VersionError(f"the weights do not fit {gliner.CONFIG}: {error}") from error
    unexpected = [name for name in found.unexpected_keys if not name.endswith(_COUNTED)]
    if found.missing_keys or unexpected:
        what, names = (
            ("lacks", found.missing_keys) if found.missing_keys
            else ("has more than the network answers with:", unexpected)
        )  # fmt: skip
        raise VersionError(f"the checkpoint {what} {', '.join(sorted(names)[:3])}")
    _require_marks(tokenizer, original.spans)
    return SpanModel(network.float().eval(), tokenizer, original.spans)


def _require_marks(tokenizer: Any, spans: SpanSpec) -> None:  # noqa: ANN401
    for mark in (spans.label_mark, spans.text_mark):
        if mark not in tokenizer.get_vocab():
            raise VersionError(
                f"the vocabulary lacks {mark!r}, which {gliner.CONFIG} names: save the version "
                "with the gliner package (save_pretrained)"
            )


def _read_weights(folder: Path, *, allow_pickle: bool) -> dict[str, Any]:
    import torch  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    path = folder / "model.safetensors"
    if path.is_file():
        return dict(load_file(path))
    path = folder / "pytorch_model.bin"
    if not allow_pickle or not path.is_file():
        raise VersionError("there is no model.safetensors beside it: save it as safetensors")
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def _projection(wide: int, out: int) -> Any:  # noqa: ANN401
    from torch import nn  # noqa: PLC0415

    return nn.Sequential(
        nn.Linear(wide, out * 4), nn.ReLU(), nn.Dropout(_DROPPED), nn.Linear(out * 4, out)
    )


def _ends(size: int, widest: int) -> Any:  # noqa: ANN401
    """The layer of spans, by their first and last words."""
    import torch  # noqa: PLC0415

    class SpanEnds(torch.nn.Module):
        """``left`` is how many words there are from each word on."""

        def __init__(self) -> None:
            super().__init__()
            self.project_start = _projection(size, size)
            self.project_end = _projection(size, size)
            self.out_project = _projection(2 * size, size)

        def forward(self, words: Any, labels: Any, left: Any) -> Any:  # noqa: ANN401
            """Logits ``[rows, length, widths * labels]``."""
            first, _, _, last = self.out_project
            starts = self.project_start(words).relu() @ first.weight[:, :size].T + first.bias
            ends = self.project_end(words).relu() @ first.weight[:, size:].T
            wide = (labels @ last.weight).transpose(1, 2)
            plain = (labels @ last.bias).unsqueeze(1)
            widths = []
            for further in range(widest):
                moved = torch.nn.functional.pad(ends, (0, 0, 0, further))[:, further:]
                logits = (starts + moved).relu() @ wide + plain
                widths.append(logits.where((left > further).unsqueeze(-1), _NO_SPAN))
            return torch.cat(widths, dim=-1)

    return SpanEnds()


def _context(size: int, layers: int) -> Any:  # noqa: ANN401
    """The LSTM over words, which reads each row to its own last word and back from there."""
    import torch  # noqa: PLC0415

    class Context(torch.nn.Module):
        """``count`` is how many words a row has, ``places`` counts from 0."""

        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(size, size // 2, layers, bidirectional=True, batch_first=True)

        def forward(self, words: Any, count: Any, places: Any) -> Any:  # noqa: ANN401
            back = (count - 1 - places).clamp(min=0).unsqueeze(-1)
            for layer in range(layers):
                forth = self._read(words, f"l{layer}")
                turned = words.gather(1, back.expand(-1, -1, words.shape[-1]))
                found = self._read(turned, f"l{layer}_reverse")
                words = torch.cat([forth, found.gather(1, back.expand_as(found))], dim=-1)
            return words

        def _read(self, words: Any, name: str) -> Any:  # noqa: ANN401
            parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            weights = [getattr(self.lstm, f"{part}_{name}") for part in parts]
            start = words.new_zeros(1, words.shape[0], size // 2)
            # With biases, of one layer, not in training, one way, rows first.
            flags = (True, 1, _DROPPED, False, False, True)
            return torch.lstm(words, (start, start), weights, *flags)[0]

    return Context()


def _encoder(config: Any, size: int) -> Any:  # noqa: ANN401
    """The transformer, under the names that the package gives its parts."""
    import transformers  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    kind = transformers.CONFIG_MAPPING[str(config["model_type"])]
    made = kind(**{**config, "attn_implementation": "eager"})
    is_t5 = made.model_type in {"t5", "mt5"}
    layer, inner = nn.Module(), nn.Module()
    inner.model = (
        transformers.T5EncoderModel(made) if is_t5 else transformers.AutoModel.from_config(made)
    )
    layer.bert_layer = inner
    if (own := int(made.hidden_size)) != size:
        layer.projection = nn.Linear(own, size)
    return layer


def _network(config: Any, spans: SpanSpec) -> Any:  # noqa: ANN401
    """The network with weights that are still to be loaded."""
    import torch  # noqa: PLC0415

    size = int(config.get("hidden_size", 512))
    layers = int(config.get("num_rnn_layers", 1))
    embeds_mark = bool(config.get("embed_ent_token", True))

    class SpanNetwork(torch.nn.Module):
        """See the module."""

        def __init__(self) -> None:
            super().__init__()
            self.token_rep_layer = _encoder(config["encoder_config"], size)
            self.config = self.token_rep_layer.bert_layer.model.config
            if layers > 0:
                self.rnn = _context(size, layers)
            self.span_rep_layer = torch.nn.Module()
            self.span_rep_layer.span_rep_layer = _ends(size, spans.widest)
            self.prompt_rep_layer = _projection(size, size)

        def forward(
            self,
            input_ids: Any,  # noqa: ANN401
            attention_mask: Any,  # noqa: ANN401
            token_type_ids: Any,  # noqa: ANN401
            **_: object,
        ) -> dict[str, Any]:
            """The logits of rows; what the token types mean is at the head of the module."""
            encoder = self.token_rep_layer.bert_layer.model
            states = encoder(input_ids=input_ids, attention_mask=attention_mask)[0]
            if hasattr(self.token_rep_layer, "projection"):
                states = self.token_rep_layer.projection(states)
            laid = token_type_ids.unsqueeze(1)
            places = torch.ones_like(token_type_ids).cumsum(1)
            words = (laid == places.unsqueeze(2)).to(states.dtype) @ states
            count = (-LENGTH_BASE - token_type_ids).clamp(min=0).amax(dim=1, keepdim=True)
            if layers > 0:
                words = self.rnn(words, count, places - 1)
            numbers = -torch.arange(1, spans.most_labels + 1).view(1, -1, 1)
            marks = (laid == numbers).to(states.dtype)
            labels = marks @ states if embeds_mark else marks[:, :, :-1] @ states[:, 1:]
            ends = self.span_rep_layer.span_rep_layer
            logits = ends(words, self.prompt_rep_layer(labels), count - places + 1)
            named = marks.amax(dim=2) > 0
            named = named.repeat(1, spans.widest).unsqueeze(1)
            return {"logits": logits.where(named, _NO_SPAN)}

    return SpanNetwork()

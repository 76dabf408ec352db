"""Runs a graph on texts in this process, exactly as the gateway and Triton will.

Tokenising and padding are ``preprocess``'s, the session's options are those of the served engine;
so what is measured here is what callers will get. It never downloads and never optimises for this
machine what is published.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from contracts.manifest import TokenizerSpec
from contracts.tensors import TensorSpec
from preprocess.buckets import bucket_of
from preprocess.encoder import EncodedTexts, TextEncoder
from preprocess.padding import RowPadder, Tensor
from registry.convert.errors import VersionError, first_line

Floats = NDArray[np.float32]
Feed = Mapping[str, Tensor]

_ERRORS_ONLY = 3
_TOKENS_A_BATCH = 2048


@dataclass(frozen=True)
class TokenisedTexts:
    """Texts as this version's tokeniser sees them, and what pads them."""

    encoded: EncodedTexts
    padder: RowPadder
    buckets: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.encoded)

    def feed(self, indexes: Sequence[int], length: int) -> Feed:
        """Tensors ``[len(indexes), length]`` of some of the texts."""
        types = self.encoded.type_ids
        return self.padder.pad(
            [self.encoded.ids[index] for index in indexes],
            length,
            None if types is None else [types[index] for index in indexes],
        )

    def bucket(self, index: int) -> int:
        """The row length that a text is padded to when served."""
        return bucket_of(self.encoded.tokens[index], self.buckets)


def encode(
    texts: Sequence[str],
    encoder: TextEncoder,
    inputs: Sequence[TensorSpec],
    tokenizer: TokenizerSpec,
    buckets: tuple[int, ...],
    *,
    pairs: Sequence[str] | None = None,
) -> TokenisedTexts:
    """The texts, or pairs of them, tokenised once for all that follows.

    With the usual prompt before them, if the model has one.
    """
    return TokenisedTexts(
        encoder.encode_prompted(texts, pairs), RowPadder(inputs, tokenizer), buckets
    )


class TextEngine(Protocol):
    """What answers texts in batches, as the served engine does."""

    def rows(self, texts: TokenisedTexts, indexes: Sequence[int], length: int) -> list[Floats]:
        """The answer to each of some texts in one batch, float32 ``[1, n]`` or ``[tokens, n]``.

        ``length`` is what rows are padded to, by engines that pad.
        """

    def outputs(self, texts: TokenisedTexts) -> Floats:
        """The answers to all texts in batches, joined: float32 ``[texts, n]`` or of tokens."""


class GraphEngine:
    """One graph, loaded."""

    def __init__(self, model: onnx.ModelProto, *, threads: int) -> None:
        """Loads a graph; raises ``VersionError``."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            source = model.SerializeToString()
        except ValueError as error:  # protobuf's own limit
            raise VersionError("the graph is larger than 2 GiB") from error
        try:
            self._session = onnxruntime.InferenceSession(
                source, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime's errors share no base but Exception
            raise VersionError(f"ONNX Runtime can't load the graph: {first_line(error)}") from error

    def run(self, feed: Feed) -> list[Floats]:
        """All outputs for one batch; raises ``VersionError``."""
        try:
            return list(self._session.run(None, dict(feed)))
        except Exception as error:  # as above
            shape = next(iter(feed.values())).shape
            raise VersionError(
                f"the graph fails on a batch of {shape}: {first_line(error)}"
            ) from error

    def rows(self, texts: TokenisedTexts, indexes: Sequence[int], length: int) -> list[Floats]:
        """The first output for some texts in one batch: for each float32 ``[1, n]``.

        An output with values for each token gives ``[tokens, n]``, without those of padding.
        """
        output = self.run(texts.feed(indexes, length))[0].astype(np.float32, copy=False)
        if output.ndim < 3:
            return [output[at : at + 1] for at in range(len(output))]
        tokens = texts.encoded.tokens
        return [output[at, : tokens[index]] for at, index in enumerate(indexes)]

    def outputs(self, texts: TokenisedTexts) -> Floats:
        """The first output for all texts, in batches within a bucket, joined as ``rows`` has it."""
        by_bucket: dict[int, list[int]] = {}
        for index in range(len(texts)):
            by_bucket.setdefault(texts.bucket(index), []).append(index)
        found: dict[int, Floats] = {}
        for bucket, indexes in by_bucket.items():
            size = max(1, _TOKENS_A_BATCH // bucket)
            for start in range(0, len(indexes), size):
                part = indexes[start : start + size]
                found.update(zip(part, self.rows(texts, part, bucket), strict=True))
        return np.concatenate([found[index] for index in range(len(texts))])

    def run_one_by_one(self, texts: TokenisedTexts) -> Floats:
        """The same of every text alone, without any padding."""
        tokens = texts.encoded.tokens
        return np.concatenate(
            [self.rows(texts, [index], tokens[index])[0] for index in range(len(texts))]
        )

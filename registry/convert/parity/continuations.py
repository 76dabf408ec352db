"""Compares what a decoder's graph writes with what the original writes, token by token.

The graph is run here as ``triton/generation_model`` runs it: a prompt first, then one token at a
time; and with other rows beside it, which lie further right in the same arrays.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from contracts.endpoint import Precision
from contracts.manifest import Parity
from contracts.tasks import ATTENTION_MASK, INPUT_IDS, Task
from registry.convert.errors import VersionError
from registry.convert.forms import FORMS
from registry.convert.graph.decoder import PAST, POSITIONS, SOURCE_MASK
from registry.convert.parity.engine import GraphEngine
from registry.convert.parity.verify import broken_limit, short
from registry.packages.token_rules import find_forced_last, mask_forbidden

Floats = NDArray[np.float32]
Feed = dict[str, NDArray[Any]]

PROMPTS = 64
MOST_TOKENS = 16  # written after each
LONGEST_PROMPT = 64
_BESIDE = 4  # prompts that are read together


class Decoder:
    """A decoder's graph, loaded."""

    def __init__(
        self,
        model: onnx.ModelProto,
        *,
        threads: int,
        encoder: onnx.ModelProto | None = None,
        start: int = 0,
        rules: Mapping[str, Any] | None = None,
    ) -> None:
        """Loads a graph, or two with the token that comes first; raises ``VersionError``.

        ``rules``: what is forced and forbidden (``registry.packages.token_rules``).
        """
        self._engine = GraphEngine(model, threads=threads)
        self._encoder = None if encoder is None else GraphEngine(encoder, threads=threads)
        self._sources = [] if encoder is None else [each.name for each in encoder.graph.output]
        self._start = start
        self._rules = rules or {}
        shapes = {
            each.name: [size.dim_value for size in each.type.tensor_type.shape.dim]
            for each in model.graph.input
        }
        self._past = {name: shape for name, shape in shapes.items() if name.startswith(PAST)}
        self._has_positions = POSITIONS in shapes

    def writes(
        self, prompt: Sequence[int], stops: Sequence[int], *, most: int
    ) -> tuple[list[int], Floats]:
        """At most ``most`` tokens after a prompt, and the first one's logits, ``[vocabulary]``."""
        begins, source = self._begins([prompt])
        (read,) = begins
        logits, past = self._read(np.array(begins), np.ones((1, len(read))), self._empty(1), source)
        first = logits[0]
        tokens = [self._start, self._next(first, [self._start], stops, most)]
        while len(tokens) <= most and tokens[-1] not in stops:
            mask = np.ones((1, len(read) + len(tokens) - 1))
            logits, past = self._read(np.array([tokens[-1:]]), mask, past, source)
            tokens.append(self._next(logits[0], tokens, stops, most))
        return tokens[1:], first

    def _next(self, logits: Floats, tokens: list[int], stops: Sequence[int], most: int) -> int:
        last = find_forced_last(self._rules, tokens, most)
        if last is not None:
            return last
        return int(mask_forbidden(logits, self._rules, tokens, stops).argmax())

    def together(self, prompts: Sequence[Sequence[int]]) -> Floats:
        """The logits after each of some prompts that are read as rows of one batch."""
        begins, source = self._begins(prompts)
        return self._read(*_at_right(begins), self._empty(len(prompts)), source)[0]

    def _begins(self, prompts: Sequence[Sequence[int]]) -> tuple[list[list[int]], Feed]:
        """What the decoder reads first of each prompt, and what its encoder has read of all."""
        if self._encoder is None:
            return [list(each) for each in prompts], {}
        # Each is read alone: its positions are counted from its own first token.
        ids = [np.array([each], np.int64) for each in prompts]
        made = [
            self._encoder.run({INPUT_IDS: row, ATTENTION_MASK: np.ones_like(row)}) for row in ids
        ]
        width = max(row.shape[1] for row in ids)
        feed: Feed = {
            name: np.concatenate([_wide(each[place], width) for each in made])
            for place, name in enumerate(self._sources)
        }
        feed[SOURCE_MASK] = _at_right(prompts)[1]
        return [[self._start]] * len(prompts), feed

    def _empty(self, rows: int) -> list[Floats]:
        return [
            np.zeros((rows, heads, 0, width), np.float32)
            for _, heads, _, width in self._past.values()
        ]

    def _read(
        self,
        ids: NDArray[np.integer],
        mask: NDArray[np.generic],
        past: Sequence[Floats],
        source: Feed,
    ) -> tuple[Floats, list[Floats]]:
        seen = mask.astype(np.int64)
        feed: dict[str, NDArray[Any]] = dict(zip(self._past, past, strict=True))
        feed |= {INPUT_IDS: ids.astype(np.int64), ATTENTION_MASK: seen, **source}
        if self._has_positions:
            feed[POSITIONS] = np.maximum(seen.cumsum(axis=1) - 1, 0)[:, -ids.shape[1] :]
        logits, *after = self._engine.run(feed)
        return logits, after


def prove_continuations(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    stops: Sequence[int],
    original: tuple[list[list[int]], Floats],
    *,
    reference: str,
    most: int = MOST_TOKENS,
) -> Parity:
    """The parity report of a graph that writes as the original.

    Args:
        decoder: the graph.
        prompts: tokens of each.
        stops: tokens that end a text.
        original: what the original wrote after each, and its logits of each first token.
        reference: what the original ran in.
        most: tokens that were written after each prompt at most.

    Raises:
        VersionError: it does not.
    """
    texts, logits = original
    found = [decoder.writes(prompt, stops, most=most) for prompt in prompts]
    equal = np.mean([tokens == text for (tokens, _), text in zip(found, texts, strict=True)])
    ours, theirs = shares(np.stack([first for _, first in found])), shares(logits)
    difference = np.abs(ours - theirs)
    beside = [list(each) for each in prompts[:_BESIDE]]
    moved = np.abs(shares(decoder.together(beside)) - ours[: len(beside)])
    parity = Parity(
        texts=len(prompts),
        reference=reference,
        max_abs_difference=short(difference.max()),
        mean_abs_difference=short(difference.mean()),
        equal_labels=short(equal),
        batch_max_abs_difference=short(moved.max()),
        limits=dict(FORMS[Task.TEXT_GENERATION].limits[Precision.FP32]),
    )
    if reason := broken_limit(parity):
        raise VersionError(f"fp32 does not write as the original ({reference}): {reason}")
    return parity


def _at_right(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of several lengths at the right end of one array, and what of it is theirs."""
    width = max(map(len, rows))
    ids = np.array([[0] * (width - len(each)) + list(each) for each in rows], np.int64)
    mask = np.array([[0] * (width - len(each)) + [1] * len(each) for each in rows], np.int64)
    return ids, mask


def _wide(cache: Floats, width: int) -> Floats:
    """Keys or values ``[1, heads, tokens, n]``, of which these are the last tokens."""
    return np.pad(cache, ((0, 0), (0, 0), (width - cache.shape[2], 0), (0, 0)))


def shares(logits: Floats) -> NDArray[np.float64]:
    """Probabilities of tokens, ``[rows, vocabulary]``."""
    scores = logits.astype(np.float64)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
    return found

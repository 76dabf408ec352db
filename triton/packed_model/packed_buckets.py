"""Shapes of runs that a GPU replays as CUDA graphs, and how a run is filled up to one of them.

A graph has fixed numbers of tokens and rows. What is missing of rows is filled by empty ones, and
what is missing of tokens by rows of a fixed id that nobody reads. Pure functions: no torch here.
"""

from dataclasses import dataclass

import numpy as np

# A run of MiniLM-L6 costs only launches up to some 4,000 tokens, and few graphs are loaded sooner.
TOKEN_BUCKETS = (
    *(64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072),
    *(4096, 6144, 8192, 12288, 16384),
)
MOST_TOKENS = TOKEN_BUCKETS[-1]
MOST_ROWS = 2048
# The grid of variable-length attention grows with the longest row: longer ones run without a graph.
LONGEST_ROW = 512
# Attention grows with the square of a row: several short rows fill up, not a long one.
FILLER_ROW = 128


@dataclass(frozen=True, order=True)
class GraphShape:
    """Of a graph: its tokens and its rows, those that fill it up included."""

    tokens: int
    rows: int


def shapes(longest: int = LONGEST_ROW) -> tuple[GraphShape, ...]:
    """All graphs, the largest first: they share memory, which the first takes.

    Args:
        longest: of the rows that graphs take; very short ones can't fill up those of few rows.
    """
    step = min(FILLER_ROW, longest)
    found = {GraphShape(tokens, rows) for tokens in TOKEN_BUCKETS for rows in row_buckets(tokens)}
    return tuple(sorted((s for s in found if -(-s.tokens // step) <= s.rows), reverse=True))


def row_buckets(tokens: int) -> tuple[int, int]:
    """Rows of the graphs of this number of tokens: for texts of about 32 tokens, and of about 8."""
    return max(8, tokens // 32), min(MOST_ROWS, max(16, tokens // 8))


def bucket_of(tokens: int) -> int | None:
    """The tokens that a run of ``tokens`` costs; None if it runs as it is, without a graph."""
    return next((bucket for bucket in TOKEN_BUCKETS if tokens <= bucket), None)


def shape_for(starts: np.ndarray, longest: int = LONGEST_ROW) -> GraphShape | None:
    """The smallest graph that takes such rows; None if there is none.

    Args:
        starts: where each row begins, and the end of the last one.
        longest: of the rows that graphs take.
    """
    rows, tokens = len(starts) - 1, int(starts[-1])
    if int(np.diff(starts).max()) > longest:
        return None
    step = min(FILLER_ROW, longest)
    return next(
        (
            GraphShape(bucket, most)
            for bucket in TOKEN_BUCKETS
            for most in row_buckets(bucket)
            if tokens <= bucket and rows + -(-(bucket - tokens) // step) <= most
        ),
        None,
    )


def fill_rows(starts: np.ndarray, shape: GraphShape, longest: int = LONGEST_ROW) -> np.ndarray:
    """The starts of a graph's rows: the real ones, those that fill up, and empty ones."""
    step = min(FILLER_ROW, longest)
    filler = np.arange(int(starts[-1]) + step, shape.tokens, step)
    filled = np.full(shape.rows + 1, shape.tokens, np.int32)
    filled[: len(starts)] = starts
    filled[len(starts) : len(starts) + len(filler)] = filler
    return filled

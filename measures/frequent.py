"""The most frequent words of a stream in bounded memory, by the sketch of Misra and Gries.

At most ``CAPACITY`` words are kept of one range; a word that comes when all places are taken costs
each of them one count, and is not kept. So a count is never too large, and too small by at most
``below``; ``below`` is at most ``seen / (CAPACITY + 1)``. Two sketches add by adding all they hold,
and the bound adds with them. Sources: Misra and Gries, "Finding repeated elements" (1982); Agarwal
et al., "Mergeable summaries" (PODS 2012), section 3.1.

What is kept of a stream depends on its order, so that one range's sketch is a function of the log;
sums do not depend on the order in which they are added. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from contracts.windows import UnkWordCounts
from measures.histograms import add_counts

CAPACITY: Final = 64
# Of a word: so that an aggregate has a bound in bytes, for any writer of messages.
MOST_CHARACTERS: Final = 40


def observe(sketch: UnkWordCounts, words: Iterable[str]) -> None:
    """Counts words, in their order."""
    counts = sketch.counts
    for whole in words:
        word = whole[:MOST_CHARACTERS]
        sketch.seen += 1
        held = counts.get(word)
        if held is not None:
            counts[word] = held + 1
        elif len(counts) < CAPACITY:
            counts[word] = 1
        else:
            sketch.below += 1
            sketch.counts = counts = {each: held - 1 for each, held in counts.items() if held > 1}


def ranked_words(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Words and counts, the most frequent first, ties by name; words without a count left out."""
    return sorted(
        ((word, count) for word, count in counts.items() if count > 0),
        key=lambda each: (-each[1], each[0]),
    )


def sum_sketches(sketches: Iterable[UnkWordCounts]) -> UnkWordCounts:
    """The sum of sketches; its words are all of theirs."""
    total = UnkWordCounts()
    for sketch in sketches:
        total.seen += sketch.seen
        total.below += sketch.below
        add_counts(total.counts, sketch.counts)
    return total

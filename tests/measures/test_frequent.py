"""The sketch keeps what is frequent, in bounded memory, and its error bound holds."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.windows import UnkWordCounts
from measures.frequent import CAPACITY, MOST_CHARACTERS, observe, ranked_words, sum_sketches

# A few words come often, hundreds come once or twice.
words = st.integers(0, 400).map(lambda n: f"w{n}") | st.sampled_from(["corona", "🙂", "w1"])
streams = st.lists(words, max_size=400)


def sketch_of(stream: list[str]) -> UnkWordCounts:
    sketch = UnkWordCounts()
    observe(sketch, stream)
    return sketch


def check(sketch: UnkWordCounts, truth: "Counter[str]") -> None:
    assert sketch.seen == truth.total()
    for word in truth.keys() | sketch.counts.keys():
        held = sketch.counts.get(word, 0)
        assert held <= truth[word] <= held + sketch.below


@given(streams)
def test_no_count_is_too_large_nor_too_small_by_more_than_the_bound(stream: list[str]) -> None:
    sketch = sketch_of(stream)
    check(sketch, Counter(stream))
    assert len(sketch.counts) <= CAPACITY
    assert sketch.below * (CAPACITY + 1) <= sketch.seen


@given(streams)
def test_a_word_of_more_than_its_share_is_always_there(stream: list[str]) -> None:
    sketch = sketch_of(stream)
    for word, count in Counter(stream).items():
        if count > len(stream) / (CAPACITY + 1):
            assert word in sketch.counts


@given(st.lists(streams, max_size=4))
def test_sums_keep_the_bound(parts: list[list[str]]) -> None:
    total = sum_sketches([sketch_of(part) for part in parts])
    check(total, Counter(word for part in parts for word in part))


@settings(max_examples=20)
@given(streams)
def test_few_words_are_counted_exactly(stream: list[str]) -> None:
    few = [word for word in stream if word in {"corona", "🙂", "w1", "w2"}]
    assert sketch_of(few).counts == Counter(few)
    assert sketch_of(few).below == 0


def test_long_words_are_cut() -> None:
    assert sketch_of(["x" * 1000]).counts == {"x" * MOST_CHARACTERS: 1}


def test_the_most_frequent_come_first_and_ties_by_name() -> None:
    assert ranked_words({"b": 2, "a": 2, "c": 9, "gone": 0}) == [("c", 9), ("a", 2), ("b", 2)]

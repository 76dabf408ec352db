"""Long texts become overlapping rows, and every token keeps its place in the text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.manifest import TokenizerSpec
from preprocess import windows
from preprocess.encoder import TextEncoder
from preprocess.errors import InvalidTextError
from preprocess.windows import WindowEncoder

_words = st.lists(st.sampled_from(["inspect", "object", "the", "naïve", "中", "x-y", "q\u0301"]))


@pytest.fixture(scope="module")
def encoder(bert: bytes, specs: dict[str, TokenizerSpec]) -> WindowEncoder:
    return WindowEncoder(bert, specs["bert"].model_copy(update={"max_tokens": 10}))


def test_a_text_that_fits_is_one_row_as_of_any_encoder(
    bert: bytes, specs: dict[str, TokenizerSpec]
) -> None:
    texts = ["", "the object", "a naïve 中 text"]
    made, usual = (kind(bert, specs["bert"]).encode(texts) for kind in (WindowEncoder, TextEncoder))
    assert (made.ids, made.tokens, made.unk) == (usual.ids, usual.tokens, usual.unk)
    assert list(made.statistics()) == list(usual.statistics())


@settings(max_examples=60, deadline=None)
@given(words=st.lists(_words, min_size=1, max_size=3))
def test_windows_hold_every_token_at_its_place_and_overlap_by_the_stride(
    words: list[list[str]], encoder: WindowEncoder, bert: bytes, specs: dict[str, TokenizerSpec]
) -> None:
    texts = [" ".join(each) for each in words]
    wide = specs["bert"].model_copy(update={"max_tokens": 512})
    whole = TextEncoder(bert, wide).encode(texts).ids
    encoded = encoder.encode(texts)
    found = encoded.windows
    assert found is not None
    assert found.text_of == sorted(found.text_of)
    ids: dict[int, list[int]] = {}
    for row, text in enumerate(found.text_of):
        own = encoded.ids[row][1:-1]
        assert len(encoded.ids[row]) <= 10
        assert len(own) == len(found.offsets[row])
        known = ids.setdefault(text, [])
        shared = len(known) - found.starts[row]
        assert shared == (encoder.stride if known else 0)
        assert known[found.starts[row] :] == own[:shared]
        known += own[shared:]
        for (start, end), token in zip(found.offsets[row], own, strict=True):
            written = encoder.token(token).removeprefix("##")
            if not encoder.is_unknown(token):
                assert len(texts[text][start:end]) == len(written)
    assert [ids[index] for index in range(len(texts))] == [row[1:-1] for row in whole]


def test_what_is_longer_than_all_windows_is_cut_and_said_to_be(
    encoder: WindowEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "_most_tokens", 20)
    encoded = encoder.encode(["the object " * 9, "the object " * 90, "the"])
    assert encoded.truncated_texts() == [False, True, False]
    assert [tokens for tokens, *_ in encoded.statistics()] == [20, 22, 3]
    assert encoded.windows is not None
    assert encoded.windows.offsets[-2][-1][1] == len("the object " * 10) - 1
    assert windows.MOST_WINDOWS > 1


def test_pairs_and_lone_surrogates_are_refused(encoder: WindowEncoder) -> None:
    with pytest.raises(ValueError, match="pairs"):
        encoder.encode(["a"], ["b"])
    with pytest.raises(InvalidTextError):
        encoder.encode(["a", "\ud800"])

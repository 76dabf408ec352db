"""Text of tokens, as they come."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from preprocess.written import Detokeniser


def of_bytes() -> Tokenizer:
    """A token for each byte: a character may be several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({sign: at for at, sign in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    return made


TOKENIZER = of_bytes()


def ids(text: str) -> list[int]:
    found: list[int] = TOKENIZER.encode(text).ids
    return found


def shown(parts: Sequence[Sequence[int]], stops: Sequence[str] = ()) -> tuple[list[str], bool]:
    """What is shown after each part, and at the end; and whether it was stopped."""
    written = Detokeniser(TOKENIZER, stops)
    pieces = [written.add(part) for part in parts]
    return [*pieces, written.end()], written.stopped


@given(st.text(max_size=40), st.data())
def test_the_pieces_are_the_text_however_the_tokens_come(text: str, data: st.DataObject) -> None:
    tokens = ids(text)
    parts = []
    while tokens:
        count = data.draw(st.integers(1, len(tokens)))
        parts.append(tokens[:count])
        tokens = tokens[count:]
    pieces, _ = shown(parts)
    assert "".join(pieces) == text


@given(
    st.text("ab ", max_size=30),
    st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_a_text_ends_before_the_first_stop_and_no_part_of_one_is_shown(
    text: str, stops: list[str]
) -> None:
    pieces, stopped = shown([[token] for token in ids(text)], stops)
    places = [text.find(stop) for stop in stops if stop in text]
    if places:
        # Of two stops, the one that is whole first ends the text.
        ends = min(text.find(stop) + len(stop) for stop in stops if stop in text)
        cut = min(at for at in (text[:ends].find(stop) for stop in stops) if at >= 0)
        assert "".join(pieces) == text[:cut]
    else:
        assert "".join(pieces) == text
    assert stopped == bool(places)


def test_a_character_is_shown_once_it_is_whole() -> None:
    tokens = ids("é!")
    assert shown([[token] for token in tokens]) == (["", "é", "!", ""], False)


def test_a_character_that_stays_broken_is_shown_at_the_end() -> None:
    (first, _) = ids("é")
    assert shown([[first]]) == (["", "\N{REPLACEMENT CHARACTER}"], False)


def test_special_tokens_have_no_text() -> None:
    end = TOKENIZER.token_to_id("<end>")
    assert end is not None
    assert shown([ids("a"), [end]]) == (["a", "", ""], False)


@pytest.mark.parametrize("stop", ["b", "bc"])
def test_nothing_is_shown_after_a_stop(stop: str) -> None:
    pieces, stopped = shown([ids("ab"), ids("cd"), ids("e")], [stop])
    assert ("".join(pieces), stopped) == ("a", True)


def test_what_may_be_the_beginning_of_a_stop_is_held_back_until_that_is_known() -> None:
    pieces, _ = shown([ids("a\n"), ids("\n"), ids("b")], ["\n\n\n"])
    assert pieces == ["a", "", "\n\nb", ""]


def test_a_text_begins_as_its_prompt_has_it_begin() -> None:
    words = Tokenizer(models.WordLevel({"the": 0, "film": 1}, unk_token="the"))
    assert Detokeniser(words).add([1]) == "film"
    assert Detokeniser(words, prompt=[0]).add([1]) == " film"

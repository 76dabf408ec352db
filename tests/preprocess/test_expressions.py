"""Expressions of a model's author: the standard ones pass, those that go back and back do not."""

import json

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from preprocess.errors import TokenizerFileError
from preprocess.expressions import STANDARD, own_expressions, refuse_slow_expressions


def tokenizer_of(expression: str) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(expression), "isolated")
    return tokenizer


def refuse(tokenizer: Tokenizer) -> None:
    refuse_slow_expressions(tokenizer, own_expressions(json.loads(tokenizer.to_str())))


def test_an_authors_expressions_are_found_wherever_they_stand() -> None:
    tokenizer = tokenizer_of("one")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex("two"), "2")]
    )
    tokenizer.decoder = decoders.Sequence([decoders.Replace(Regex("three"), "3")])
    assert set(own_expressions(json.loads(tokenizer.to_str()))) == {"one", "two", "three"}


@pytest.mark.parametrize("expression", sorted(STANDARD))
def test_those_of_well_known_tokenisers_are_no_authors_own_and_fast(expression: str) -> None:
    tokenizer = tokenizer_of(expression)
    assert own_expressions(json.loads(tokenizer.to_str())) == ()
    refuse_slow_expressions(tokenizer, (expression,))


def test_a_tokeniser_without_expressions_has_none() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.normalizer = normalizers.Replace("plain", "x")
    assert own_expressions(json.loads(tokenizer.to_str())) == ()


@pytest.mark.parametrize("expression", [r"\w+|[^\w\s]+", r"[A-Z]{2,5}-\d+|\S+", r"(?:foo|bar)+"])
def test_an_ordinary_expression_of_an_author_passes(expression: str) -> None:
    refuse(tokenizer_of(expression))


@pytest.mark.slow
@pytest.mark.parametrize("expression", [r"(a+)+$", r"(\w|_)+\.", r"(?:foo|foofoo)+!"])
def test_an_expression_that_goes_back_and_back_is_refused_and_named(expression: str) -> None:
    with pytest.raises(TokenizerFileError, match="takes too long on some texts") as refused:
        refuse(tokenizer_of(expression))
    assert expression in str(refused.value).replace("\\\\", "\\")


def test_one_whose_time_grows_as_a_square_is_refused_by_its_time() -> None:
    """By a clock of the test's: each character costs as many microseconds as there are."""
    spent = 0.0

    class Slow:
        """A tokeniser, as far as it is asked."""

        decoder = None

        def encode_batch_fast(self, texts: list[str], *, add_special_tokens: bool) -> None:
            nonlocal spent
            spent += len(texts[0]) ** 2 * 1e-6

    with pytest.raises(TokenizerFileError, match=r"256 characters of 'a' take 0\.1 s"):
        refuse_slow_expressions(Slow(), ("a",), clock=lambda: spent)  # type: ignore[arg-type]

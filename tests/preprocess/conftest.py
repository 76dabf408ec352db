"""Real English of many lengths, and small tokenisers of the three families, trained on it."""

import importlib
import inspect
from collections.abc import Iterator

import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from contracts.manifest import TokenizerSpec

# The standard library documents itself in English sentences of 3 to 2,000 words.
_DOCUMENTED = (
    *("argparse", "asyncio", "collections", "decimal", "difflib", "email", "fractions"),
    *("inspect", "json", "logging", "pathlib", "random", "statistics", "tarfile"),
)


def _docstrings() -> Iterator[str]:
    for name in _DOCUMENTED:
        module = importlib.import_module(name)
        yield inspect.getdoc(module) or ""
        for _, value in sorted(vars(module).items(), key=lambda item: item[0]):
            if inspect.isclass(value) or inspect.isfunction(value):
                yield inspect.getdoc(value) or ""


@pytest.fixture(scope="session")
def english() -> list[str]:
    texts = sorted({text for text in _docstrings() if len(text) > 10})
    assert len(texts) > 200
    return texts


@pytest.fixture(scope="session")
def bert(english: list[str]) -> bytes:
    """As BERT's: words in pieces, [CLS] a [SEP] b [SEP]. Asks for padding and truncation itself."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=800, special_tokens=special, limit_alphabet=60, show_progress=False
    )
    tokenizer.train_from_iterator(english, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(7)
    return tokenizer.to_str().encode()


@pytest.fixture(scope="session")
def roberta(english: list[str]) -> bytes:
    """As RoBERTa's: byte pairs that know of the space before a word, no unknown token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(english, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer.to_str().encode()


@pytest.fixture(scope="session")
def unigram(english: list[str]) -> bytes:
    """As T5's and XLNet's: pieces with a mark for the space; [CLS] last, with types of its own."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "<unk>", "<sep>", "<cls>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=600, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(english, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A:0 <sep>:0 <cls>:2",
        pair="$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2",
        special_tokens=[("<sep>", 2), ("<cls>", 3)],
    )
    return tokenizer.to_str().encode()


@pytest.fixture(scope="session")
def plain() -> bytes:
    """Whole words and nothing around them."""
    vocabulary = {"<pad>": 0, "<unk>": 1, "good": 2, "bad": 3, "film": 4}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer.to_str().encode()


@pytest.fixture(scope="session")
def specs() -> dict[str, TokenizerSpec]:
    """What a manifest would say of each, at 48 tokens a row."""
    return {
        "bert": TokenizerSpec(max_tokens=48, pad_id=0, unk_id=1, vocabulary=800),
        "roberta": TokenizerSpec(max_tokens=48, pad_id=1, unk_id=None, vocabulary=800),
        "unigram": TokenizerSpec(max_tokens=48, pad_id=0, unk_id=1, vocabulary=600),
        "plain": TokenizerSpec(max_tokens=48, pad_id=0, unk_id=1, vocabulary=5),
    }

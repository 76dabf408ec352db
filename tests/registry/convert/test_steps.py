"""What versions are compared on holds what callers send, and not only what people wrote."""

from pathlib import Path

import pytest
from tiny_models import TEXTS, tokenizer
from tokenizers import Tokenizer

from contracts.endpoint import ServingOptions
from contracts.tasks import Task
from registry.convert import texts, tokeniser
from registry.convert.download import DownloadedVersion
from registry.convert.flavours import OriginalTextModel
from registry.convert.steps import choose_compared_texts
from registry.convert.tracking import SourceVersion

LONGEST = 600


def marked() -> Tokenizer:
    """A vocabulary with special tokens of its own, as BART's has ``</s>``."""
    made = tokenizer()
    made.add_special_tokens(["[SEP]", "</s>"])
    return made


@pytest.mark.parametrize("task", [Task.TEXT_CLASSIFICATION, Task.TEXT_RANKING, Task.TEXT_EMBEDDING])
def test_special_tokens_and_a_row_that_is_full_are_compared_too(tmp_path: Path, task: Task) -> None:
    marked().save(str(tmp_path / "tokenizer.json"))
    original = OriginalTextModel("x", tmp_path, tmp_path, task)
    built = tokeniser.build(original, ServingOptions(max_tokens=LONGEST))
    evaluation = texts.EvaluationTexts(TEXTS, "", own=True)
    version = SourceVersion(source="", run_id="", artifacts="", created=0.0)
    compared = choose_compared_texts(DownloadedVersion(version, None, original, evaluation), built)
    ends = [text.count("</s>") for text in compared.texts]
    assert {0, 1, 2} <= set(ends)
    rows = built.encoder.encode(compared.texts, compared.pairs)
    assert max(rows.tokens) == LONGEST
    assert (compared.pairs is not None) == (task is Task.TEXT_RANKING)
    if compared.pairs is not None:
        assert any("</s>" in pair for pair in compared.pairs)

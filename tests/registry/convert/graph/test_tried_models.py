"""Each architecture of the page of supported models, through a whole conversion."""

import os
from pathlib import Path
from typing import Any

import pytest
from tried_models import LONG, TRIED, Tried, converted

from contracts.tasks import Task

PAGE = Path(__file__).resolve().parents[4] / "docs" / "supported-models.md"
FEWEST = 200  # texts


@pytest.fixture(scope="module")
def libraries() -> Any:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    pytest.importorskip("torch", reason="needs the export environment")
    return pytest.importorskip("transformers", reason="needs the export environment")


@pytest.mark.export
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("tried", [*TRIED, LONG], ids=lambda tried: tried.slug)
def test_it_answers_as_its_library_does(libraries: Any, tried: Tried, tmp_path: Path) -> None:
    manifest = converted(tried, tmp_path)
    assert manifest.parity is not None
    assert manifest.parity.texts >= FEWEST
    assert manifest.parity.max_abs_difference <= 1e-5
    assert manifest.parity.batch_max_abs_difference <= 1e-5
    assert manifest.tokenizer.max_tokens == tried.max_tokens
    assert manifest.tokenizer.prompts.items() >= tried.prompts.items()
    if tried.late:
        assert manifest.task is Task.MULTI_VECTOR_EMBEDDING
    if tried.cross_encoder:
        assert manifest.task is Task.TEXT_RANKING


def test_the_page_lists_what_is_tried_here_and_nothing_else() -> None:
    _, _, behind = PAGE.read_text(encoding="utf-8").partition("<!-- measured: architectures -->")
    rows = behind.partition("<!-- end -->")[0].strip().splitlines()[2:]
    listed = [tuple(cell.strip() for cell in row.strip("|").split("|")[:3]) for row in rows]
    assert listed == [(one.name, f"`{one.architecture}`", one.form) for one in (*TRIED, LONG)]

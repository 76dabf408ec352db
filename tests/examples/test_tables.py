"""The example's models of tables become packages, and answer as its README shows."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("skl2onnx", reason="needs the extra tables")
pytest.importorskip("xgboost", reason="needs the extra tables")

from loaded_script import loaded
from served_models import asked, converted

from contracts.tasks import Task

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # MLflow's own

EXAMPLE = Path(__file__).parents[2] / "examples" / "tables"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return loaded(EXAMPLE / "shop.py")


async def answer_of(example: ModuleType, name: str, folder: Path) -> tuple[Task, Any]:
    model, graph = converted(name, lambda where: example.save(name, where), folder)
    path = f"/v1/models/{name}:predict"
    return model.task, await asked(model, graph, name, path, example.request(name))


async def test_who_leaves_is_answered_as_the_model_and_the_readme_say(
    example: ModuleType, tmp_path: Path
) -> None:
    task, answer = await answer_of(example, example.LEAVING, tmp_path)
    assert task is Task.TABULAR_CLASSIFICATION
    table = pd.DataFrame(example.CUSTOMERS).astype({"orders": float})
    expected = example.leaving(example.customers()).predict_proba(table)
    found = [list(each["scores"].values()) for each in answer["predictions"]]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert "\n".join(f"   {line}" for line in example.shown(example.LEAVING, answer)) in readme


async def test_what_is_spent_is_answered_as_the_readme_says(
    example: ModuleType, tmp_path: Path
) -> None:
    task, answer = await answer_of(example, example.SPENDING, tmp_path)
    assert task is Task.TABULAR_REGRESSION
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert "\n".join(f"   {line}" for line in example.shown(example.SPENDING, answer)) in readme

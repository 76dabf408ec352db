"""The example of embeddings: a search whose model is changed and changed back while it is asked."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from loaded_script import loaded
from running_stack import RunningStack

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1800),  # two conversions and a rollout
    # Of MLflow's own hints, once its flavour for pyfuncs is imported.
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning"),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "embeddings"


@pytest.fixture
def example() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLE))  # as where it is run as a program
    yield loaded(EXAMPLE / "change_model.py")
    sys.path.remove(str(EXAMPLE))


def test_no_search_meets_two_spaces_and_none_finds_less_than_before(
    stack: RunningStack, example: ModuleType
) -> None:
    def command(*words: str) -> str:
        done = stack.command(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    recalls = example.change_model(stack.gateways[0].url, stack.mlflow, command, 1000)
    old = [recall for part, recall in recalls.items() if "new" not in part]
    new = [recall for part, recall in recalls.items() if "new" in part]
    assert len(old) == 4
    assert len(new) == 2
    # Each is of other queries of the same kind.
    assert min(new) > max(old) - 0.05
    assert max(old) - min(old) < 0.2


def test_the_index_searches_as_its_model_in_faiss_does(example: ModuleType) -> None:
    random = np.random.default_rng(0)
    vectors, queries = (random.normal(size=(n, 8)).astype(np.float32) for n in (50, 3))
    index = sys.modules["search"].FlatIndex(8)
    for part in np.array_split(vectors, 3):
        index.add(part)
    products, found = index.search(queries, 5)
    assert index.ntotal == 50
    for query, values, ids in zip(queries, products, found, strict=True):
        wanted = sorted(range(50), key=lambda at: -float(vectors[at] @ query))[:5]
        assert ids.tolist() == wanted
        np.testing.assert_allclose(values, vectors[wanted] @ query, rtol=1e-5)

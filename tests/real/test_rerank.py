"""A query with 500 documents is 500 rows of a real Triton, among the rows of other callers."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
from loaded_script import loaded
from numpy.typing import NDArray
from own_servers import TritonProcess
from real_triton import OverTriton, brought
from served_models import asking, converted

from contracts.endpoint import EndpointLimits
from gateway.engine.protocol import Work
from gateway.engine.triton import TritonEngine
from gateway.packages import ServedModel
from registry.packages.store import PackageStore

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).parents[2] / "examples" / "tasks"
DOCUMENTS = 500
LIMITS = EndpointLimits(max_texts_per_request=DOCUMENTS, timeout_seconds=120.0)
AGREE = 1e-6  # the models add up whole rows of tables


class Counted(OverTriton):
    """Remembers what it was asked."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        self.works.append(work)
        return await super().infer(work, timeout_seconds)


@pytest.fixture
def example() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLE))  # as where it is run as a program
    yield loaded(EXAMPLE / "ask.py")
    sys.path.remove(str(EXAMPLE))


@pytest.fixture
async def engine(triton: TritonProcess) -> AsyncIterator[Counted]:
    real = TritonEngine(triton.grpc)
    yield Counted(real)
    await real.close()


@pytest.fixture
def models(example: ModuleType, tmp_path: Path) -> dict[str, ServedModel]:
    """A ranker and a finder of entities, by their names."""
    store = tmp_path / "store"
    return {
        name: converted(name, example.MODELS[name], tmp_path / name, store_folder=store)[0]
        for name in (example.RANKER, example.FINDER)
    }


def texts_of(words: tuple[str, ...], count: int, *, seed: int) -> list[str]:
    """Texts of 1 to 60 words; short ones are the most."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(words, k=max(1, int(60 * draw.random() ** 3)))) for _ in range(count)
    ]


async def scores_of(
    client: httpx.AsyncClient, model: str, query: str, documents: list[str]
) -> tuple[list[int], dict[int, float]]:
    """The places of the documents, best first, and the score of each."""
    body = {"model": model, "query": query, "documents": documents}
    answer = (await client.post("/v1/rerank", json=body, timeout=120)).raise_for_status().json()
    order = [each["index"] for each in answer["results"]]
    return order, {each["index"]: each["relevance_score"] for each in answer["results"]}


async def test_500_documents_are_batched_with_others_and_put_together_in_order(
    example: ModuleType,
    models: dict[str, ServedModel],
    engine: Counted,
    triton: TritonProcess,
    tmp_path: Path,
) -> None:
    store = PackageStore((tmp_path / "store").as_uri())
    await brought(tmp_path / "loader", store, triton, *(model.ref for model in models.values()))
    words = tuple(word for word in sys.modules["word_models"].WORDS if word.isalpha())
    documents = texts_of(words, DOCUMENTS, seed=1)
    others = [texts_of(words, 3, seed=seed) for seed in range(2, 42)]
    ranker, finder = example.RANKER, example.FINDER
    async with asking(models, engine, LIMITS) as (client, _):

        async def entities(texts: list[str]) -> Any:
            path = f"/endpoints/{finder}"
            answer = await client.post(path, json={"inputs": texts}, timeout=120)
            return answer.raise_for_status().json()

        many, *between = await asyncio.gather(
            scores_of(client, ranker, example.QUERY, documents),
            *(scores_of(client, ranker, texts[0], texts) for texts in others),
            *(entities(texts) for texts in others),
        )
        batches = list(engine.shapes)
        alone = [
            (await scores_of(client, ranker, example.QUERY, [each]))[1][0] for each in documents
        ]
        for texts, (_, scores) in zip(others, between[: len(others)], strict=True):
            for place, text in enumerate(texts):
                expected = (await scores_of(client, ranker, texts[0], [text]))[1][0]
                assert scores[place] == pytest.approx(expected, abs=AGREE)
        for texts, found in zip(others, between[len(others) :], strict=True):
            assert found == [(await entities([text]))[0] for text in texts]
    order, scores = many
    assert sorted(order) == list(range(DOCUMENTS))
    assert [scores[place] for place in range(DOCUMENTS)] == pytest.approx(alone, abs=AGREE)
    assert order == sorted(order, key=lambda place: (-scores[place], place))
    assert len(set(alone)) > 20  # a mistake of places would show
    # Each by its own length: without it, one batch of all would be as wide as the longest.
    rows, longest = sum(shape[0] for shape in batches), max(shape[1] for shape in batches)
    assert rows == DOCUMENTS + 6 * len(others)
    assert sum(shape[0] * shape[1] for shape in batches) < 0.7 * rows * longest

"""The packed engine on a GPU answers as on a CPU in fp32: by graphs or not, alone or joined."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

KINDS = (
    *("albert", "bert", "camembert", "distilbert", "electra", "eurobert", "gemma3_text"),
    *("modernbert", "nomic_bert", "roberta", "xlm-roberta"),
)
CLASSIFIER, TOKENS = "AutoModelForSequenceClassification", "AutoModelForTokenClassification"
EXACT = 1e-3  # of the largest value, between two devices in fp32
HALF = 2e-2  # of the largest value, between fp16 and fp32
SAME = 1e-3  # of a vector of length 1, between two runs in fp16
VOCABULARY, LONGEST = 60, 40  # of tests/support/tiny_encoders.py

Floats = NDArray[np.floating[Any]]


def rows_of(lengths: Sequence[int], seed: int = 0) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Random ids of rows of such lengths, and where they begin."""
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    ids = np.random.default_rng(seed).integers(VOCABULARY // 2, VOCABULARY, starts[-1])
    return ids.astype(np.int32), starts


def divided(tokens: int, rows: int) -> list[int]:
    """Lengths of so many rows that come to so many tokens."""
    return [tokens // rows + (number < tokens % rows) for number in range(rows)]


def apart(found: Floats, wanted: Floats) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def model_of(folder: Path, kind: str, loader: str, **told: object) -> Path:
    from tiny_encoders import write_encoder, write_told

    write_encoder(folder, kind, loader)
    write_told(folder, loader, **told)
    return folder


def embedder(folder: Path, engines: ModuleType, dtype: str, device: str) -> Any:
    from tiny_encoders import write_told

    told = {"modes": ["mean"], "normalise": True, "dtype": dtype}
    return engines.PackedEngine(folder, write_told(folder, "AutoModel", **told), device)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_answers_as_the_cpu_in_fp32(
    kind: str, folder: Path, engines: ModuleType, devices: ModuleType
) -> None:
    model_of(folder, kind, "AutoModel")
    ids, starts = rows_of([5, 1, LONGEST, 17, 8, 33])
    wanted = embedder(folder, engines, "fp32", "cpu").run(ids, starts)
    exact = embedder(folder, engines, "fp32", "cuda:0").run(ids, starts)
    assert apart(exact, wanted) < EXACT
    half = embedder(folder, engines, "fp16", "cuda:0")
    half.check()
    shape = devices.shape_for(starts, LONGEST)
    for buckets in ((), (shape,)):
        found = devices.OnGpu(half, buckets).begin(ids, starts, None).values()
        assert apart(found, wanted) < HALF


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "albert"])
@pytest.mark.parametrize("loader", [CLASSIFIER, TOKENS])
def test_heads_answer_as_on_the_cpu(
    kind: str, loader: str, folder: Path, engines: ModuleType, devices: ModuleType
) -> None:
    from tiny_encoders import write_told

    model_of(folder, kind, loader)
    rank = 2 if loader == CLASSIFIER else 3
    ids, starts = rows_of([9, 2, LONGEST, 21])
    told = write_told(folder, loader, rank=rank)
    wanted = engines.PackedEngine(folder, told, "cpu").run(ids, starts)
    told = write_told(folder, loader, rank=rank, dtype="fp16")
    runner = devices.OnGpu(engines.PackedEngine(folder, told, "cuda:0"), ())
    found = runner.begin(ids, starts, None).values()
    assert found.shape == wanted.shape
    assert apart(found, wanted) < 2 * HALF


@pytest.fixture(scope="module")
def half(
    tmp_path_factory: pytest.TempPathFactory, engines: ModuleType, devices: ModuleType
) -> tuple[Any, Any]:
    """A small model by its graphs, and without graphs."""
    folder = model_of(tmp_path_factory.mktemp("half") / "model", "bert", "AutoModel")
    engine = embedder(folder, engines, "fp16", "cuda:0")
    return devices.OnGpu(engine), devices.OnGpu(engine, ())


@pytest.mark.parametrize("bucket", [64, 96, 128, 1024, 4096, 16_384])
def test_graphs_answer_as_without_at_the_edges_of_their_buckets(
    bucket: int, half: tuple[Any, Any]
) -> None:
    from packed_files import packed

    by_graph, eager = half
    counts = (-(-bucket // 30), *packed("packed_buckets").row_buckets(bucket))
    for tokens, count in itertools.product((bucket - 1, bucket, bucket + 1), counts):
        for rows in (count - 1, count, count + 1):
            lengths = divided(tokens, rows)
            if not 1 <= min(lengths) <= max(lengths) <= LONGEST:
                continue
            ids, starts = rows_of(lengths, seed=rows)
            found = by_graph.begin(ids, starts, None).values()
            wanted = eager.begin(ids, starts, None).values()
            assert found.shape == wanted.shape == (rows, 32)
            assert np.abs(found - wanted).max() < SAME, (tokens, rows)


def test_most_runs_are_replayed_as_graphs(half: tuple[Any, Any], devices: ModuleType) -> None:
    by_graph, _ = half
    assert "left out" in by_graph.describe()
    assert not by_graph.describe().startswith("0 ")
    for tokens in (16, 64, 1000, 4096, 16_384):
        _, starts = rows_of(divided(tokens, -(-tokens // 30)))
        assert devices.shape_for(starts, LONGEST) is not None, tokens


def test_rows_answer_alike_alone_and_joined(half: tuple[Any, Any]) -> None:
    random = np.random.default_rng(3)
    for runner in half:
        for _ in range(20):
            lengths = random.integers(1, LONGEST + 1, random.integers(2, 200)).tolist()
            ids, starts = rows_of(lengths, seed=int(random.integers(1 << 30)))
            together = runner.begin(ids, starts, None).values()
            for row in random.choice(len(lengths), 5):
                own = ids[starts[row] : starts[row + 1]]
                ends = np.array([0, len(own)], np.int32)
                alone = runner.begin(own, ends, None).values()
                assert np.abs(alone[0] - together[row]).max() < SAME


def test_runs_that_overlap_keep_their_answers(half: tuple[Any, Any]) -> None:
    """The next run is begun, and replays the same graph, before the answers of one are read."""
    runner, eager = half
    asked = [rows_of([5, 7, 11], seed=seed) for seed in range(50)]
    waiting: list[Any] = []
    found = []
    for ids, starts in asked:
        waiting.append(runner.begin(ids, starts, None))
        if len(waiting) > 2:
            found.append(waiting.pop(0).values())
    found += [each.values() for each in waiting]
    for (ids, starts), answer in zip(asked, found, strict=True):
        wanted = eager.begin(ids, starts, None).values()
        assert np.abs(answer - wanted).max() < SAME


def test_a_run_tells_how_long_the_gpu_computed_and_the_tokens_that_filled_it_up(
    half: tuple[Any, Any],
) -> None:
    by_graph, eager = half
    ids, starts = rows_of([30] * 40)
    for runner, tokens in ((by_graph, 1536), (eager, 1200)):
        runs = [runner.begin(ids, starts, None) for _ in range(5)]
        for each in runs:
            each.values()
        assert {each.tokens for each in runs} == {tokens}
        assert all(each.seconds() > 0 for each in runs)

"""``triton/fixed_model``: answers as row by row, only in shapes that have run before."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import fixed_graphs
import numpy as np
import onnxruntime
import pytest
from fixed_graphs import IDS, MASK, OUTPUT, VOCABULARY, batch_of
from hypothesis import given
from hypothesis import strategies as st
from loaded_script import loaded
from numpy.typing import NDArray

from preprocess.buckets import fixed_shapes as shapes_of
from registry.packages.triton_files import triton_file

SHAPES = shapes_of((1, 2, 5), (3, 4, 8))
CPU = ["CPUExecutionProvider"]
ROWS = st.lists(
    st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=8), min_size=1, max_size=12
)


@pytest.fixture(scope="module")
def fixed() -> ModuleType:
    return fixed_graphs.fixed_shapes()


class SpyBinding:
    """A real binding that remembers the shapes of what is bound."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.inputs: dict[str, Any] = {}

    def bind_ortvalue_input(self, name: str, value: Any) -> None:
        self.inputs[name] = value
        self.real.bind_ortvalue_input(name, value)

    def bind_ortvalue_output(self, name: str, value: Any) -> None:
        self.real.bind_ortvalue_output(name, value)


class SpySession:
    """A real session that remembers what it ran. Any other way to run it does not exist here."""

    def __init__(self, real: onnxruntime.InferenceSession) -> None:
        self.real = real
        self.ran: list[tuple[int, ...]] = []
        self.masks: list[NDArray[np.int64]] = []

    def get_inputs(self) -> Any:
        return self.real.get_inputs()

    def io_binding(self) -> SpyBinding:
        return SpyBinding(self.real.io_binding())

    def run_with_iobinding(self, binding: SpyBinding, options: Any) -> None:
        (shape,) = {tuple(value.shape()) for value in binding.inputs.values()}
        self.ran.append(shape)
        self.masks.append(binding.inputs[MASK].numpy().copy())
        self.real.run_with_iobinding(binding.real, options)


class Graph:
    """The plain session and the one in fixed shapes, on the same graph."""

    def __init__(self, fixed: ModuleType, folder: Path, *, by_token: bool) -> None:
        path = fixed_graphs.write_attending(folder / "model.onnx", by_token=by_token)
        self.plain = onnxruntime.InferenceSession(str(path), providers=CPU)
        self.spy = SpySession(onnxruntime.InferenceSession(str(path), providers=CPU))
        self.by_token = by_token
        self.session = fixed.FixedShapes(self.spy, fixed_graphs.told(SHAPES, by_token=by_token))
        self.warmed = list(self.spy.ran)

    def answers(self, rows: Sequence[Sequence[int]], length: int | None = None) -> Any:
        (found,) = self.session.run([OUTPUT], batch_of(rows, length))
        return found

    def run_one_by_one(self, row: Sequence[int]) -> Any:
        (found,) = self.plain.run([OUTPUT], batch_of([row]))
        return found[0]


@pytest.fixture(scope="module", params=[False, True], ids=["vectors", "tokens"])
def graph(
    request: pytest.FixtureRequest, fixed: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Graph:
    return Graph(fixed, tmp_path_factory.mktemp("graph"), by_token=request.param)


@given(batches=st.lists(ROWS, min_size=1, max_size=4))
def test_batches_of_any_rows_and_lengths_answer_as_each_row_alone(
    graph: Graph, batches: list[list[list[int]]]
) -> None:
    found = [graph.answers(rows) for rows in batches]
    for rows, answers in zip(batches, found, strict=True):  # after all have run
        assert len(answers) == len(rows)
        for row, answer in zip(rows, answers, strict=True):
            part = answer[: len(row)] if graph.by_token else answer
            np.testing.assert_allclose(part, graph.run_one_by_one(row), atol=2e-5, rtol=1e-4)
        if graph.by_token:
            assert answers.shape[1] == max(map(len, rows))


@given(rows=ROWS)
def test_no_shape_reaches_the_session_that_was_not_warmed(
    graph: Graph, rows: list[list[int]]
) -> None:
    assert sorted(graph.warmed) == sorted(SHAPES)
    before = len(graph.spy.ran)
    graph.answers(rows)
    assert len(graph.spy.ran) - before == -(-len(rows) // 5)
    assert set(graph.spy.ran) == set(SHAPES)


def test_a_row_answers_the_same_bits_whatever_ran_in_its_shape_before(graph: Graph) -> None:
    first = graph.answers([[3, 4, 5]] * 3)
    graph.answers([[19, 18, 17], [16, 15, 14], [13, 12, 11], [10, 9, 8], [7, 6, 5]])
    np.testing.assert_array_equal(graph.answers([[3, 4, 5]] * 3), first)


def test_rows_that_fill_a_batch_up_look_at_one_token_and_none_is_seen_by_others(
    graph: Graph,
) -> None:
    graph.answers([[3, 4, 5], [6, 7], [8]])
    mask = graph.spy.masks[-1]
    assert mask.shape == (5, 3)
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert all(mask.any(axis=1).all() for mask in graph.spy.masks)


def test_rows_longer_than_every_shape_and_no_rows_are_refused(graph: Graph) -> None:
    with pytest.raises(ValueError, match="1 rows of 9 tokens; it takes rows of 8 at most"):
        graph.answers([[1]], length=9)
    with pytest.raises(ValueError, match="0 rows"):
        graph.session.run([OUTPUT], {name: np.zeros((0, 3), np.int64) for name in (IDS, MASK)})
    with pytest.raises(ValueError, match="and not logits"):
        graph.session.run(["logits"], batch_of([[1]]))


class FakeUtilities(ModuleType):
    """Triton's own module, as far as a model that is not asked anything needs it."""


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``fixed_model/model.py`` with what lies beside it."""
    name = "triton_python_backend_utils"
    monkeypatch.setitem(sys.modules, name, FakeUtilities(name))
    for beside, path in (
        ("python_model", triton_file("python_model")),
        ("fixed_shapes", triton_file("fixed_model", "fixed_shapes.py")),
    ):
        monkeypatch.setitem(sys.modules, beside, loaded(path))
    return loaded(triton_file("fixed_model"))


def test_the_model_opens_its_graph_warm_in_every_shape(model: ModuleType, tmp_path: Path) -> None:
    fixed_graphs.write_attending(tmp_path / "model.onnx")
    fixed_graphs.write_told(tmp_path, SHAPES)
    options = model.python_model.session_options(1)
    session = model.TritonPythonModel().open(tmp_path, options, CPU)
    assert sorted(session.shapes) == sorted(SHAPES)
    assert session.run([OUTPUT], batch_of([[1, 2]]))[0].shape == (1, fixed_graphs.WIDTH)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="this ONNX Runtime has CUDA",
)
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_gpu_that_was_promised_and_is_not_there_is_refused(
    model: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fixed_graphs.write_attending(tmp_path / "model.onnx")
    fixed_graphs.write_told(tmp_path, SHAPES)
    wanted = [("CUDAExecutionProvider", {"device_id": 0}), *CPU]
    options = model.python_model.session_options(1)
    with pytest.raises(RuntimeError, match="this Triton can't use a GPU"):
        model.TritonPythonModel().open(tmp_path, options, wanted)
    assert "no CUDA graphs of this model" in capfd.readouterr().err


def test_without_cuda_graphs_the_graph_is_opened_again_without_asking_for_them(
    fixed: ModuleType, tmp_path: Path
) -> None:
    fixed_graphs.write_told(tmp_path, SHAPES)
    asked: list[list[Any]] = []

    def open_session(wanted: list[Any]) -> Any:
        asked.append(wanted)
        raise RuntimeError(f"refused {len(asked)}")

    cuda = "CUDAExecutionProvider"
    with pytest.raises(RuntimeError, match="refused 2"):
        fixed.load(tmp_path, open_session, [(cuda, {"device_id": 1}), *CPU])
    assert asked == [
        [(cuda, {"device_id": 1, "enable_cuda_graph": "1"}), *CPU],
        [(cuda, {"device_id": 1}), *CPU],
    ]

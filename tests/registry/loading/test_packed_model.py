"""What Triton runs for a packed engine: a real small model, in this process and without Triton."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from packed_files import beside_each_other, packed
from tiny_encoders import VOCABULARY, starts_of, write_encoder, write_told
from waiting import until

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.export

NAMES = ("input_ids", "row_starts", "token_type_ids")
FINAL = 1


@dataclass
class Response:
    outputs: list[Any] = field(default_factory=list)
    error: str = ""


@dataclass
class Sender:
    """Of a request; what it was told to send."""

    cancelled: bool = False
    sent: list[tuple[Response, int]] = field(default_factory=list)

    def send(self, response: Response, flags: int) -> None:
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        return self.cancelled


@dataclass
class Request:
    tensors: dict[str, np.ndarray]
    sender: Sender = field(default_factory=Sender)

    def get_response_sender(self) -> Sender:
        return self.sender


class Family:
    """Counters that Triton keeps, by name and labels."""

    COUNTER = 0
    told: ClassVar[dict[tuple[str, str, str], float]] = {}
    refuses: ClassVar[bool] = False

    def __init__(self, name: str, description: str, kind: int) -> None:
        if self.refuses:
            raise RuntimeError("metrics are off")
        assert description
        assert kind == self.COUNTER
        self._name = name

    def Metric(self, labels: dict[str, str]) -> "TritonCounter":  # noqa: N802 - Triton's name
        return TritonCounter((self._name, labels["model"], labels["version"]))


@dataclass
class TritonCounter:
    key: tuple[str, str, str]

    def increment(self, value: float) -> None:
        Family.told[self.key] = Family.told.get(self.key, 0.0) + value


class Heartbeat:
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def check(self) -> None: ...


def backend() -> dict[str, ModuleType]:
    """What Triton and the other model's file have for it."""
    utils, beside = ModuleType("triton_python_backend_utils"), ModuleType("python_model")
    utils.__dict__.update(
        get_input_tensor_by_name=lambda request, name: request.tensors.get(name),
        InferenceResponse=Response,
        TritonError=str,
        MetricFamily=Family,
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=FINAL,
    )
    beside.__dict__.update(
        THREADS="threads", Heartbeat=Heartbeat, output=lambda name, array: (name, array)
    )
    return {utils.__name__: utils, beside.__name__: beside}


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    fakes = backend()
    with beside_each_other(**fakes):
        yield packed("model", **fakes)


def arguments(folder: Path, kind: str = "CPU") -> dict[str, str]:
    """What Triton says to an instance."""
    config = {"output": [{"name": "embedding"}], "parameters": {"threads": {"string_value": "1"}}}
    return {
        "model_config": json.dumps(config),
        "model_repository": str(folder),
        "model_version": "1",
        "model_name": "m",
        "model_instance_kind": kind,
        "model_instance_device_id": "0",
    }


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder of Triton's repository."""
    folder = tmp_path_factory.mktemp("repository")
    write_encoder(folder / "1", "bert", "AutoModel")
    write_told(folder / "1", "AutoModel", modes=["mean"])
    return folder


@pytest.fixture
def model(module: Any, placed: Path) -> Iterator[Any]:
    made = module.TritonPythonModel()
    made.initialize(arguments(placed))
    yield made
    made.finalize()


def request_of(rows: Sequence[Sequence[int]], *, typed: bool = False) -> Request:
    ids = np.array([token for row in rows for token in row], np.int32)
    starts = np.array(starts_of([len(row) for row in rows]), np.int32)
    types = {NAMES[2]: (ids % 2).astype(np.uint8)} if typed else {}
    return Request({NAMES[0]: ids, NAMES[1]: starts, **types})


def answered(request: Request) -> Response:
    """The one answer, once it is there."""
    until("it is answered", 60.0, lambda: request.sender.sent)
    ((response, flags),) = request.sender.sent
    assert flags == FINAL
    return response


def test_mixed_requests_get_the_answers_of_their_own_rows(model: Any, placed: Path) -> None:
    random = np.random.default_rng(0)
    requests = [
        request_of(
            [
                random.integers(5, VOCABULARY, random.integers(1, 30)).tolist()
                for _ in range(random.integers(1, 5))
            ],
            typed=bool(number % 2),
        )
        for number in range(40)
    ]
    for few in (requests[:3], requests[3:4], requests[4:]):
        assert model.execute(few) is None
    engine = packed("packed_engine").PackedEngine(placed / "1")
    for request in requests:
        ((name, values),) = answered(request).outputs
        assert name == "embedding"
        expected = engine.run(*(request.tensors.get(each) for each in NAMES))
        np.testing.assert_allclose(values, expected, atol=1e-5)


def test_a_request_that_can_not_be_run_fails_by_itself(model: Any) -> None:
    bad = request_of([[1, VOCABULARY]])
    unnamed = Request({NAMES[0]: np.array([1], np.int32)})
    good = request_of([[1, 2]])
    model.execute([bad, unnamed, good])
    assert answered(bad).error == f"engine: input_ids must be from 0 to {VOCABULARY - 1}"
    assert answered(unnamed).error == "engine: input_ids and row_starts are needed"
    assert answered(good).error == ""


def test_what_it_did_is_in_tritons_counters_of_this_model(module: Any, placed: Path) -> None:
    Family.told.clear()
    model = module.TritonPythonModel()
    model.initialize(arguments(placed))
    assert set(Family.told.values()) == {0.0}
    request = request_of([[1, 2], [3]])
    model.execute([request])
    answered(request)
    model.finalize()
    counted = {name: value for (name, _, _), value in Family.told.items()}
    assert counted.pop("headrace_packed_device_seconds_total") > 0
    assert {name: value for name, value in counted.items() if value} == {
        "headrace_packed_runs_total": 1,
        "headrace_packed_messages_total": 1,
        "headrace_packed_tokens_total": 3,
    }
    assert {key[1:] for key in Family.told} == {("m", "1")}


def test_it_answers_where_tritons_metrics_are_off(
    module: Any, placed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Family, "refuses", True)
    model = module.TritonPythonModel()
    model.initialize(arguments(placed))
    request = request_of([[1, 2]])
    model.execute([request])
    assert answered(request).error == ""
    model.finalize()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_model_that_was_promised_a_gpu_is_refused_without_one(module: Any, placed: Path) -> None:
    with pytest.raises(RuntimeError, match=r"promised a GPU and has none: torch .* CUDA"):
        module.TritonPythonModel().initialize(arguments(placed, kind="GPU"))

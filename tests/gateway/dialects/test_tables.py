"""Rows of tables through the whole gateway: what is answered, what is refused, what is recorded."""

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pytest
from gateway_world import FakeEngine, endpoint_of, manifest_of
from numpy.typing import NDArray
from pipeline_world import World
from served_models import asking
from tritonclient.grpc import service_pb2 as pb

from contracts.events import PredictionEvent
from contracts.features import ENGINE_FEATURES, Feature, FeatureKind
from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec
from gateway.dialects import oip_grpc
from gateway.engine.protocol import Work
from gateway.events.outbox import declared_by
from gateway.packages import ServedModel, open_package

FEATURES = (
    Feature(name="age", kind=FeatureKind.INTEGER, edges=(20, 40, 60)),
    Feature(name="income", kind=FeatureKind.NUMBER, nullable=True, edges=(0, 1000)),
    Feature(name="city", kind=FeatureKind.CATEGORY, categories=("Oslo", "Rome")),
    Feature(name="member", kind=FeatureKind.BOOLEAN),
)
ROW = {"age": 30, "income": 500.5, "city": "Rome", "member": True}
PREDICT, INFER = "/v1/models/table:predict", "/v2/models/table/infer"


def table_model(
    task: Task = Task.TABULAR_CLASSIFICATION, features: tuple[Feature, ...] = FEATURES
) -> ServedModel:
    """A package of a model of tables."""
    words = 2 * len(features)
    is_regression = task is Task.TABULAR_REGRESSION
    spec = TensorSpec(name=ENGINE_FEATURES, datatype=Datatype.FP64, shape=(-1, len(features)))
    manifest = manifest_of(buckets=(words,), task=task).model_copy(
        update={
            "labels": () if is_regression else ("no", "yes"),
            "dimension": 1 if is_regression else None,
            "features": features,
            "answers": (Feature(name="prediction", kind=FeatureKind.NUMBER, edges=(0, 100)),)
            if is_regression
            else (),
            "inputs": (spec,),
            "files": {},
        }
    )
    return open_package(manifest.ref(), manifest.canonical())


@dataclass
class TableEngine(FakeEngine):
    """Says yes by the age, or gives the age and the income."""

    regression: bool = False
    seen: list[NDArray[np.float64]] = field(default_factory=list)

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        rows = work.tensors[ENGINE_FEATURES]
        self.seen.append(rows)
        if self.regression:
            return rows[:, :1].astype(np.float32)
        yes = (rows[:, 0] / 100).astype(np.float32)
        return np.stack([1 - yes, yes], axis=1)


@dataclass
class Tables:
    """A gateway that serves an endpoint of tables."""

    client: httpx.AsyncClient
    world: World
    engine: TableEngine

    async def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        if isinstance(body, bytes):
            return await self.client.post(path, content=body, **more)
        return await self.client.post(path, json=body, **more)

    @property
    def event(self) -> PredictionEvent:
        return self.world.recorder.events[-1]


@asynccontextmanager
async def tables(model: ServedModel) -> AsyncIterator[Tables]:
    engine = TableEngine(regression=model.task is Task.TABULAR_REGRESSION)
    async with asking({"table": model}, engine) as (client, world):
        yield Tables(client, world, engine)


@pytest.fixture
async def gateway() -> AsyncIterator[Tables]:
    async with tables(table_model()) as made:
        yield made


async def test_rows_are_objects_or_arrays_in_the_models_order(gateway: Tables) -> None:
    answer = await gateway.post(PREDICT, {"instances": [ROW, [70, None, "Oslo", False]]})
    first, second = answer.json()["predictions"]
    assert (first["label"], second["label"]) == ("no", "yes")
    assert first["scores"]["yes"] == pytest.approx(0.3)
    assert second["score"] == pytest.approx(0.7)
    np.testing.assert_array_equal(
        np.concatenate(gateway.engine.seen), [[30, 500.5, 1, 1], [70, math.nan, 0, 0]]
    )


async def test_a_regression_answers_numbers_and_counts_them() -> None:
    async with tables(table_model(Task.TABULAR_REGRESSION)) as gateway:
        answer = await gateway.post(PREDICT, {"instances": [ROW]})
        assert answer.json() == {"predictions": [30.0]}
        assert gateway.event.observations["prediction"] == [30.0]
        tensor = {"name": "all", "shape": [1, 4], "datatype": "FP64", "data": [1, 2, 0, 1]}
        answer = await gateway.post(INFER, {"inputs": [tensor]})
        assert answer.status_code == 422  # a number is no category
        assert "'city'" in answer.text


async def test_an_event_has_the_features_buckets_in_no_rows_order_and_no_tokens(
    gateway: Tables,
) -> None:
    rows = [ROW, {**ROW, "income": None, "city": "Oslo", "age": 61}, {**ROW, "age": 7}]
    await gateway.post(PREDICT, {"instances": rows})
    event = gateway.event
    assert event.observations == {
        "age": [20.0, 40.0, pytest.approx(60)],
        "income": [1000.0, 1000.0, ""],
        "city": ["Oslo", "Rome", "Rome"],
        "member": ["true", "true", "true"],
    }
    assert float(event.observations["age"][-1]) > 60
    assert event.topics == b""
    assert [text.label for text in event.texts] == ["no", "yes", "no"]


async def test_inputs_of_the_open_inference_protocol_are_columns(gateway: Tables) -> None:
    inputs = [
        {"name": "city", "shape": [2, 1], "datatype": "BYTES", "data": [["Oslo"], ["Rome"]]},
        {"name": "age", "shape": [2], "datatype": "INT64", "data": [10, 90]},
        {"name": "member", "shape": [2], "datatype": "BOOL", "data": [True, False]},
    ]
    answer = await gateway.post(INFER, {"inputs": inputs})
    outputs = {each["name"]: each["data"] for each in answer.json()["outputs"]}
    assert outputs["LABEL"] == ["no", "yes"]
    assert outputs["SCORES"] == pytest.approx([0.9, 0.1, 0.1, 0.9])
    np.testing.assert_array_equal(
        np.concatenate(gateway.engine.seen), [[10, math.nan, 0, 1], [90, math.nan, 1, 0]]
    )


async def test_a_matrix_of_all_features_is_rows() -> None:
    numbers = (FEATURES[0], FEATURES[1])
    async with tables(table_model(features=numbers)) as gateway:
        values = np.array([[20, np.nan], [80, 7]], "<f8")
        described = {"name": "input-0", "shape": [2, 2], "datatype": "FP64",
                     "parameters": {"binary_data_size": values.nbytes}}  # fmt: skip
        header = json.dumps({"inputs": [described]}).encode()
        answer = await gateway.post(
            INFER,
            header + values.tobytes(),
            headers={"Inference-Header-Content-Length": str(len(header))},
        )
        assert answer.json()["outputs"][0]["data"] == ["no", "yes"]
        np.testing.assert_array_equal(np.concatenate(gateway.engine.seen), values)


async def test_metadata_names_the_features(gateway: Tables) -> None:
    found = (await gateway.client.get("/v2/models/table")).json()
    assert [(each["name"], each["datatype"]) for each in found["inputs"]] == [
        ("age", "INT64"), ("income", "FP64"), ("city", "BYTES"), ("member", "BOOL"),
    ]  # fmt: skip
    config = (await gateway.client.get("/v2/models/table/config")).json()
    assert [each["name"] for each in config["input"] if each.get("optional")] == ["income"]


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in ROW.items() if key != name}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (without("age"), "row 1, 'age': it is not there"),
        ({**ROW, "age": None}, "row 1, 'age': it is null or NaN"),
        ({**ROW, "age": "30"}, "row 1, 'age': expected an integer, got \"30\""),
        ({**ROW, "age": 30.5}, "row 1, 'age': expected an integer"),
        ({**ROW, "age": True}, "row 1, 'age': expected an integer, got true"),
        ({**ROW, "age": 2**60}, "row 1, 'age': expected an integer of at most 2^53"),
        ({**ROW, "income": [1]}, "row 1, 'income': expected a number, got an array"),
        ({**ROW, "income": 10**400}, "row 1, 'income': expected a number"),
        ({**ROW, "city": 3}, "row 1, 'city': expected a string, got 3"),
        ({**ROW, "city": "Bern"}, "row 1, 'city': the model does not know the category \"Bern\""),
        ({**ROW, "member": "yes"}, "row 1, 'member': expected true or false"),
        ({**ROW, "agee": 1}, "row 1, 'agee': the model has no such feature"),
        ([1, 2], "row 1: it has 2 values, and the model reads 4"),
        ("a text", 'row 1: expected an object or an array of features, got "a text"'),
        (7, "row 1: expected an object or an array"),
    ],
)
async def test_a_row_that_can_not_be_read_is_refused_by_its_place(
    gateway: Tables, row: Any, sentence: str
) -> None:
    answer = await gateway.post(PREDICT, {"instances": [ROW, row]})
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]["message"]
    assert gateway.engine.seen == []


def column(name: str, datatype: str, data: list[Any], shape: list[int] | None = None) -> Any:
    return {"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data}


@pytest.mark.parametrize(
    ("inputs", "status", "sentence"),
    [
        ([column("age", "BYTES", ["a"]), column("city", "BYTES", ["Oslo"])], 400,
         "age.datatype: the feature is of the kind integer, expected INT64"),
        ([column("city", "INT64", [1]), column("age", "INT64", [1])], 400, "city.datatype"),
        ([column("age", "INT64", [1]), column("agee", "INT64", [1])], 400,
         "there is no feature 'agee'; the model reads age"),
        ([column("age", "INT64", [1]), column("age", "INT64", [1])], 422, "age is there twice"),
        ([column("age", "INT64", [1]), column("income", "FP64", [1, 2])], 422, "age 1, income 2"),
        ([column("age", "INT64", [1], [1, 1, 1])], 400, "shape"),
        ([column("age", "INT64", [1], [3])], 422, "the shape says 3"),
        ([column("age", "INT64", [1])], 422, "'city': it is not there"),
        ([column("all", "FP64", [1, 2], [1, 2])], 422, "expected [N, 4]"),
        ([column("all", "FP99", [1, 2], [1, 2])], 400, "all.datatype: expected one of"),
    ],
)  # fmt: skip
async def test_inputs_that_are_no_rows_are_refused_with_the_reason(
    gateway: Tables, inputs: Any, status: int, sentence: str
) -> None:
    answer = await gateway.post(INFER, {"inputs": inputs})
    assert (answer.status_code, sentence in answer.text) == (status, True), answer.text


@pytest.mark.parametrize(
    ("name", "datatype", "value", "sentence"),
    [
        ("city", "BYTES", "Bern", "row 1, 'city': the model does not know the category \"Bern\""),
        ("age", "INT64", None, "'age'"),  # it is not nullable
        ("age", "INT64", 30.5, "age"),
        ("member", "BOOL", "yes", "member"),
    ],
)
async def test_a_column_is_refused_for_what_a_row_would_be(
    gateway: Tables, name: str, datatype: str, value: Any, sentence: str
) -> None:
    datatypes = {"age": "INT64", "income": "FP64", "city": "BYTES", "member": "BOOL"}
    good = [column(each, of, [ROW[each], ROW[each]]) for each, of in datatypes.items()]
    bad = [each for each in good if each["name"] != name]
    answer = await gateway.post(
        INFER, {"inputs": [*bad, column(name, datatype, [ROW[name], value])]}
    )
    assert answer.status_code in {400, 422}
    assert sentence in str(answer.json()["error"])
    assert gateway.engine.seen == []


async def test_an_infinite_number_is_no_missing_one(gateway: Tables) -> None:
    request = pb.ModelInferRequest(model_name="table")
    request.inputs.add(name="income", datatype="FP64", shape=[1])
    request.raw_input_contents.append(np.array([np.inf], "<f8").tobytes())
    view = gateway.world.endpoints.describe("table")
    with pytest.raises(Exception, match=r"income\[0\]: expected a finite number"):
        oip_grpc._rows(request, view)


async def test_columns_come_over_grpc_in_both_forms(gateway: Tables) -> None:
    view = gateway.world.endpoints.describe("table")
    typed, raw = (pb.ModelInferRequest(model_name="table") for _ in range(2))
    typed.inputs.add(name="age", datatype="INT64", shape=[2]).contents.int64_contents.extend([1, 2])
    typed.inputs.add(name="city", datatype="BYTES", shape=[2]).contents.bytes_contents.extend(
        [b"Oslo", b"Rome"]
    )
    raw.inputs.add(name="age", datatype="INT64", shape=[2])
    raw.inputs.add(name="city", datatype="BYTES", shape=[2])
    raw.raw_input_contents.extend(
        [np.array([1, 2], "<i8").tobytes(), b"\x04\0\0\0Oslo\x04\0\0\0Rome"]
    )
    rows = [{"age": 1, "city": "Oslo"}, {"age": 2, "city": "Rome"}]
    for request in (typed, raw):
        assert [json.loads(row) for row in oip_grpc._rows(request, view).texts] == rows


async def test_routes_for_texts_are_refused_at_an_endpoint_of_tables(gateway: Tables) -> None:
    answer = await gateway.post("/endpoints/table", {"inputs": json.dumps(ROW)})
    assert answer.status_code == 422
    assert "send rows of features, to /v1/models/table:predict" in answer.text


def test_versions_declare_features_under_the_buckets_of_stable() -> None:
    stable, candidate = table_model().manifest, table_model().manifest
    other = candidate.features[0].model_copy(update={"edges": (1.0,)})
    candidate = candidate.model_copy(update={"features": (other, *candidate.features[1:])})
    found = declared_by(endpoint_of(None, name="table"), [stable, candidate])
    assert [(each.name, each.kind) for each in found] == [
        ("age", "histogram"), ("income", "histogram"), ("city", "category"),
        ("member", "category"),
    ]  # fmt: skip
    assert found[0].edges == [20, 40, 60]


def test_the_difference_of_two_regressions_is_a_share() -> None:
    from preprocess.tasks import HEADS
    from preprocess.tasks.head import Side

    head = HEADS[Task.TABULAR_REGRESSION]
    one = Side(np.array([[10.0], [0.0], [-2.0]], np.float32), ())
    other = Side(np.array([[5.0], [0.0], [2.0]], np.float32), ())
    assert head.difference(one, other).distance.tolist() == [0.5, 0.0, 1.0]

"""Models of tables on their whole way: logged, converted, loaded by a real Triton, and asked."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from own_servers import TritonProcess

pytest.importorskip("skl2onnx", reason="needs the extra tables")
pytest.importorskip("xgboost", reason="needs the extra tables")

from real_triton import OverTriton, brought
from served_models import asking, converted
from table_models import classifier, logged, people, tensors_of

from gateway.engine.triton import TritonEngine
from registry.packages.store import PackageStore

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]  # MLflow's own


@pytest.fixture
async def engine(triton: TritonProcess) -> AsyncIterator[OverTriton]:
    real = TritonEngine(triton.grpc)
    yield OverTriton(real)
    await real.close()


async def test_a_classifier_of_scikit_learn_answers_rows_through_a_real_triton(
    tmp_path: Path, triton: TritonProcess, engine: OverTriton
) -> None:
    original, frame = classifier()
    stored = tmp_path / "store"
    model, _ = converted("table", logged(original, frame), tmp_path / "v", store_folder=stored)
    await brought(tmp_path, PackageStore(stored.as_uri()), triton, model.ref)
    rows = people(200, seed=11)
    async with asking({"table": model}, engine) as (client, world):
        body = {"instances": rows.to_dict("records")}
        answer = (await client.post("/v1/models/table:predict", json=body)).raise_for_status()
        body = {"inputs": tensors_of(rows)}
        tensors = await client.post("/v2/models/table/infer", json=body)
        event = world.recorder.events[0]
    expected = original.predict_proba(rows)
    found = [list(each["scores"].values()) for each in answer.json()["predictions"]]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    outputs = {each["name"]: each["data"] for each in tensors.raise_for_status().json()["outputs"]}
    np.testing.assert_allclose(outputs["SCORES"], expected.ravel(), atol=1e-5)
    assert outputs["LABEL"] == original.predict(rows).tolist()
    assert event.observations["city"] == sorted(rows["city"])
    assert len(event.observations["age"]) == 200

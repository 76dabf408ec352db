"""The example's pyfunc becomes a package, and answers as its README shows."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("skl2onnx", reason="needs the extra tables")

from gateway_world import FakeEngine
from loaded_script import loaded
from numpy.typing import NDArray
from pyfunc_models import worker_of
from served_models import asked, converted

from contracts.features import ENGINE_FEATURES
from contracts.manifest import PYFUNC
from contracts.tasks import Task
from gateway.engine.protocol import Work
from registry.pyfunc.process import PyfuncLimits, PyfuncProcess

pytestmark = [
    pytest.mark.real,  # installs packages from an index
    pytest.mark.timeout(3600),  # its packages are installed, and pandas is imported three times
    pytest.mark.filterwarnings("ignore"),  # MLflow's own
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "pyfunc"
LIMITS = PyfuncLimits(call_seconds=120.0, start_seconds=600.0)


@dataclass
class Asks(FakeEngine):
    """Asks the package's process."""

    process: PyfuncProcess | None = None

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        assert self.process is not None
        return self.process.answers(work.tensors[ENGINE_FEATURES]).values((), 1)


async def test_parcels_are_answered_as_the_rules_and_the_readme_say(tmp_path: Path) -> None:
    example = loaded(EXAMPLE / "delivery.py")
    model, graph = converted(example.NAME, example.save, tmp_path, pyfunc=LIMITS)
    assert model.task is Task.TABULAR_REGRESSION
    process = worker_of(graph.with_name(PYFUNC), model.manifest, tmp_path / "opened", LIMITS)
    try:
        process.start()
        path = f"/v1/models/{example.NAME}:predict"
        body = {"instances": example.PARCELS}
        answer = await asked(model, graph, example.NAME, path, body, engine=Asks(process=process))
    finally:
        process.close()
    sys.modules.pop("rules", None)
    rules = loaded(EXAMPLE / "rules.py")
    expected = rules.Delivery().predict(None, pd.DataFrame(example.PARCELS))
    assert answer["predictions"] == expected.tolist()
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert "\n".join(example.shown(answer)) in readme

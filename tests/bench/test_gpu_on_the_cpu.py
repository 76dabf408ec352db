"""The run on a GPU, taken on the CPU in a small size: every step of it but the device itself.

It makes the model's packages and the ensemble's environment first, where the cache lacks them.
"""

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from bench.gpu.grid import grid
from bench.gpu.paths import GATEWAYS, SMALL_CALLERS
from bench.peers.comparison import Likeness
from bench.peers.entrants import ENSEMBLE, HEADRACE

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(7200)]

PRECISIONS = ("fp32", "fp16", "int8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command writes, all precisions in one call as on a GPU."""
    kept = tmp_path_factory.mktemp("gpu") / "gpu.json"
    words = ["gpu", "--device", "cpu", "--small", "--precision", *PRECISIONS, "--json", str(kept)]
    command = [sys.executable, "-P", "-m", "bench", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "**On the CPU, not on a GPU**" in done.stdout
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def test_the_engine_is_recorded_and_asked_for_every_shape(run: dict[str, Any]) -> None:
    assert (run["device"], run["gpu"]) == ("cpu", None)
    assert [each["precision"] for each in run["found"]] == list(PRECISIONS)
    for found in run["found"]:
        told = {"ONNX Runtime", "providers", "Triton", "backend", "instances"}
        assert found["versions"].keys() == told
        assert [(each["rows"], each["tokens"]) for each in found["points"]] == grid(small=True)


def test_one_and_two_gateways_and_the_ensemble_answer_as_the_original_does(
    run: dict[str, Any],
) -> None:
    for found in run["found"]:
        paths = found["paths"]
        assert Counter((each["who"], each["gateways"], each["texts"]) for each in paths) == Counter(
            (who, gateways, texts)
            for who in (HEADRACE, ENSEMBLE)
            for gateways in GATEWAYS[:2]
            for texts in SMALL_CALLERS
        )
        for who in (HEADRACE, ENSEMBLE):
            assert Likeness(**found["likeness"][who]).right
            rounds = [one for each in paths if each["who"] == who for one in each["rounds"]]
            assert any(one["texts_per_second"] > 0 for one in rounds)
            assert any(one["busy"] > 0 for one in rounds)  # Triton's own count is found

"""The run on a GPU, taken on the CPU in a small size: every step of it but the device itself.

It makes the model's packages and the engine's environment first, where the cache lacks them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import caller
from bench.gpu.found import ENSEMBLE, LARGE, PACKED, PADDED, Load, Run, read
from bench.gpu.loads import BASE64, BINARY, GRPC, JSON, OF_ENSEMBLE

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(7200)]

STEPS = ("headrace", "alone", "ensemble", "large", "padded")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What the command writes, all steps in one call as on a GPU."""
    folder = tmp_path_factory.mktemp("gpu")
    kept = folder / "gpu.json"
    command = [
        sys.executable, "-P", "-m", "bench.gpu", "--device", "cpu", "--small", "--steps", *STEPS,
        "--budget", "5000", "--stretch", "10", "--results", str(folder / "results"),
        "--json", str(kept),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "on the CPU, not on a GPU" in done.stdout
    (found,) = read(kept).runs
    assert found.gpu is None
    assert {part.step: part.failed for part in found.parts} == dict.fromkeys(STEPS, "")
    return found


def of(run: Run, engine: str) -> list[Load]:
    return [each for each in run.loads if each.engine == engine]


def test_every_form_is_answered_by_one_gateway_and_by_two(run: Run) -> None:
    packed = of(run, PACKED)
    assert {each.form for each in packed} == {JSON, BASE64, BINARY, GRPC}
    assert {each.gateways for each in packed} == {1, 2}
    for engine, forms in ((PADDED, {JSON}), (ENSEMBLE, {OF_ENSEMBLE}), (LARGE, {BASE64, JSON})):
        assert {each.form for each in of(run, engine)} == forms
    rounds = [one for each in run.loads for one in each.rounds]
    assert all(one.failed == 0 for one in rounds)
    assert all(one.texts_per_second > 0 for one in rounds)
    assert all(one.gpu_busy is None for one in rounds)


def test_engines_answer_as_the_original_does(run: Run) -> None:
    found = {each.engine: each.least_cosine for each in run.likeness}
    assert found.keys() == {PACKED, PADDED, ENSEMBLE}
    assert min(found.values()) > 0.999


def test_a_lone_caller_is_measured_by_every_way(run: Run) -> None:
    for engine in (PACKED, PADDED):
        found = {(each.way, each.tokens) for each in run.callers if each.engine == engine}
        ways = (caller.HTTP, caller.GRPC, caller.ENGINE)
        assert found == {(way, tokens) for way in ways for tokens in caller.TOKENS}


def test_the_engine_alone_is_measured_and_one_of_another_size(run: Run) -> None:
    assert {each.engine for each in run.alone} == {PACKED, LARGE}
    assert all(each.milliseconds > 0 for each in run.alone)


def test_what_each_step_found_is_kept_by_itself(run: Run, tmp_path: Path) -> None:
    for part in run.parts:
        part.keep(tmp_path)
    assert {file.stem for file in tmp_path.rglob("*.json")} == set(STEPS)

"""How the embedded Triton is started. That it runs is shown in tests/real."""

import os
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from own_servers import answers

from contracts import telemetry_off
from contracts.loading import CONTROL_KEY
from headrace.errors import MachineError
from headrace.stack import install, triton
from headrace.stack.triton import TritonFiles, TritonServer

FILES = TritonFiles(Path("/cache/triton"))


def test_it_listens_on_the_loopback_alone_at_the_given_ports(tmp_path: Path) -> None:
    words = triton.command(FILES, TritonServer(tmp_path, 1, 2, 3))
    assert words[0] == "/cache/triton/pytriton/tritonserver/bin/tritonserver"
    for name, port in (("http", 1), ("grpc", 2), ("metrics", 3)):
        assert f"--{name}-address=127.0.0.1" in words
        assert f"--{name}-port={port}" in words


def test_models_are_loaded_by_the_api_alone_and_nothing_is_guessed(tmp_path: Path) -> None:
    words = triton.command(FILES, TritonServer(tmp_path))
    assert "--model-control-mode=explicit" in words
    assert "--disable-auto-complete-config" in words


def test_a_key_is_made_once_for_its_owner_alone_and_restricts_what_strangers_may(
    tmp_path: Path,
) -> None:
    file = tmp_path / "triton" / "control-key"
    key = triton.control_key(file)
    assert triton.control_key(file) == key
    assert len(bytes.fromhex(key)) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    words = triton.command(FILES, TritonServer(tmp_path, control_key=key))
    for flag in ("--grpc-restricted-protocol", "--http-restricted-api"):
        (said,) = (word for word in words if word.startswith(flag))
        assert said.endswith(f":{CONTROL_KEY}={key}")
    assert key not in repr(TritonServer(tmp_path, control_key=key))


def test_its_own_libraries_and_this_interpreter_come_first() -> None:
    base = {"PATH": "/bin", "LD_LIBRARY_PATH": "/mine", "KEPT": "yes"}
    made = triton.environment(FILES, base)
    libraries = made["LD_LIBRARY_PATH"].split(os.pathsep)
    assert libraries[0] == "/cache/triton/nvidia_pytriton.libs"
    assert libraries[-1] == "/mine"
    assert "" not in libraries
    first, last = made["PATH"].split(os.pathsep)
    assert (Path(first) / "python3").exists()
    assert last == "/bin"
    assert made["KEPT"] == "yes"


def test_no_model_of_it_tells_its_maker_or_writes_below_the_home_folder() -> None:
    assert telemetry_off.VARIABLES.items() <= triton.environment(FILES, {}).items()


@pytest.mark.parametrize("on", [False, True])
def test_a_gpu_is_measured_if_the_machine_has_one(tmp_path: Path, on: bool) -> None:
    words = triton.command(FILES, TritonServer(tmp_path, gpu_metrics=on))
    assert f"--allow-gpu-metrics={str(on).lower()}" in words


def test_its_python_has_this_ones_packages_first_and_those_of_a_folder_once_it_is_there(
    tmp_path: Path,
) -> None:
    further = tmp_path / "further"
    for _ in range(2):  # at each start
        python = triton.python_with(tmp_path / "python", further)
    made = triton.environment(FILES, {"PATH": "/bin"}, python)
    assert made["PATH"].split(os.pathsep) == [str(python), "/bin"]

    def path() -> list[str]:
        found = subprocess.run(
            [python / "python3", "-c", "import numpy, sys; print(chr(10).join(sys.path))"],
            check=True,
            capture_output=True,
            text=True,
        )
        return found.stdout.split()

    assert str(further) not in path()
    further.mkdir()
    own = next(line for line in path() if line == str(Path(np.__file__).parents[1]))
    assert path().index(own) < path().index(str(further))


def test_only_this_servers_stale_shared_memory_is_removed(tmp_path: Path) -> None:
    mine, other = TritonServer(tmp_path, grpc_port=59991), TritonServer(tmp_path, grpc_port=59992)
    regions = [triton.SHARED_MEMORY / f"{s.shared_memory_prefix}test" for s in (mine, other)]
    for region in regions:
        region.touch()
    try:
        triton.remove_leftovers(mine)
        assert [region.exists() for region in regions] == [False, True]
    finally:
        regions[1].unlink()


def test_a_wheel_without_a_stub_for_this_python_is_refused(
    tmp_path: Path,
) -> None:
    lock = install.lock_file("triton")
    name = f"triton-{install.digest(lock)}-py{triton.PYTHON}"
    (tmp_path / name / "pytriton" / "tritonserver").mkdir(parents=True)
    if triton.missing():
        pytest.skip("this machine can't run the embedded Triton")
    with pytest.raises(MachineError, match="no Python backend for Python"):
        triton.prepare(tmp_path, lambda _: None)


def test_a_server_that_is_not_there_does_not_answer(tmp_path: Path) -> None:
    assert not answers(triton.readiness_url(TritonServer(tmp_path, http_port=9)))


def test_a_python_that_the_stub_cannot_use_is_told_beforehand() -> None:
    assert triton.stub_finds_modules((3, 11), ["math", "sys"])
    assert triton.stub_finds_modules((3, 13), ["sys"])
    assert not triton.stub_finds_modules((3, 13), ["math", "sys"])

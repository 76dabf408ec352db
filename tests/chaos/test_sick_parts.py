"""The program in the place of Triton's becomes Triton, with a proxy before it for as long."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import psutil
from own_ports import own_ports
from sick_parts import made
from waiting import until

from headrace.stack.triton import TritonFiles

SAYS_AND_WAITS = '#!/bin/sh\necho "$@" > "$SAID.part"\nmv "$SAID.part" "$SAID"\nexec sleep 600\n'


def fake_triton(cache: Path) -> TritonFiles:
    """One that writes down its flags."""
    files = TritonFiles(cache / "triton-abc")
    files.binary.parent.mkdir(parents=True)
    files.binary.write_text(SAYS_AND_WAITS)
    files.binary.chmod(0o755)
    (files.root / "backends").mkdir()
    (cache / "kafka.json").write_text("{}")
    return files


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_it_becomes_triton_behind_a_proxy_that_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    told, real = own_ports(2)
    parts, said = tmp_path / "parts", tmp_path / "said"
    wards = made(fake_triton(tmp_path / "cache"), parts, {"triton-2": real})
    assert wards.keys() == {"triton-2"}
    assert (parts / "kafka.json").read_text() == "{}"
    files = TritonFiles(parts / "triton-abc")
    assert (files.root / "backends").is_dir()
    process = subprocess.Popen(
        [files.binary, "--model-repository=/home/triton-2/model-repository",
         f"--grpc-port={told}", "--http-port=1"],
        env={**os.environ, "SAID": str(said)},
    )  # fmt: skip
    try:
        until("Triton has started", 60, said.exists)
        assert said.read_text().split()[1:] == [f"--grpc-port={real}", "--http-port=1"]
        until("the proxy listens", 60, lambda: listens(told))
        (proxy,) = psutil.Process(process.pid).children()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until("the proxy has ended", 60, lambda: not proxy.is_running())
    assert not listens(told)


def test_a_triton_without_a_proxy_is_started_as_told(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    parts, said = tmp_path / "parts", tmp_path / "said"
    made(fake_triton(tmp_path / "cache"), parts, {"triton-2": 1})
    process = subprocess.Popen(
        [TritonFiles(parts / "triton-abc").binary, "--grpc-port=7",
         "--model-repository=/home/triton/model-repository"],
        env={**os.environ, "SAID": str(said)},
    )  # fmt: skip
    try:
        until("Triton has started", 60, said.exists)
        assert "--grpc-port=7" in said.read_text().split()
    finally:
        process.kill()
        process.wait()

"""A conversion talks to the tracking server and to nobody else, and writes nothing at home."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fake_mlflow import FakeMlflow
from network_calls import addresses, traced
from tiny_models import write_onnx_version

from registry.conversions.messages import ConversionRequest, PublishedPackage, result_of

pytestmark = [
    pytest.mark.real,  # starts processes
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]


def test_a_conversion_talks_to_the_tracking_server_alone_and_leaves_the_home_as_it_is(
    fake: FakeMlflow, tmp_path: Path
) -> None:
    write_onnx_version(fake.root / "v")
    fake.register("tiny", "mlflow-artifacts:/v")
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    request = ConversionRequest.model_validate(
        {
            "tracking_uri": fake.uri,
            "model": "tiny",
            "version": "1",
            "store_url": (tmp_path / "store").as_uri(),
            "serving": {},
            "work_dir": str(work),
        }
    )
    asked, result, record = tmp_path / "request.json", tmp_path / "result.json", tmp_path / "calls"
    asked.write_text(request.model_dump_json())
    program = [sys.executable, "-P", "-m", "registry.convert", str(asked), str(result)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    subprocess.run(
        traced(program, record), check=True, capture_output=True, timeout=180, env=environment
    )
    assert isinstance(result_of(result.read_bytes()), PublishedPackage)
    assert addresses(record) == {("127.0.0.1", urlsplit(fake.uri).port)}
    assert list(home.rglob("*")) == []

"""The unmodified kubectl runs the plugin, and asks it what may follow on a line."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_api_server import real_api_server

from contracts.endpoint import API_VERSION, KIND
from service.cluster import endpoints

pytestmark = [pytest.mark.cluster]


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace with an endpoint ``tone``."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")
    with real_api_server() as ours:
        item = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "tone"}}
        ours.client.create(endpoints.collection(ours.namespace), {**item, "spec": {"model": "m"}})
        yield ours.namespace


def kubectl(*words: str) -> list[str]:
    """What kubectl prints, with the programs beside this interpreter on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path}
    said = subprocess.run(
        ["kubectl", *words], capture_output=True, text=True, check=True, timeout=300, env=env
    )
    return said.stdout.split()


def test_kubectl_runs_the_plugin(namespace: str) -> None:
    assert kubectl("headrace", "get", "-n", namespace, "-o", "name") == [
        "modelendpoint.headrace.dev/tone"
    ]


def test_kubectl_completes_commands_and_names_of_endpoints(namespace: str) -> None:
    assert kubectl("__complete", "headrace", "rollout", "promo") == ["promote", ":0"]
    assert kubectl("__complete", "headrace", "get", "-n", namespace, "") == ["tone", ":0"]
    assert kubectl("__complete", "headrace", "get", "-n", namespace, "x") == [":0"]

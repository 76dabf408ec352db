"""The process with its endpoints in a cluster: it follows them, and goes on while they are away."""

import asyncio
from pathlib import Path

import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes, write_kubeconfig
from gateway_process import Running, gateway_at, lay_out
from gateway_world import endpoint_of, text_of

from contracts.endpoint import ModelEndpoint
from service.cluster import endpoints

pytestmark = pytest.mark.real  # starts processes

PATH = endpoints.collection(NAMESPACE).path
FLAG = f"--endpoints=kubernetes://{NAMESPACE}"


def resource(endpoint: ModelEndpoint) -> dict[str, object]:
    document = endpoint.model_dump(mode="json", by_alias=True)
    return {**document, "metadata": {"name": endpoint.name}}


async def answered_by(running: Running) -> str:
    answer = await running.http.post("/endpoints/sentiment", json={"inputs": text_of(3)})
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-headrace-version"])


async def test_it_follows_the_cluster_and_goes_on_without_its_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = lay_out(tmp_path, "1", "2")
    with fake_kubernetes() as fake:
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, fake.server)))
        fake.write(PATH, resource(endpoint_of(one)))
        async with gateway_at(tmp_path, FLAG) as running, asyncio.timeout(120):
            assert await answered_by(running) == "1"
            fake.go_away()
            assert await answered_by(running) == "1"
            assert (await running.operations.get("/readyz")).status_code == 200
            fake.write(PATH, resource(endpoint_of(two)))
            fake.come_back()
            while await answered_by(running) != "2":
                assert running.process.returncode is None

"""A second version of an embedding model: no caller gets its vectors before the cutover."""

import json
import time
from collections.abc import Callable, Sequence

import httpx
import pytest
from chaos.embedder import ENDPOINT, TEXTS, register_embedder
from rolling_stack import watched
from running_stack import TIMEOUT_SECONDS, RunningStack
from traffic import Reply, Traffic, Way
from waiting import until

from registry.stores.endpoints import FileEndpointStore

pytestmark = [
    pytest.mark.real,
    # Of MLflow's own hints, once its flavour for pyfuncs is imported.
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning"),
]

EMBEDDER = f"""
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {{name: {ENDPOINT}}}
spec:
  model: {ENDPOINT}
  limits: {{timeoutSeconds: {TIMEOUT_SECONDS}}}
  rollout:
    bake: 1h
    checks:
      errorRate: {{pass: {{absolute: 0.3, relative: 2}}}}
      latency: null
      outputShift: null
      drift: null
"""


def all_of(version: str, gateways: int) -> Callable[[Sequence[Reply]], bool]:
    """Whether every gateway answers with a version, of the newest replies."""

    def enough(replies: Sequence[Reply]) -> bool:
        newest = {reply.gateway: reply.version for reply in replies}
        return len(newest) == gateways and set(newest.values()) == {version}

    return enough


def versions_from_now_on(load: Traffic) -> set[str]:
    """Of the answers to what is sent from now on: what was on its way before may come late."""
    now = time.monotonic()
    return {reply.version for reply in load.more(100) if reply.sent >= now}


def test_no_caller_gets_another_space_before_the_cutover_and_all_get_it_then(
    stack: RunningStack,
) -> None:
    register_embedder(stack.mlflow)
    stack.apply(EMBEDDER)
    stack.until_all_serve(ENDPOINT)
    ways = [Way(each, ENDPOINT, "openai") for each in stack.gateways]
    with Traffic(ways, TEXTS, callers=8, pause_seconds=0.05) as load, watched(stack, ENDPOINT):
        load.more(50)
        register_embedder(stack.mlflow, seed=1)
        until("it waits for its cutover", 600, lambda: waits(stack), every_seconds=1.0)
        assert "no caller before the cutover" in stack.command("rollout", "status", ENDPOINT).stdout
        load.more(100)
        assert {reply.version for reply in load.replies} == {"1"}
        # A backfill asks for it by name.
        for gateway in stack.gateways:
            assert asked_by_name(gateway.url, "2") == "2"
        done = stack.command("rollout", "promote", ENDPOINT, "--full")
        assert done.returncode == 0, done.stdout + done.stderr
        load.until("every gateway has cut over", 60, all_of("2", len(ways)))
        assert versions_from_now_on(load) == {"2"}
        assert stack.command("rollout", "undo", ENDPOINT).returncode == 0
        load.until("every gateway is back", 60, all_of("1", len(ways)))
        assert versions_from_now_on(load) == {"1"}
    assert set(load.statuses()) == {200}, load.statuses()


def waits(stack: RunningStack) -> bool:
    stored = FileEndpointStore(stack.home / "endpoints").get(ENDPOINT)
    candidate = None if stored is None else stored.status.candidate
    return candidate is not None and "cutover" in candidate.reason


def asked_by_name(url: str, version: str) -> str:
    """The version that answers a caller who names one."""
    body = {"model": ENDPOINT, "input": list(TEXTS[:2])}
    headers = {"x-headrace-version": version, "content-type": "application/json"}
    answer = httpx.post(
        f"{url}/v1/embeddings", content=json.dumps(body), headers=headers, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["x-headrace-version"]

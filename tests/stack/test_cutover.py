"""A second version of an embedding model: no caller gets its vectors before the cutover."""

import json
import time
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import httpx
import pytest
from chaos.embedder import ENDPOINT, TEXTS, register_embedder
from rolling_stack import watched
from running_stack import TIMEOUT_SECONDS, RunningStack
from tiny_models import WORDS
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
        assert answered(stack, "next") == {"2"}  # a backfill asks for it
        old, new = (each["space"] for each in spaces(stack))
        done = stack.command("space", "cutover", ENDPOINT)
        assert done.returncode == 0, done.stdout + done.stderr
        load.until("every gateway has cut over", 60, all_of("2", len(ways)))
        assert versions_from_now_on(load) == {"2"}
        assert (answered(stack, old), answered(stack, new)) == ({"1"}, {"2"})
        assert stack.command("space", "undo", ENDPOINT).returncode == 0
        load.until("every gateway is back", 60, all_of("1", len(ways)))
        assert versions_from_now_on(load) == {"1"}
        # An index that has moved keeps its space, whatever the others get.
        assert (answered(stack, old), answered(stack, new)) == ({"1"}, {"2"})
        assert [each["space"] for each in spaces(stack)] == [old, new]
        assert spaces(stack)[1]["leaves_at"] > time.time() + 6 * 86400
    assert set(load.statuses()) == {200}, load.statuses()


def waits(stack: RunningStack) -> bool:
    stored = FileEndpointStore(stack.home / "endpoints").get(ENDPOINT)
    candidate = None if stored is None else stored.status.candidate
    return candidate is not None and "cutover" in candidate.reason


def spaces(stack: RunningStack) -> list[dict[str, Any]]:
    """The vector spaces that the endpoint holds, the current one first."""
    found: list[dict[str, Any]] = json.loads(
        stack.command("space", "status", ENDPOINT, "-o", "json").stdout
    )
    return found


def answered(stack: RunningStack, space: str) -> set[str]:
    """The versions that answer a caller who names a space, of every gateway."""
    body = {"model": ENDPOINT, "input": list(TEXTS[:2])}
    versions = set()
    for gateway in stack.gateways:
        headers = {"x-headrace-space": space}
        answer = httpx.post(
            f"{gateway.url}/v1/embeddings", json=body, headers=headers, timeout=60, trust_env=False
        )
        assert answer.status_code == 200, answer.text
        versions.add(answer.headers["x-headrace-version"])
    return versions


@pytest.mark.timeout(1500)
def test_a_version_that_lies_of_its_space_is_refused_in_shadow_and_its_twin_gets_callers(
    stack: RunningStack,
) -> None:
    if FileEndpointStore(stack.home / "endpoints").get(ENDPOINT) is None:
        register_embedder(stack.mlflow)
    stack.apply(EMBEDDER)
    stack.until_all_serve(ENDPOINT)
    ways = [Way(each, ENDPOINT, "openai") for each in stack.gateways]
    many = [" ".join(each) for each in permutations(WORDS[:9], 3)]
    # A busy gateway copies nothing to a shadow.
    with Traffic(ways, many, callers=4, pause_seconds=0.05) as load, watched(stack, ENDPOINT):
        load.more(50)
        assert set(load.statuses()) == {200}, load.statuses()
        (before,) = {reply.version for reply in load.replies}
        liar = register_embedder(stack.mlflow, seed=7, tags={"headrace.space": "same"})
        try:
            until("the lie is found", 600, lambda: told(stack, liar) != "", every_seconds=1.0)
        except AssertionError:
            print(stack.command("rollout", "status", ENDPOINT).stdout)
            raise
        assert {reply.version for reply in load.replies} == {before}
        assert "sameSpace: vectors alike" in told(stack, liar)
        twin = register_embedder(stack.mlflow)  # its digest proves it
        load.until(
            "the twin has callers", 600, lambda new: twin in {reply.version for reply in new}
        )
        assert {reply.version for reply in load.replies} == {before, twin}
    assert set(load.statuses()) == {200}, load.statuses()


def told(stack: RunningStack, version: str) -> str:
    """Why a version was rolled back; empty as long as it was not."""
    stored = FileEndpointStore(stack.home / "endpoints").get(ENDPOINT)
    rejected = () if stored is None else stored.status.rejected
    return next((each.reason for each in rejected if each.version == version), "")

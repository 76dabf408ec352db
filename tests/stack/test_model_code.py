"""A version that brings code of its own, registered with plain MLflow, on a whole local stack."""

import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_walk import walked
from prometheus_client.parser import text_string_to_metric_families
from running_stack import RunningStack
from waiting import until

pytestmark = pytest.mark.real

HERE = "tests/stack/test_model_code.py"
ENDPOINT = "support-desk"
ASKING = "Great cinema, but I want my money back."


def ask(gateway: str, text: str) -> httpx.Response:
    body = {"inputs": text, "parameters": {"top_k": None}}
    return httpx.post(f"{gateway}/endpoints/{ENDPOINT}", json=body, timeout=60)


def answered(gateway: str, text: str) -> Any:
    """An answer, however often the half second of a call is too short for a busy machine."""

    def good() -> httpx.Response | None:
        answer = ask(gateway, text)
        return answer if answer.status_code == 200 else None

    return until("it is answered", 120, good).json()


def one_each(stack: RunningStack) -> list[int]:
    """The processes that run versions' code, if there are as many as gateways."""
    found = workers(stack)
    return found if len(found) == len(stack.gateways) else []


def workers(stack: RunningStack) -> list[int]:
    """The processes that run versions' code for all gateways."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        home = str(stack.home).encode()
        if b"preprocess.model_code.worker" in words and any(home in word for word in words):
            found.append(int(process.name))
    return found


def starts(operations: str) -> float:
    families = text_string_to_metric_families(httpx.get(f"{operations}/metrics", timeout=60).text)
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "headrace_gateway_model_code_starts_total"
        and sample.labels["endpoint"] == ENDPOINT
    )


def test_a_version_registered_by_plain_mlflow_is_answered_through_its_code(
    stack: RunningStack, tmp_path: Path
) -> None:
    with walked("examples/preprocessor/README.md", HERE, stack, tmp_path) as page:
        registers, asks = page.snippets
        page.take(registers)
        stack.until_answers(ENDPOINT, 300)
        assert '"negative"' in page.take(asks)
    for gateway in stack.gateways:
        assert answered(gateway.url, ASKING)[0] == {"label": "negative", "score": 1.0}
        assert answered(gateway.url, "A lovely film.")[0]["label"] == "positive"
    running = until("each gateway has a worker", 120, lambda: one_each(stack))
    before = {each.name: starts(each.operations_url) for each in stack.gateways}
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    for gateway in stack.gateways:
        until(
            f"{gateway.name} has started the code anew",
            120,
            lambda gateway=gateway: starts(gateway.operations_url) > before[gateway.name],  # type: ignore[misc]
        )
        until(
            f"{gateway.name} answers through it",
            120,
            lambda gateway=gateway: ask(gateway.url, ASKING).status_code == 200,  # type: ignore[misc]
        )
    stored = stack.command("get", ENDPOINT)
    assert stored.returncode == 0, stored.stderr

"""Vectors of the next space beside callers of the old one, by a command that is killed.

The next ones have another dimension, and their end is the cutover.
"""

import json
import signal
import subprocess
from collections.abc import Sequence
from typing import Any, cast

import httpx
import pytest
from chaos.embedder import TEXTS, register_embedder
from running_stack import HEADRACE, TIMEOUT_SECONDS, RunningStack
from traffic import Reply, Traffic, Way
from waiting import until

from headrace.backfill.files import read_vectors
from registry.stores.endpoints import FileEndpointStore

pytestmark = [
    pytest.mark.real,
    # Of MLflow's own hints, once its flavour for pyfuncs is imported.
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning"),
]

ENDPOINT = "backfilled"
YAML = f"""
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {{name: {ENDPOINT}}}
spec:
  model: {ENDPOINT}
  limits: {{timeoutSeconds: {TIMEOUT_SECONDS}}}
  rollout:
    embedding: {{cutover: backfill}}
    checks:
      errorRate: {{pass: {{absolute: 0.3, relative: 2}}}}
      latency: null
      outputShift: null
      drift: null
"""
ROWS = 10_000  # of which the first 4096 are a part


def test_a_backfill_of_the_next_space_is_killed_and_goes_on(stack: RunningStack) -> None:
    register_embedder(stack.mlflow, name=ENDPOINT)
    stack.apply(YAML)
    stack.until_all_serve(ENDPOINT)
    register_embedder(stack.mlflow, seed=1, name=ENDPOINT, width=24)
    folder = stack.home.parent
    texts, output = folder / "texts.jsonl", folder / "vectors.parquet"
    rows = [(f"d{i}", f"{TEXTS[i % len(TEXTS)]} {TEXTS[i // 7 % len(TEXTS)]}") for i in range(ROWS)]
    texts.write_text("".join(json.dumps({"id": key, "text": text}) + "\n" for key, text in rows))
    line = ("backfill", ENDPOINT, "--space", "next", "--input", str(texts), "--output", str(output))
    ways = [Way(each, ENDPOINT, "openai") for each in stack.gateways]
    with Traffic(ways, TEXTS, callers=2, pause_seconds=0.05) as load:
        load.more(50)
        until("it waits for its cutover", 600, lambda: waits(stack), every_seconds=1.0)
        killed = subprocess.Popen([HEADRACE, *line], env=stack.env)
        first = folder / "vectors.parquet.parts" / "part-00000000.parquet"
        until("a part is there", 300, first.exists, every_seconds=0.05)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert not output.exists()
        done = stack.command(*line, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        load.until("every gateway has cut over", 60, is_cut_over)
    assert set(load.statuses()) == {200}, load.statuses()
    assert [*versions(load.replies)] == ["1", "2"]
    summary = json.loads(done.stdout)
    assert summary["next"].startswith("Cut over: ")
    shown = json.loads(stack.command("space", "status", ENDPOINT, "--json").stdout)
    assert f"{ROWS:,} of {ROWS:,} texts re-embedded in " in shown[0]["who"]
    assert str(output) in shown[0]["who"]
    found = list(read_vectors(output))
    assert [key for key, _ in found] == [key for key, _ in rows]
    url = f"{stack.gateways[-1].url}/v1/embeddings"
    for version, is_it in (("2", True), ("1", False)):
        said = httpx.post(
            url,
            json={"model": ENDPOINT, "input": [text for _, text in rows[::500]]},
            headers={"x-headrace-version": version},
            timeout=TIMEOUT_SECONDS,
        )
        assert (said.headers["x-headrace-space"] == summary["space"]) is is_it
        vectors = [each["embedding"] for each in said.json()["data"]]
        same = [
            len(one) == len(cast("Any", kept))
            and all(abs(a - b) < 1e-3 for a, b in zip(one, cast("Any", kept), strict=True))
            for one, (_, kept) in zip(vectors, found[::500], strict=True)
        ]
        assert set(same) == {is_it}, version


def versions(replies: Sequence[Reply]) -> dict[str, None]:
    """In the order in which their requests were sent."""
    return dict.fromkeys(each.version for each in sorted(replies, key=lambda each: each.sent))


def is_cut_over(replies: Sequence[Reply]) -> bool:
    """Whether every gateway's newest answer is the second version's."""
    return {*{each.gateway: each.version for each in replies}.values()} == {"2"}


def waits(stack: RunningStack) -> bool:
    stored = FileEndpointStore(stack.home / "endpoints").get(ENDPOINT)
    candidate = None if stored is None else stored.status.candidate
    return candidate is not None and "cutover" in candidate.reason

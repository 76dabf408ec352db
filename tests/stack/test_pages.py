"""What pages tell newcomers to type, typed on the stack as it stands there."""

from pathlib import Path

import httpx
import pytest
from page_walk import walked
from real_prometheus import RealPrometheus, program
from rolling_stack import spec
from running_stack import EXAMPLE_ENDPOINT, PATIENT, RunningStack
from waiting import until

from registry.stores.endpoints import FileEndpointStore

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

HERE = "tests/stack/test_pages.py"
ROLLOUT_SECONDS = 900.0  # conversion included, on a machine with much else to do


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "docs/clients.md",
        "docs/feedback.md",
        "docs/endpoints.md",
        "docs/folding.md",
    ],
)
def test_a_page_is_walked(path: str, stack: RunningStack, tmp_path: Path) -> None:
    with walked(path, HERE, stack, tmp_path) as page:
        assert page.walk()


def test_the_pages_about_rollouts_are_walked_through_one(
    stack: RunningStack, tmp_path: Path
) -> None:
    with walked("docs/first-hour.md", HERE, stack, tmp_path) as hour:
        number = hour.walk().partition("Registered version ")[2].split()[0]
        until("it rolls out", ROLLOUT_SECONDS, lambda: _candidate(stack) == number)
        said = tmp_path / "watch.out"
        until("the watch shows it", 300, lambda: f"version {number} against" in said.read_text())
        for path in ("docs/rollout.md", "docs/little-traffic.md"):
            with walked(path, HERE, stack, tmp_path) as page:
                assert page.walk()
        promoted = stack.command("rollout", "promote", EXAMPLE_ENDPOINT, "--full")
        assert promoted.returncode == 0, promoted.stderr
        with walked("docs/gate-in-ci.md", HERE, stack, tmp_path) as gate:
            (waits,) = gate.snippets
            assert "--version 2 " in waits.text
            gate.run(waits.text.replace("--version 2 ", f"--version {number} "), waits)
        stack.apply(spec())  # with a bake of seconds: the next test's version need not wait
        until("the bake is over", ROLLOUT_SECONDS, lambda: _candidate(stack) is None)
    stack.apply(PATIENT)


def test_a_prometheus_that_is_started_as_the_page_says_scrapes_every_part(
    stack: RunningStack, tmp_path: Path
) -> None:
    program("prometheus")
    with walked("docs/dashboards.md", HERE, stack, tmp_path) as page:
        (starts,) = page.snippets
        command = starts.text.replace("/tmp/headrace-prometheus", str(tmp_path / "data"))
        with page.going_on(command.replace("\\\n", " ").strip()):
            prometheus = RealPrometheus(f"http://127.0.0.1:{page.port(9095)}")
            until("every part is scraped", 300, lambda: _healths(prometheus) == ["up"] * 6)
            assert {rule["health"] for rule in prometheus.rules()} <= {"ok", "unknown"}


def _healths(prometheus: RealPrometheus) -> list[str]:
    """Of every target; nothing where it does not answer yet."""
    try:
        if httpx.get(f"{prometheus.url}/-/ready", timeout=60).status_code != 200:
            return []
        return [health for _, health in prometheus.scraped()]
    except httpx.TransportError:
        return []


def _candidate(stack: RunningStack) -> str | None:
    """The version that rolls out, or whose bake is on."""
    stored = FileEndpointStore(stack.home / "endpoints").get(EXAMPLE_ENDPOINT)
    rollout = None if stored is None else stored.status.rollout
    return None if rollout is None else rollout.candidate.version

"""Every query of every panel, asked of a real Prometheus that scrapes a real stack.

One scenario, once: a version that fails is rolled back, a better one is promoted, callers tell the
truth, the texts change their language, requests are refused, and Triton is killed. Then each query
must have given data in the form that its panel reads. What a small stack can't cause is exposed by
the same code from synthetic counts (``synthetic_metrics.py``), and only that.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import rolling_stack
import synthetic_metrics
from dashboard_panels import (
    FREE,
    RATE_SECONDS,
    STEP_SECONDS,
    TARGETS,
    VARIABLES,
    Seen,
    must_be_in_form,
)
from own_ports import own_ports
from real_prometheus import program, real_prometheus
from running_stack import EXAMPLE_ENDPOINT, RunningStack, running_stack
from waiting import until

from contracts.endpoint import Phase
from dashboards.__main__ import GENERATED
from headrace.errors import RequestFailedError
from registry.stores.endpoints import FileEndpointStore

TEXTS = Path(__file__).parents[2] / "examples" / "sentiment" / "texts"
ERRORS_ALONE = """
      errorRate: {}
      latency: null
      classShare: null
      outputShift: null
      drift: null
"""
PROMISE = """\
  slo:
    latency: {percentile: 99, threshold: 5ms}
"""
ROLLOUT_SECONDS = 1200.0  # conversion included, on a machine with much else to do
OTHER_LANGUAGE = "Фильм был скучным, но актриса хороша."

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    program("prometheus")  # before minutes are spent
    home = tmp_path_factory.mktemp("dashboards")
    with ExitStack() as cleanup:
        stack = cleanup.enter_context(running_stack(home / "home", "--window-seconds", "2"))
        (synthetic,) = own_ports(1)
        cleanup.enter_context(synthetic_metrics.served(synthetic))
        jobs = {
            "gateway": stack.ports["gateway-operations"],
            "evaluate": stack.ports["stats"],
            "controller": stack.ports["controller-metrics"],
            "fold": stack.ports["fold-metrics"],
            "loader": stack.ports["loader-metrics"],
            "triton": stack.ports["triton-metrics"],
            "synthetic": synthetic,
        }
        rules = GENERATED / "rules.yaml"
        prometheus = cleanup.enter_context(real_prometheus(home / "prometheus", jobs, rules))
        until(
            "everything is scraped",
            60,
            lambda: set(prometheus.targets().values()) == {"up"},
        )
        began = time.time()
        _play(stack, home)
        packages = prometheus.label_values("package", "headrace_version_info")
        values = {
            **dict.fromkeys(FREE, ".*"),
            "package": "|".join(packages),
            "__rate_interval": RATE_SECONDS,
            "__range": "15m",
        }
        yield Seen(prometheus, began, time.time(), STEP_SECONDS, values)


def _play(stack: RunningStack, home: Path) -> None:
    """Everything that the panels should have seen."""
    stack.until_answers(EXAMPLE_ENDPOINT)
    texts = (TEXTS / "replay.txt").read_text(encoding="utf-8").splitlines()
    with rolling_stack.traffic(stack, texts):
        stack.apply(rolling_stack.spec("{weight: 50}", checks=ERRORS_ALONE) + PROMISE)
        failing = rolling_stack.register(stack, "failing")
        _until_ended(stack, failing, Phase.ROLLED_BACK)
        stack.apply(rolling_stack.spec() + PROMISE)
        better = rolling_stack.register(stack, "better")
        _until_ended(stack, better, Phase.SETTLED)
    _tell_truths(stack)
    _change_the_texts(stack, home)
    _ask_too_much(stack)
    with stack.without("triton"):
        _replay(stack, TEXTS / "replay.txt", seconds=5, status=RequestFailedError.exit_status)
    stack.until_answers(EXAMPLE_ENDPOINT, 120)
    _replay(stack, TEXTS / "replay.txt", seconds=25)


def _until_ended(stack: RunningStack, version: str, phase: Phase) -> None:
    def is_there() -> bool:
        stored = FileEndpointStore(stack.home / "endpoints").get(EXAMPLE_ENDPOINT)
        history = () if stored is None else stored.status.history
        return any((line.version, line.phase) == (version, phase) for line in history)

    until(f"version {version} is {phase}", ROLLOUT_SECONDS, is_there)


def _tell_truths(stack: RunningStack) -> None:
    _replay(stack, TEXTS / "held_out.jsonl", "--feedback", seconds=25)


def _change_the_texts(stack: RunningStack, home: Path) -> None:
    path = home / "other_language.txt"
    path.write_text(f"{OTHER_LANGUAGE}\n" * 50, encoding="utf-8")
    _replay(stack, path, seconds=40)


def _ask_too_much(stack: RunningStack) -> None:
    url = f"{stack.gateway}/endpoints/{EXAMPLE_ENDPOINT}"
    for _ in range(5):
        assert httpx.post(url, json={"inputs": ["fine"] * 300}, timeout=60).status_code == 413


def _replay(stack: RunningStack, texts: Path, *flags: str, seconds: int, status: int = 0) -> None:
    pace = ("--rate", "25", "--callers", "20", "--duration", f"{seconds}s")
    done = stack.command("replay", str(texts), "--endpoint", EXAMPLE_ENDPOINT, *pace, *flags)
    assert done.returncode == status, done.stderr


@pytest.mark.parametrize("name", TARGETS)
def test_a_query_gives_data_in_its_panels_form(name: str, seen: Seen) -> None:
    must_be_in_form(TARGETS[name], seen.ask(TARGETS[name]))


@pytest.mark.parametrize(("dashboard", "name", "query"), VARIABLES, ids=str)
def test_a_variable_offers_values(dashboard: str, name: str, query: str, seen: Seen) -> None:
    assert seen.offered(query)


def test_what_was_done_to_the_stack_is_what_the_panels_show(seen: Seen) -> None:
    """Data alone could be zeros: each cause must be seen in the panel that is there for it."""

    def most(dashboard: str, title: str, **labels: str) -> float:
        return max(seen.shown(dashboard, title, **labels))

    assert most("rollout", "Weights", arm="canary") == 0.5
    assert most("rollout", "Weights", arm="shadow") == 1
    assert most("rollout", "Phases entered", phase="RolledBack") > 0.9
    assert most("rollout", "Phases entered", phase="Settled") > 0.9
    assert min(seen.shown("rollout", "Checks and verdicts", check="errorRate")) == -1
    assert most("rollout", "Errors", arm="canary") > 0
    assert most("rollout", "Second attempts") > 0
    assert most("rollout", "Equal labels") > 0.9
    assert most("rollout", "Wrong by feedback") > 0
    assert most("drift", "UNK share of tokens") > 0.1
    assert most("drift", "Effect size (PSI)") > 0.2
    assert most("drift", "Accuracy: estimated and measured") > 0.5
    assert most("endpoints", "Refusals", reason="too_large") > 0
    assert most("endpoints", "Error share") > 0
    assert most("endpoints", "Refusals", reason="model_unavailable") > 0
    assert most("endpoints", "Errors: how fast the budget goes") > 0
    assert most("endpoints", "Latency: how fast the budget goes") > 0
    assert min(seen.shown("endpoints", "Latency budget left")) < 1


def test_prometheus_evaluates_every_rule_without_an_error(seen: Seen) -> None:
    found = seen.prometheus.rules()
    assert [(rule["name"], rule["lastError"]) for rule in found if rule["health"] != "ok"] == []
    for rule in found:
        if rule["type"] == "recording":
            assert seen.prometheus.over(rule["name"], seen.began, seen.ended, seen.step)

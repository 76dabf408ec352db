"""Every query of every panel, asked of a real Prometheus that scrapes made-up counts.

Quick, and needs no stack: it holds queries to PromQL, joins to their labels, and answers to the
form that their panel reads. That a stack gives such data is ``test_on_the_stack.py``'s claim.
"""

import time
from collections.abc import Iterator

import grafana_panels
import made_up_metrics
import pytest
from made_up_world import BEGINS_AT_SCRAPE, Everything
from own_ports import own_ports
from panel_answers import TARGETS, Seen, must_be_in_form
from real_prometheus import SCRAPE_SECONDS, real_prometheus
from running_stack import until

from dashboards.__main__ import GENERATED

pytestmark = pytest.mark.real

SCRAPES = BEGINS_AT_SCRAPE + 4


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    (port,) = own_ports(1)
    home = tmp_path_factory.mktemp("made_up") / "prometheus"
    with (
        made_up_metrics.served(port, Everything()),
        real_prometheus(home, {"made_up": port}, GENERATED / "rules.yaml") as prometheus,
    ):
        began = time.time()

        def has_scraped_enough() -> bool:
            scrapes = prometheus.now('sum_over_time(up{job="made_up"}[10m])')
            return bool(scrapes) and scrapes[0].samples[0][1] >= SCRAPES

        until("Prometheus has scraped some times", 90, has_scraped_enough)
        window = f"{4 * SCRAPE_SECONDS}s"
        values = dict.fromkeys(("endpoint", "version", "arm", "label", "own", "lambda"), ".*")
        values |= {"package": "[0-9a-f]{12}", "__rate_interval": window, "__range": "10m"}
        yield Seen(prometheus, began, time.time(), SCRAPE_SECONDS, values)


@pytest.mark.parametrize("name", TARGETS)
def test_a_query_gives_data_in_its_panels_form(name: str, seen: Seen) -> None:
    must_be_in_form(TARGETS[name], seen.ask(TARGETS[name]))


@pytest.mark.parametrize(("dashboard", "name", "query"), list(grafana_panels.variables()), ids=str)
def test_a_variable_offers_values(dashboard: str, name: str, query: str, seen: Seen) -> None:
    assert seen.offered(query)


def test_prometheus_evaluates_every_rule_without_an_error(seen: Seen) -> None:
    def known() -> bool:
        return all(rule["health"] != "unknown" for rule in seen.prometheus.rules())

    until("every rule was evaluated", 90, known)
    rules = seen.prometheus.rules()
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []

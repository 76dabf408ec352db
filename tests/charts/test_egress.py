"""Where each component may go: to what it asks, and to no other part or port outside."""

from typing import Any

import pytest
from helm_chart import LIGHT, Manifest, manifests

DNS, API = {53}, {443, 6443}
KAFKA, MLFLOW, STORE, TRITON, TRACES, BATCHES = 9092, 5000, 9000, 8001, 4317, 9100
MLFLOW_ALONE = f'mlflow.url="http://mlflow.example.com:{MLFLOW}"'
OUTSIDE = (
    f'kafka.bootstrapServers=["a.example.com:{KAFKA}", "b.example.com:{KAFKA}"]',
    MLFLOW_ALONE,
    f'packages.storeUrl="http://store.example.com:{STORE}/packages"',
    f'triton.addresses=["triton.example.com:{TRITON}"]',
    f'gateway.traces.endpoint="http://collector.example.com:{TRACES}"',
    f'gateway.batches.url="http://batches.example.com:{BATCHES}"',
)
PORTS = {
    "gateway": {*API, KAFKA, STORE, TRITON, TRACES, BATCHES},
    "controller": {*API, KAFKA, MLFLOW, STORE},
    "conversion": {MLFLOW, STORE},
    "loader-0": {*API, STORE, TRITON},
    "evaluate": {*API, KAFKA, STORE},
    "fold": {KAFKA},
}


def egress(*settings: str) -> dict[str, list[dict[str, Any]]]:
    """The rules for ways out, by component."""

    def component(policy: Manifest) -> str:
        return str(policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"])

    found = manifests("", *LIGHT, *settings)
    return {
        component(each): each["spec"]["egress"]
        for each in found
        if each["kind"] == "NetworkPolicy"
    }  # fmt: skip


def outside(*settings: str) -> dict[str, set[int]]:
    """The ports that each may reach anywhere, but for DNS."""
    return {
        name: {port["port"] for rule in rules if "to" not in rule for port in rule["ports"]} - DNS
        for name, rules in egress(*settings).items()
    }


def inside(*settings: str) -> dict[str, set[str]]:
    """The parts of the release that each may reach."""
    return {
        name: {
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in rules
            for peer in rule.get("to", [])
            if "podSelector" in peer
        }
        for name, rules in egress(*settings).items()
    }


def test_each_reaches_the_ports_outside_of_what_it_asks_and_no_others() -> None:
    assert outside(*OUTSIDE) == PORTS


def test_a_release_with_everything_inside_goes_out_for_the_api_server_alone() -> None:
    found = outside()
    asks = {"gateway", "controller", "triton", "evaluate"}
    assert {name for name, ports in found.items() if ports == API} == asks
    assert {name for name, ports in found.items() if not ports} == found.keys() - asks
    parts = inside()
    assert parts["conversion"] == {"mlflow"}
    assert parts["fold"] == {"kafka"}
    assert parts["gateway"] == {"triton", "kafka", "mlflow", "gateway"}
    assert parts["controller"] == parts["evaluate"] == {"kafka", "mlflow"}


def test_readers_of_packages_reach_mlflow_only_where_these_lie_in_it() -> None:
    readers = ("gateway", "triton", "evaluate")
    own = inside('packages.storeUrl="s3://bucket/headrace"')
    assert all("mlflow" not in own[name] for name in readers)
    assert all("mlflow" in own[name] for name in ("controller", "conversion"))
    assert all(MLFLOW in outside(MLFLOW_ALONE)[name] for name in readers)


@pytest.mark.parametrize(
    ("setting", "ports"),
    [
        ('packages.storeUrl="s3://bucket:a/headrace"', {443}),
        ('packages.storeUrl="file:///packages"', set()),
        ('packages.storeUrl="http://store.example.com/a:1/packages"', {80}),
        ('mlflow.sources=["s3://models/mlflow", "http://files:8080/models"]', {443, 8080}),
        ('mlflow.url="https://mlflow.example.com"', {443}),
        ('mlflow.url="http://[fd00::12]:5000"', {5000}),
        ('mlflow.url="http://[fd00::12]"', {80}),
        ("networkPolicy.externalPorts=[8443]", {8443}),
        ('triton.pyfunc.enabled=true', {443}),
    ],
)  # fmt: skip
def test_the_ports_of_a_conversion_follow_from_addresses(setting: str, ports: set[int]) -> None:
    """Never Kafka's. The API server's 443 is open if something that it asks has that port."""
    kafka = f'kafka.bootstrapServers=["a.example.com:{KAFKA}"]'
    assert outside(setting, kafka)["conversion"] == ports


@pytest.mark.parametrize(
    ("settings", "asks"),
    [
        (
            ['packages.storeUrl="s3://bucket/headrace"'],
            {"gateway", "controller", "conversion", "triton", "evaluate"},
        ),
        (['mlflow.sources=["s3://models/mlflow"]'], {"controller", "conversion"}),
        (['gateway.batches.url="s3://bucket/batches"'], {"gateway"}),
        (['packages.storeUrl="gs://bucket/headrace"'], set()),
        ([], set()),
    ],
)
def test_who_asks_s3_reaches_what_hands_out_roles_on_its_node(
    settings: list[str], asks: set[str]
) -> None:
    """The agent of EKS Pod Identity: its addresses alone, whatever else may be reached."""
    agent = {
        "to": [{"ipBlock": {"cidr": cidr}} for cidr in ("169.254.170.23/32", "fd00:ec2::23/128")],
        "ports": [{"port": 80, "protocol": "TCP"}],
    }
    for more in ("networkPolicy.external=[]", 'networkPolicy.external=["10.0.0.0/8"]'):
        found = egress(*settings, more)
        assert {name for name, rules in found.items() if agent in rules} == asks

"""The chart among others: their Kafka, Prometheus, Gateways, network, accounts and authorities."""

import json
from typing import Any

import pytest
import yaml
from helm_chart import CHART, LIGHT, OPERATOR, SPACE, Manifest, manifests, one, pod_specs, refusal

MONITORS = (*OPERATOR, "monitoring.coreos.com/v1/PodMonitor")
TRITONS = 'triton.addresses=["a.example.com:8001", "b.example.com:8001"]'
ROUTES = (
    "gateway.gatewayApi.enabled=true",
    'gateway.gatewayApi.parentRefs=[{"name": "edge"}]',
    'gateway.gatewayApi.hostnames=["models.example.com"]',
)


def light(*settings: str, apis: tuple[str, ...] = ()) -> list[Manifest]:
    return manifests("", *LIGHT, *settings, apis=apis)


def containers(found: list[Manifest]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for _, _, spec in pod_specs(found) for each in spec["containers"]}


def args(found: list[Manifest], name: str) -> list[str]:
    return list(containers(found)[name]["args"])


# Prometheus


def scraped(*settings: str) -> list[Manifest]:
    found = light(TRITONS, *settings, apis=MONITORS) + light(*settings, apis=MONITORS)
    return [
        target
        for each in found
        if each["kind"] in ("ServiceMonitor", "PodMonitor")
        for target in each["spec"].get("endpoints", each["spec"].get("podMetricsEndpoints", []))
    ]


def test_the_operators_label_endpoint_does_not_take_the_place_of_ours() -> None:
    drop = {"action": "labeldrop", "regex": "endpoint"}
    found = scraped()
    assert found
    assert all(target["relabelings"][-1] == drop for target in found)


def test_series_can_be_left_out_wherever_they_are_scraped() -> None:
    name = "headrace_gateway_stage_seconds_bucket"
    drop = {"action": "drop", "sourceLabels": ["__name__", "stage"], "regex": f"{name};queue"}
    found = scraped(f"monitoring.serviceMonitors.metricRelabelings={json.dumps([drop])}")
    assert found
    assert all(target["metricRelabelings"] == [drop] for target in found)
    assert not any("metricRelabelings" in target for target in scraped())


def test_loaders_of_the_users_own_tritons_are_scraped() -> None:
    monitor = one(light(TRITONS, apis=MONITORS), "PodMonitor", "-loaders")
    (chosen,) = monitor["spec"]["selector"]["matchExpressions"]
    assert chosen["values"] == ["loader-0", "loader-1"]


def test_another_releases_parts_are_neither_watched_nor_stand_in_for_those_that_are_away() -> None:
    rule = one(light(apis=OPERATOR), "PrometheusRule", "")
    packed = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    for group, original in zip(rule["spec"]["groups"], packed["groups"], strict=True):
        for ours, theirs in zip(group["rules"], original["rules"], strict=True):
            here = f'namespace="{SPACE}"'
            assert ours == {**theirs, "expr": ours["expr"]}
            assert ours["expr"].count(here) == theirs["expr"].count("@scope@") > 0


# Kafka


def test_every_part_reads_and_writes_the_topics_of_the_prefix() -> None:
    found = light('kafka.topicPrefix="shop"')
    assert "--predictions-topic=shop.predictions" in args(found, "gateway")
    fold = {"--predictions-topic=shop.predictions", "--windows-topic=shop.windows"}
    assert {*fold, "--group=shop.fold"} <= set(args(found, "fold"))
    for reader in ("evaluate", "controller"):
        assert "--windows-topic=shop.windows" in args(found, reader)


# The network


def outside(*settings: str) -> dict[str, Any]:
    """What a gateway may reach outside of the chart."""
    rules = one(light(*settings), "NetworkPolicy", "-gateway")["spec"]["egress"]
    (rule,) = (each for each in rules if {"port": 6443, "protocol": "TCP"} in each["ports"])
    return dict(rule)


def ports(rule: dict[str, Any]) -> set[int]:
    return {each["port"] for each in rule["ports"]}


def test_by_default_pods_and_nodes_are_reached_too() -> None:
    """0.0.0.0/0 does not match those with every network plugin."""
    assert "to" not in outside()
    assert ports(outside()) == {443, 6443}


def test_a_further_port_takes_none_away() -> None:
    assert ports(outside("networkPolicy.externalPorts=[9000]")) == {443, 6443, 9000}


def test_where_pods_may_go_can_be_narrowed() -> None:
    kafka = {"namespaceSelector": {"matchLabels": {"team": "kafka"}}}
    rule = outside(
        'networkPolicy.external=["10.0.0.0/8"]',
        'networkPolicy.externalPeers=[{"namespaceSelector": {"matchLabels": {"team": "kafka"}}}]',
    )
    assert rule["to"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}, kafka]


# The Gateway API


def kinds(*settings: str) -> set[str]:
    return {each["kind"] for each in light(*settings)}


def test_a_grpc_route_has_host_names_of_its_own() -> None:
    assert "GRPCRoute" not in kinds(*ROUTES)
    grpc = 'gateway.gatewayApi.grpcHostnames=["grpc.example.com"]'
    route = one(light(*ROUTES, grpc), "GRPCRoute", "-gateway")
    assert route["spec"]["hostnames"] == ["grpc.example.com"]
    same = grpc.replace("grpc.example", "models.example")
    assert "a Gateway takes one kind of route for a name" in refusal(*LIGHT, *ROUTES, same)
    assert "needs gateway.grpc" in refusal(*LIGHT, *ROUTES, grpc, "gateway.grpc=false")


# Tritons, accounts and trust


def test_gateways_know_the_users_own_tritons_whatever_loaders_say() -> None:
    assert "--triton-grpc=a.example.com:8001,b.example.com:8001" in args(light(TRITONS), "gateway")


def test_loaders_of_the_users_own_tritons_run_where_triton_is_to_run() -> None:
    where = {"pool": "models"}
    found = light(TRITONS, 'triton.scheduling.nodeSelector={"pool": "models"}')
    specs = {name: spec for name, _, spec in pod_specs(found) if "loader" in name}
    assert len(specs) == 2
    assert all(spec["nodeSelector"] == where for spec in specs.values())


def test_a_clouds_role_is_given_to_who_uses_the_store_and_to_nobody_else() -> None:
    role = "eks.amazonaws.com/role-arn"
    found = light(f'packages.serviceAccountAnnotations={{"{role}": "r"}}')
    given = {
        each["metadata"]["name"].rpartition("-")[2]
        for each in found
        if each["kind"] == "ServiceAccount" and role in each["metadata"].get("annotations", {})
    }
    assert given == {"gateway", "triton", "controller", "conversion", "evaluate"}


def test_a_bundle_of_authorities_is_there_wherever_it_is_named() -> None:
    found = light('trust.configMap="bundle"', 'trust.key="all.pem"')
    named = {
        name: each
        for name, each in containers(found).items()
        if any(variable["name"] == "SSL_CERT_FILE" for variable in each.get("env", []))
    }
    assert {"gateway", "controller", "loader", "evaluate"} <= set(named)
    for each in named.values():
        assert {"name": "trust", "mountPath": "/etc/headrace/trust", "readOnly": True} in each[
            "volumeMounts"
        ]
    volumes = [each for _, _, spec in pod_specs(found) for each in spec.get("volumes", [])]
    trusts = [each["configMap"] for each in volumes if each["name"] == "trust"]
    assert trusts
    item = {"key": "all.pem", "path": "ca.crt"}
    assert all(each == {"name": "bundle", "items": [item]} for each in trusts)


# What goes wrong


def test_every_container_says_its_last_words_in_the_pods_status() -> None:
    said = {
        name: each.get("terminationMessagePolicy") for name, each in containers(light()).items()
    }
    assert said.pop("convert") == "File"  # which is its result; its last words are in its log
    assert set(said.values()) == {"FallbackToLogsOnError"}, said


def test_a_stateful_pod_that_never_was_ready_is_replaced_by_one_with_mended_values() -> None:
    sets = [each for each in light() if each["kind"] == "StatefulSet"]
    assert {each["spec"]["podManagementPolicy"] for each in sets} == {"Parallel"}


@pytest.mark.parametrize("store", ["", "s3://bucket/headrace"])
def test_an_mlflow_under_a_path_needs_a_store_elsewhere(store: str) -> None:
    settings = ['mlflow.url="https://tools.example.com/mlflow"', f'packages.storeUrl="{store}"']
    if store:
        assert light(*settings)
    else:
        assert "name a store in packages.storeUrl" in refusal(*LIGHT, *settings)

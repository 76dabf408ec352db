"""Wrong values are refused with words that name them, before anything is installed."""

import json
from typing import Any

import jsonschema_rs
import pytest
from helm_chart import CHART, LIGHT, manifests, one, refusal

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


def objects(schema: object, path: str = "") -> list[tuple[str, dict[str, object]]]:
    """Every schema of an object with its path, definitions among them."""
    if isinstance(schema, list):
        return [found for item in schema for found in objects(item, path)]
    if not isinstance(schema, dict):
        return []
    found = [(path, schema)] if schema.get("type") == "object" and "properties" in schema else []
    return found + [pair for key, item in schema.items() for pair in objects(item, f"{path}/{key}")]


def test_every_group_of_values_refuses_what_it_does_not_know() -> None:
    open_ones = [path for path, group in objects(SCHEMA) if group["additionalProperties"]]
    assert open_ones == []


def test_every_value_says_what_it_means_and_what_it_is_by_default() -> None:
    def silent(schema: dict[str, object], path: str) -> list[str]:
        properties = schema.get("properties")
        if isinstance(properties, dict):
            return [
                name for key, item in properties.items() for name in silent(item, f"{path}.{key}")
            ]
        return [] if {"description", "default"} <= set(schema) else [path]

    assert silent(SCHEMA, "") == []


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("gatewy={}", "gatewy"),
        ("gateway.replica=3", "replica"),
        ("gateway.podDisruptionBudget.minAvailable=1", "minAvailable"),
        ('gateway.replicas="two"', "/gateway/replicas"),
        ("gateway.replicas=-1", "/gateway/replicas"),
        ('gateway.allowedOrigins=["app.example.com"]', "/gateway/allowedOrigins"),
        ('gateway.allowedOrigins=["https://app.example.com/"]', "/gateway/allowedOrigins"),
        ('images.pullPolicy="Sometimes"', "/images/pullPolicy"),
        ('triton.addresses=["http://triton:8001"]', "/triton/addresses"),
        ('kafka.bootstrapServers=["kafka"]', "/kafka/bootstrapServers"),
        ('kafka.bootstrapServers="kafka:9092"', "/kafka/bootstrapServers"),
        ('mlflow.existingSecret="No Name"', "/mlflow/existingSecret"),
        ('mlflow.url="mlflow:5000"', "/mlflow/url"),
        ('triton.resources.limits.memory="4 GB"', "memory"),
        ('gateway.image.digest="latest"', "/gateway/image/digest"),
        ('controller.pod.args=["log-level=INFO"]', "/controller/pod/args"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, words: str) -> None:
    path, _, value = setting.partition("=")
    values: Any = json.loads(value)
    for name in reversed(path.split(".")):
        values = {name: values}
    said = [
        f"/{'/'.join(map(str, error.instance_path))}: {error.message}"
        for error in VALIDATOR.iter_errors(values)
    ]
    assert words in "\n".join(said)


def test_helm_holds_values_to_the_schema() -> None:
    said = refusal("gatewy={}", 'gateway.replicas="two"')
    assert "gatewy" in said
    assert "/gateway/replicas" in said


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["gateway.ingress.enabled=true"], "needs gateway.ingress.host"),
        (["gateway.gatewayApi.enabled=true"], "needs gateway.gatewayApi.parentRefs"),
        (
            ["gateway.autoscaling.enabled=true", "gateway.autoscaling.minReplicas=20"],
            "gateway.autoscaling.minReplicas is above gateway.autoscaling.maxReplicas",
        ),
        (['kafka.bootstrapServers=["a:1", "b:1", "c:1"]'], "Set kafka.replication to 3"),
        (['gateway.service.loadBalancerClass="nlb"'], "needs gateway.service.type LoadBalancer"),
        (['gateway.service.externalTrafficPolicy="Local"'], "type NodePort or LoadBalancer"),
        (['gateway.service.ipFamilies=["IPv4", "IPv6"]'], "needs gateway.service.ipFamilyPolicy"),
        (['kafka.existingSecret="login"'], "kafka.bootstrapServers must name"),
        (['kafka.tokenAudience="kafka"'], "kafka.tokenAudience needs kafka.existingSecret"),
        (['mlflow.existingSecret="login"'], "mlflow.url must name"),
        (['kafka.bootstrapServers=["localhost:9092"]'], "in a pod is the pod itself"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_a_sentence(
    settings: list[str], sentence: str
) -> None:
    assert sentence in refusal(*settings)


def test_auto_endpoints_are_on_with_the_embedded_mlflow_alone() -> None:
    def flag(*settings: str) -> bool:
        controller = one(manifests("", *LIGHT, *settings), "Deployment", "-controller")
        (container,) = controller["spec"]["template"]["spec"]["containers"]
        return "--auto-endpoints=true" in container["args"]

    own = 'mlflow.url="http://mlflow.example.com"'
    assert flag()
    assert not flag(own)
    assert flag(own, "autoEndpoints=true")
    assert not flag("autoEndpoints=false")

"""Several evaluate processes: each knows its number, finds the others, and is scraped once."""

from typing import Any

from helm_chart import LIGHT, Manifest, manifests, one

from service import flags
from stats.evaluate_main import EvaluateSettings
from stats.evaluation.sharding import Shard

THREE = "stats.evaluate.shards=3"


def light(*settings: str) -> list[Manifest]:
    return manifests("", *LIGHT, *settings)


def pod(*settings: str) -> dict[str, Any]:
    spec: dict[str, Any] = one(light(*settings), "StatefulSet", "-evaluate")["spec"]
    return spec


def test_each_process_reads_its_number_from_its_pods_name() -> None:
    spec = pod(THREE)
    assert spec["replicas"] == 3
    (container, *_) = spec["template"]["spec"]["containers"]
    (name,) = (each for each in container["env"] if each["name"] == "HEADRACE_SHARD")
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    settings = flags.parse(
        EvaluateSettings,
        container["args"],
        {"HEADRACE_SHARD": "demo-headrace-evaluate-2"},
        program="test",
    )
    assert Shard.read(settings.shard, settings.shards) == Shard(2, 3)


def test_each_process_is_found_by_the_address_that_the_others_are_told() -> None:
    found = light(THREE)
    (container, *_) = pod(THREE)["template"]["spec"]["containers"]
    (told,) = (each for each in container["args"] if each.startswith("--shard-url="))
    for number in range(3):
        service = one(found, "Service", f"-evaluate-{number}")
        name = service["metadata"]["name"]
        host = told.removeprefix("--shard-url=http://").replace("{shard}", str(number))
        assert host.startswith(f"{name}.{service['metadata']['namespace']}.svc.")
        label = service["spec"]["selector"]["statefulset.kubernetes.io/pod-name"]
        assert label == f"demo-headrace-evaluate-{number}"
        # By another name than the port that ServiceMonitors scrape: else each would be twice.
        assert [port["name"] for port in service["spec"]["ports"]] == ["shard"]
    policy = one(found, "NetworkPolicy", "-evaluate")["spec"]
    component = "app.kubernetes.io/component"
    for rules, side in ((policy["ingress"], "from"), (policy["egress"], "to")):
        assert any(
            peer.get("podSelector", {}).get("matchLabels", {}).get(component) == "evaluate"
            for rule in rules
            for peer in rule.get(side, [])
        )


def test_one_process_is_as_before() -> None:
    spec = pod()
    assert spec["replicas"] == 1
    (container, *_) = spec["template"]["spec"]["containers"]
    assert not any(each["name"] == "HEADRACE_SHARD" for each in container["env"])
    assert not any(each.startswith("--shard") for each in container["args"])

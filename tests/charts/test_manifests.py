"""What holds of every object that the chart makes, whatever the values."""

import json
import re
from fnmatch import fnmatch
from typing import Any

import pytest
from helm_chart import (
    CASES,
    COMPONENTS,
    LIGHT,
    OPERATOR,
    Manifest,
    containers,
    everything,
    manifests,
    one,
    other_kinds,
    other_schema,
    pod_specs,
    rendered,
)

# Those who ask the API server, and in which container.
ASKS_THE_API = {"gateway": "gateway", "controller": "controller", "evaluate": "evaluate"}
LOADED = ("triton", "triton-gpu", "loader-0", "loader-1", "loader-batch-0")
ASKS_THE_API |= dict.fromkeys(LOADED, "loader")
BY_KEDA = [f'{name}.autoscaling.kind="keda"' for name in ("gateway", "triton", "stats.fold")]


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


@pytest.mark.parametrize(
    "version",
    [
        "1.34",
        *(pytest.param(other, marks=pytest.mark.real) for other in ("1.30", "1.37")),  # slow
    ],
)
def test_every_manifest_passes_kubernetes_own_schema(version: str) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate, which carries the schemas, is missing"
    )
    for manifest in everything("gpu") + manifests("platform", *LIGHT):
        if manifest["kind"] not in other_kinds():
            validator.validate(manifest, version, strict=True)


@pytest.mark.parametrize("kind", other_kinds())
def test_every_object_of_others_passes_the_schema_of_its_crd(kind: str) -> None:
    cases = everything("gpu") + manifests("platform", *LIGHT, *BY_KEDA)
    found = [item for item in cases if item["kind"] == kind]
    assert found
    schema = other_schema(kind)
    for item in found:
        schema.validate(item)
        wrong = {**item, "spec": {**item["spec"], "noSuchField": 1}}
        assert not schema.is_valid(wrong)


@pytest.mark.parametrize("case", CASES)
def test_a_template_file_makes_one_object(case: str) -> None:
    text = rendered(case, apis=OPERATOR)
    sources = re.findall(r"^# Source: (\S+)$", text, re.MULTILINE)
    many = {source for source in sources if sources.count(source) > 1}
    # a loader for each of the addresses, and each pool's Tritons
    pools = {
        f"headrace/templates/triton/{kind}.yaml"
        for kind in ("deployment", "service", "servicemonitor", "poddisruptionbudget")
    }
    assert many <= {
        "headrace/templates/triton/existing.yaml",
        "headrace/templates/network/loaders.yaml",
        *({"headrace/templates/network/triton.yaml", *pools} if case == "pools" else ()),
    }


@pytest.mark.parametrize("case", CASES)
def test_every_pod_meets_the_restricted_profile(case: str) -> None:
    for name, _, spec in pod_specs(everything(case)):
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert {next(iter(set(volume) - {"name"})) for volume in spec["volumes"]} <= {
            "configMap", "emptyDir", "projected", "secret",
        }  # fmt: skip
        for container in containers(spec):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name


@pytest.mark.parametrize("case", CASES)
def test_a_token_of_the_api_is_mounted_where_it_is_asked_for_and_nowhere_else(case: str) -> None:
    for name, metadata, spec in pod_specs(everything(case)):
        component = metadata["labels"]["app.kubernetes.io/component"]
        assert spec["automountServiceAccountToken"] is False, name
        holders = {
            container["name"]
            for container in containers(spec)
            for mount in container["volumeMounts"]
            if mount["name"] == "api-token"
        }
        wanted = ASKS_THE_API.get(component)
        assert holders == ({wanted} if wanted else set()), name


@pytest.mark.parametrize("case", CASES)
def test_every_container_has_bounds_and_every_server_its_probes(case: str) -> None:
    for name, metadata, spec in pod_specs(everything(case)):
        component = metadata["labels"]["app.kubernetes.io/component"]
        for container in containers(spec):
            assert "memory" in container["resources"]["limits"], name
            assert "cpu" in container["resources"]["requests"], name
            if component not in {"conversion", "test"}:
                assert {"startupProbe", "livenessProbe"} <= set(container), name
                ports = {port["name"] for port in container["ports"]}
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    action = container.get(probe, {})
                    asked = action.get("httpGet") or action.get("tcpSocket")
                    assert asked is None or asked["port"] in ports, (name, probe)


def test_mlflow_is_ready_once_its_database_answers_and_lives_without_it() -> None:
    found = one(manifests("", *LIGHT), "StatefulSet", "-mlflow")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    asked = container["readinessProbe"]["httpGet"]
    assert asked["path"] == "/api/2.0/mlflow/registered-models/search?max_results=1"
    (host,) = [header["value"] for header in asked["httpHeaders"] if header["name"] == "Host"]
    (known,) = [item for item in container["env"] if item["name"] == "MLFLOW_SERVER_ALLOWED_HOSTS"]
    assert any(fnmatch(host, pattern) for pattern in known["value"].split(","))
    # A database that is away is no reason to end the server that waits for it.
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] == "/health"


@pytest.mark.parametrize("case", CASES)
def test_every_volume_is_bounded_and_every_mount_has_one(case: str) -> None:
    found = everything(case)
    claims = {
        item["metadata"]["name"]: [
            claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])
        ]
        for item in found
        if item["kind"] == "StatefulSet"
    }
    for name, _, spec in pod_specs(found):
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for volume in spec["volumes"]:
            assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"], name
        for container in containers(spec):
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= set(volumes) | set(claims.get(name, [])), name


@pytest.mark.parametrize("case", CASES)
def test_what_pods_name_is_made_or_is_the_users(case: str) -> None:
    found = everything(case)
    made = {(item["kind"], item["metadata"]["name"]) for item in found}
    theirs = {
        "mlflow-login",
        "mlflow-webhook",
        "object-store",
        "api-keys",
        "receipts",
        "headrace-tls",
        "pull",
        "gateway-tls",
        "kafka-login",
    }
    for name, _, spec in pod_specs(found):
        assert ("ServiceAccount", spec["serviceAccountName"]) in made, name
        for volume in spec["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in made, name
            if "secret" in volume:
                secret = volume["secret"]["secretName"]
                assert secret in theirs or ("Secret", secret) in made, name
        for container in containers(spec):
            for source in container.get("envFrom", []):
                assert source["secretRef"]["name"] in theirs, name


@pytest.mark.parametrize("case", CASES)
def test_every_selector_finds_pods_and_every_service_port_exists(case: str) -> None:
    found = everything(case)
    pods = [(metadata["labels"], spec) for _, metadata, spec in pod_specs(found)]
    for item in found:
        kind, spec = item["kind"], item.get("spec", {})
        if kind == "Service":
            ports = [
                {port["name"] for container in containers(pod) for port in container["ports"]}
                for labels, pod in pods
                if selects(spec["selector"], labels)
            ]
            assert ports, item["metadata"]["name"]
            for port in spec["ports"]:
                assert all(port["targetPort"] in named for named in ports)
        elif kind in {"Deployment", "StatefulSet", "PodDisruptionBudget"}:
            assert any(selects(spec["selector"]["matchLabels"], labels) for labels, _ in pods)
        elif kind == "NetworkPolicy":
            assert any(selects(spec["podSelector"]["matchLabels"], labels) for labels, _ in pods)


def peers(rules: list[Manifest], side: str) -> list[dict[str, str]]:
    """The pods of this release that rules name."""
    return [
        peer["podSelector"]["matchLabels"]
        for rule in rules
        for peer in rule.get(side, [])
        if "podSelector" in peer
    ]


@pytest.mark.parametrize("case", CASES)
def test_every_pod_but_that_of_helm_test_has_a_network_policy(case: str) -> None:
    found = everything(case)
    selectors = [
        item["spec"]["podSelector"]["matchLabels"]
        for item in found
        if item["kind"] == "NetworkPolicy"
    ]
    for name, metadata, _ in pod_specs(found):
        covering = [one for one in selectors if selects(one, metadata["labels"])]
        assert len(covering) == (0 if name.endswith("-test") else 1), name


@pytest.mark.parametrize("case", CASES)
def test_network_policies_agree_who_may_ask_whom(case: str) -> None:
    """Whoever may go out to a pod of ours is let in there."""
    policies = {
        item["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: item["spec"]
        for item in everything(case)
        if item["kind"] == "NetworkPolicy"
    }
    component = "app.kubernetes.io/component"
    for name, policy in policies.items():
        for target in peers(policy["egress"], "to"):
            inside = policies[target[component]]["ingress"]
            assert name in {peer[component] for peer in peers(inside, "from")}, (name, target)


def test_only_conversions_and_statistics_without_endpoints_have_no_role() -> None:
    found = manifests()
    bound = {item["subjects"][0]["name"] for item in found if item["kind"] == "RoleBinding"}
    accounts = {item["metadata"]["name"] for item in found if item["kind"] == "ServiceAccount"}
    assert accounts - bound == {
        f"demo-headrace-{name}" for name in ("conversion", "fold", "kafka", "mlflow")
    }


@pytest.mark.parametrize("case", CASES)
def test_no_account_may_do_everything_or_anything_outside_of_the_namespace(case: str) -> None:
    found = everything(case)
    # ClusterRoles are bound to nobody: Kubernetes adds them to those of people (access/).
    assert "ClusterRoleBinding" not in {item["kind"] for item in found}
    bound = {item["roleRef"]["kind"] for item in found if item["kind"] == "RoleBinding"}
    assert bound == {"Role"}
    rules = [
        rule for item in found if item["kind"] in {"Role", "ClusterRole"} for rule in item["rules"]
    ]
    for rule in rules:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        assert not {"secrets", "roles", "rolebindings", "pods/exec"} & set(rule["resources"])


@pytest.mark.parametrize("case", CASES)
def test_objects_are_in_the_releases_namespace_and_carry_its_labels(case: str) -> None:
    for item in everything(case):
        metadata = item["metadata"]
        if item["kind"] not in {"CustomResourceDefinition", "ClusterRole"}:
            assert metadata["namespace"] == "space"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "demo"
        assert case != "gpu" or metadata["labels"]["team"] == "ml"


def test_an_upgrade_of_the_chart_alone_restarts_nothing() -> None:
    for name, metadata, _ in pod_specs(manifests()):
        if not name.endswith("-test"):
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(metadata["labels"]), (
                name
            )


def test_a_gateway_has_time_for_all_that_it_does_when_told_to_stop() -> None:
    settings = ("gateway.lingerSeconds=7", "gateway.drainSeconds=50", "gateway.flushSeconds=11")
    spec = one(manifests("", *LIGHT, *settings), "Deployment", "-gateway")["spec"]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > 7 + 2 * 50 + 11
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def megabytes(quantity: str) -> int:
    assert quantity.endswith("Mi")
    return int(quantity.removesuffix("Mi"))


def triton(*settings: str) -> tuple[int, int, dict[str, Any]]:
    """MiB of shared memory, MiB of the limit, and the limits."""
    found = manifests("", *LIGHT, *settings)
    spec = one(found, "Deployment", "-triton")["spec"]["template"]["spec"]
    (volume,) = [item for item in spec["volumes"] if item["name"] == "shared-memory"]
    assert volume["emptyDir"]["medium"] == "Memory"
    limits = spec["containers"][0]["resources"]["limits"]
    return megabytes(volume["emptyDir"]["sizeLimit"]), megabytes(limits["memory"]), limits


def test_shared_memory_is_counted_in_tritons_limit() -> None:
    shared, limit, _ = triton()
    assert limit == 4 * 1024 + shared


@pytest.mark.parametrize(
    "sizes",
    [
        {"models": 20, "maxBatchSize": 300, "outputsPerToken": 0},
        {"instances": 3, "maxTokens": 2000, "outputsPerToken": 99, "outputsPerText": 50_000},
    ],
)
def test_shared_memory_holds_a_batch_of_every_instance_in_and_out(sizes: dict[str, int]) -> None:
    given = triton(*(f"triton.sharedMemory.{name}={value}" for name, value in sizes.items()))[0]
    all_sizes = {
        "models": 8, "instances": 1, "maxBatchSize": 64, "maxTokens": 512,
        "outputsPerToken": 16, "outputsPerText": 1024,
    } | sizes  # fmt: skip
    token_bytes = 3 * 8 + 4 * all_sizes["outputsPerToken"]
    text_bytes = all_sizes["maxTokens"] * token_bytes + 4 * all_sizes["outputsPerText"]
    instances = all_sizes["models"] * all_sizes["instances"]
    needed = instances * all_sizes["maxBatchSize"] * text_bytes
    assert needed < given << 20 < 3 * needed + (128 << 20)


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ((), 1),
        (("triton.resources.requests.cpu=2",), 2),
        (("triton.resources.limits.cpu=3", "triton.resources.requests.cpu=1"), 3),
        (('triton.resources.limits.cpu="3999m"',), 3),
        (("triton.resources.limits.cpu=0.5",), 1),
        (("triton.resources.requests.cpu=16",), 16),
        (("triton.resources.requests.cpu=4", "triton.gpus=1"), 4),
        (("triton.resources.requests.cpu=4", 'triton.addresses=["a:1"]'), 1),
    ],
)
def test_a_loader_is_told_the_cores_that_triton_has(settings: tuple[str, ...], cores: int) -> None:
    assert f"--cores={cores}" in loader_flags(*settings)


@pytest.mark.parametrize(
    ("settings", "megabytes"),
    [
        ((), 4096),
        (("triton.resources.limits=null",), 1024),
        (('triton.resources.limits.memory="2000M"',), 1907),
        (('triton.addresses=["a:1"]',), 0),
    ],
)
def test_a_loader_is_told_the_memory_that_triton_has(
    settings: tuple[str, ...], megabytes: int
) -> None:
    assert f"--memory-megabytes={megabytes}" in loader_flags(*settings)


def loader_flags(*settings: str) -> list[str]:
    made = [item for item in manifests("", *LIGHT, *settings) if item["kind"] == "Deployment"]
    containers = [each for item in made for each in item["spec"]["template"]["spec"]["containers"]]
    (loader,) = [each for each in containers if each["name"] == "loader"]
    return list(loader["args"])


def test_shared_memory_holds_a_copy_for_each_core_that_triton_has() -> None:
    three = triton("triton.sharedMemory.instances=3")[0]
    assert triton("triton.resources.requests.cpu=3")[0] == three > triton()[0]
    sixteen = triton("triton.sharedMemory.instances=16")[0]
    assert triton("triton.resources.requests.cpu=64")[0] == sixteen


def test_gpus_are_asked_for_where_values_say_so() -> None:
    assert triton("triton.gpus=1", 'triton.gpuResource="amd.com/gpu"')[2]["amd.com/gpu"] == 1
    assert (
        one(everything("gpu"), "Deployment", "-triton")["spec"]["template"]["spec"]["containers"][
            0
        ]["resources"]["limits"]["nvidia.com/gpu"]
        == 1
    )
    assert "nvidia.com/gpu" not in triton()[2]


PLACED = {
    "nodeSelector": {"pool": "mine"},
    "tolerations": [{"key": "mine", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "runtimeClassName": "kata",
}


def test_every_component_can_be_placed() -> None:
    settings = [
        f"{component}.scheduling.{name}={json.dumps(value)}"
        for component in COMPONENTS
        for name, value in PLACED.items()
    ]
    for name, _, spec in pod_specs(manifests("", *LIGHT, *settings)):
        assert {key: spec.get(key) for key in PLACED} == PLACED, name

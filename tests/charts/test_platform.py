"""What platform teams set for every component alike: users, accounts, volumes, containers, DNS."""

import json

import jsonschema_rs
import pytest
from helm_chart import (
    CHART,
    COMPONENTS,
    LIGHT,
    SPACE,
    Manifest,
    containers,
    manifests,
    one,
    pod_specs,
    refusal,
)

from service.cluster.leases import BEAT_NAME

IDENTITIES = {"runAsUser", "runAsGroup", "fsGroup"}
# Where a component's pods are not called as its values are.
COMPONENT_NAMES = {
    "stats.fold": "fold", "stats.evaluate": "evaluate",
    "kafka.embedded": "kafka", "mlflow.embedded": "mlflow",
}  # fmt: skip
OWN_TRITONS = 'triton.addresses=["a.example.com:8001"]'
WORKLOADS = {"Deployment", "StatefulSet"}


def components(*settings: str) -> dict[str, Manifest]:
    """The pod's spec of each component as a platform team has it."""
    return {
        metadata["labels"]["app.kubernetes.io/component"]: spec
        for name, metadata, spec in pod_specs(manifests("platform", *LIGHT, *settings))
        if not name.endswith("-test")
    }


@pytest.fixture(scope="module")
def platform() -> dict[str, Manifest]:
    found = components()
    assert set(found) == {COMPONENT_NAMES.get(name, name) for name in COMPONENTS}
    return {**found, "loader-0": components(OWN_TRITONS)["loader-0"]}


# Users


def test_pods_run_as_whoever_the_cluster_assigns_where_values_say_so(
    platform: dict[str, Manifest],
) -> None:
    for name, _, spec in pod_specs(manifests("platform", *LIGHT)):
        assert not IDENTITIES & set(spec["securityContext"]), name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
    for spec in platform.values():
        for container in containers(spec):
            if container["name"] not in {"before", "beside"}:
                assert not IDENTITIES & set(container["securityContext"])


def test_pods_run_as_the_user_and_groups_that_values_name() -> None:
    wanted = {"runAsUser": 1000650000, "runAsGroup": 7, "fsGroup": 8}
    settings = [f"podSecurityContext.{name}={value}" for name, value in wanted.items()]
    for name, _, spec in pod_specs(manifests("", *LIGHT, *settings)):
        given = {key: spec["securityContext"].get(key) for key in wanted}
        assert given == wanted, name


# Pods


def test_every_component_gets_the_volumes_and_variables_of_its_values(
    platform: dict[str, Manifest],
) -> None:
    sources = [
        {"secretRef": {"name": "proxy"}, "prefix": "PROXY_"},
        {"configMapRef": {"name": "region"}},
    ]
    mount = {"name": "audit", "mountPath": "/var/audit", "readOnly": True}
    for name, spec in platform.items():
        assert {"name": "audit", "csi": {"driver": "audit.example.com"}} in spec["volumes"], name
        for container in spec["containers"]:
            assert mount in container["volumeMounts"], (name, container["name"])
            assert container["envFrom"] == sources, (name, container["name"])


def test_what_values_add_to_the_variables_takes_no_credential_away() -> None:
    added = 'gateway.pod.extraEnvFrom=[{"secretRef": {"name": "proxy"}}]'
    found = manifests("own-parts", *LIGHT, added)
    (container,) = one(found, "Deployment", "-gateway")["spec"]["template"]["spec"]["containers"]
    named = [source["secretRef"]["name"] for source in container["envFrom"]]
    assert named == ["object-store", "proxy"]


def test_a_variable_of_values_takes_the_place_of_the_charts_own() -> None:
    """One that is named twice is refused where the API server applies: by helm 4, and Argo CD."""
    own = [{"name": "OMP_NUM_THREADS", "value": "3"}, {"name": "SSL_CERT_FILE", "value": "/mine"}]
    processes = [name for name in COMPONENTS if "embedded" not in name]
    settings = [f"{name}.pod.env={json.dumps(own)}" for name in processes]
    seen = set()
    found = manifests("", *LIGHT, *settings, 'trust.configMap="bundle"')
    for name, _, spec in pod_specs(found):
        for container in containers(spec):
            env = container.get("env", [])
            names = [each["name"] for each in env]
            assert len(names) == len(set(names)), name
            if "OMP_NUM_THREADS" in names:
                assert all(each in env for each in own), name
                seen.add(name.removeprefix("demo-headrace-"))
    assert seen == {"gateway", "controller", "conversion", "fold", "evaluate", "triton"}


def test_containers_of_values_come_before_and_beside_every_component(
    platform: dict[str, Manifest],
) -> None:
    bounds = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for name, spec in platform.items():
        before, beside = spec["initContainers"]
        assert (before["name"], beside["name"]) == ("before", "beside"), name
        assert "restartPolicy" not in before, name
        assert before["securityContext"] == bounds, name
        # A sidecar that were an ordinary container would keep a conversion's Job from ending.
        assert beside["restartPolicy"] == "Always", name
        own = {**bounds, "allowPrivilegeEscalation": True, "runAsUser": 5}
        assert beside["securityContext"] == own, name


def test_every_component_takes_dns_and_a_priority(platform: dict[str, Manifest]) -> None:
    for name, spec in platform.items():
        assert spec["dnsPolicy"] == "None", name
        assert spec["dnsConfig"] == {
            "nameservers": ["10.0.0.10"],
            "searches": ["example.com"],
            "options": [{"name": "ndots", "value": "2"}],
        }, name
        assert spec["priorityClassName"] == "platform", name


@pytest.mark.parametrize("limit", [0, 3])
def test_old_revisions_are_kept_as_values_say(limit: int) -> None:
    kept = [name for name in COMPONENTS if name != "conversion"]
    settings = [f"{name}.pod.revisionHistoryLimit={limit}" for name in kept]
    found = [item for item in manifests("", *LIGHT, *settings) if item["kind"] in WORKLOADS]
    assert len(found) == len(kept)
    assert {item["spec"]["revisionHistoryLimit"] for item in found} == {limit}


def test_helms_test_pod_gets_nothing_of_the_gateways() -> None:
    test = one(manifests("platform", *LIGHT), "Pod", "-test")["spec"]
    assert "initContainers" not in test
    assert [volume["name"] for volume in test["volumes"]] == ["checks"]


def test_values_of_pods_are_one_definition_less_what_a_component_can_not_have() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    validator = jsonschema_rs.validator_for(schema)
    every = set(schema["definitions"]["pod"]["properties"])
    lacking = {
        "conversion": {"args", "revisionHistoryLimit"},
        "kafka.embedded": {"args"},
        "mlflow.embedded": {"args"},
    }
    examples = {"args": ["--a=1"], "revisionHistoryLimit": 1, "dnsPolicy": "Default"}
    examples |= {"annotations": {}, "labels": {}, "dnsConfig": {}}
    for component in COMPONENTS:
        taken = set()
        for name in every:
            values: dict[str, object] = {"pod": {name: examples.get(name, [])}}
            for part in reversed(component.split(".")):
                values = {part: values}
            taken |= {name} if validator.is_valid(values) else set()
        assert taken == every - lacking.get(component, set()), component


# Accounts and Roles


def accounts(found: list[Manifest]) -> dict[str, str]:
    """The account of each component's pods."""
    return {
        metadata["labels"]["app.kubernetes.io/component"]: spec["serviceAccountName"]
        for name, metadata, spec in pod_specs(found)
        if not name.endswith("-test")
    }


def test_accounts_that_you_made_are_used_by_the_names_that_the_chart_would_give() -> None:
    found = manifests("platform", *LIGHT)
    assert "ServiceAccount" not in {item["kind"] for item in found}
    assert accounts(found) == {name: f"demo-headrace-{name}" for name in accounts(found)}


@pytest.mark.parametrize("create", ["true", "false"])
def test_an_account_of_another_name_has_the_components_rights(create: str) -> None:
    settings = [
        word
        for name in COMPONENTS
        for word in (
            f'{name}.serviceAccount.name="own-{COMPONENT_NAMES.get(name, name)}"',
            f'{name}.serviceAccount.annotations={{"role": "{name}"}}',
            f"{name}.serviceAccount.create={create}",
        )
    ]
    found = manifests("", *LIGHT, *settings)
    used = set(accounts(found).values())
    assert len(used) == len(COMPONENTS)
    bound = {item["subjects"][0]["name"] for item in found if item["kind"] == "RoleBinding"}
    assert bound == {"own-gateway", "own-controller", "own-evaluate", "own-triton"}
    made = {item["metadata"]["name"] for item in found if item["kind"] == "ServiceAccount"}
    assert made == (used if create == "true" else set())


def test_a_components_own_annotations_win_over_those_of_the_store() -> None:
    found = manifests(
        "",
        *LIGHT,
        'packages.serviceAccountAnnotations={"role": "reads", "also": "this"}',
        'conversion.serviceAccount.annotations={"role": "writes"}',
    )
    for name, role in (("conversion", "writes"), ("gateway", "reads")):
        account = one(found, "ServiceAccount", f"-{name}")
        assert account["metadata"]["annotations"] == {"role": role, "also": "this"}


def test_two_accounts_of_one_name_are_refused() -> None:
    said = refusal('gateway.serviceAccount.name="one"', 'controller.serviceAccount.name="one"')
    assert "controller.serviceAccount and gateway.serviceAccount both make an account" in said


def test_roles_can_be_left_to_somebody_else() -> None:
    kinds = {item["kind"] for item in manifests("", "rbac.create=false")}
    assert not {"Role", "RoleBinding", "ClusterRole"} & kinds
    assert "ServiceAccount" in kinds


def test_who_may_edit_a_namespace_may_edit_its_endpoints_but_not_their_status() -> None:
    found = manifests()
    view = one(found, "ClusterRole", "-view")
    edit = one(found, "ClusterRole", "-edit")
    label = "rbac.authorization.k8s.io/aggregate-to-"
    assert view["metadata"]["labels"][f"{label}view"] == "true"
    assert edit["metadata"]["labels"][f"{label}edit"] == "true"
    (reads, records), (writes,) = view["rules"], edit["rules"]
    assert set(reads["verbs"]) == {"get", "list", "watch"}
    assert (records["resources"], records["verbs"]) == (["endpointrecords"], ["get"])
    assert writes["resources"] == ["modelendpoints"]
    assert {"create", "update", "patch", "delete"} <= set(writes["verbs"])


def test_the_controller_alone_writes_records_and_gateways_and_loaders_never_read_them() -> None:
    found = {
        item["metadata"]["name"].rpartition("-")[2]: verbs
        for item in manifests()
        if item["kind"] == "Role"
        for rule in item["rules"]
        if "endpointrecords" in rule["resources"]
        for verbs in [set(rule["verbs"])]
    }
    assert found == {"controller": {"get", "create", "update"}, "evaluate": {"get"}}


def test_the_controller_may_delete_its_sign_of_life_as_who_changes_an_owner_must() -> None:
    """Kubernetes' OwnerReferencesPermissionEnforcement asks it, which OpenShift has on."""
    verbs = [
        set(rule["verbs"])
        for item in manifests("", *LIGHT)
        if item["kind"] == "Role" and item["metadata"]["name"].endswith("-controller")
        for rule in item["rules"]
        if rule.get("resourceNames") == [BEAT_NAME]
    ]
    assert verbs == [{"patch", "delete"}]


@pytest.mark.parametrize("setting", ["crd.install=false", "rbac.aggregate=false"])
def test_cluster_roles_are_made_with_the_definition_alone(setting: str) -> None:
    """They have the kind's name: a second release, without the definition, would make them too."""
    assert "ClusterRole" not in {item["kind"] for item in manifests("", setting)}


# Further objects


def test_further_objects_are_installed_with_their_templates_filled_in() -> None:
    found = manifests("platform", *LIGHT)
    note = one(found, "ConfigMap", "demo-note")
    assert note["metadata"]["namespace"] == SPACE
    assert note["data"] == {"team": "ml"}
    assert one(found, "Secret", "demo-headrace-text")

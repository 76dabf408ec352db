"""The Terraform of ``examples/cloud/eks`` and the values beside it name the same things.

``terraform validate`` needs its provider, which only CI's job ``cloud`` fetches.
"""

import ipaddress
import json
import re

import pytest
import yaml
from helm_chart import LIGHT, ROOT, Manifest, manifests, one, pod_specs

FOLDER = ROOT / "examples" / "cloud" / "eks"
STORE = (FOLDER / "store.tf").read_text(encoding="utf-8")
VALUES = (FOLDER / "values.yaml").read_text(encoding="utf-8")
# Role -> ServiceAccounts of a release that is called headrace.
ACCOUNTS = {
    role: re.findall(r'"([\w-]+)"', names)
    for role, names in re.findall(
        r"(\w+) += \[(.+)\]", STORE.partition("accounts = {")[2].partition("\n  }")[0]
    )
}
AGENT = ipaddress.ip_address("169.254.170.23")


def objects() -> list[Manifest]:
    """What the chart makes of the values. The release is called demo here."""
    return manifests(str(FOLDER / "values"), *LIGHT)


def pods(account: str) -> list[Manifest]:
    """The specs and labels of the pods of an account."""
    return [
        {"labels": metadata["labels"], **spec}
        for _, metadata, spec in pod_specs(objects())
        if spec.get("serviceAccountName") == account.replace("headrace", "demo-headrace", 1)
    ]


def test_every_account_that_gets_a_role_exists_and_all_that_use_the_store_get_one() -> None:
    made = {each["metadata"]["name"] for each in objects() if each["kind"] == "ServiceAccount"}
    named = {f"demo-{name}" for names in ACCOUNTS.values() for name in names}
    assert named <= made
    assert made - named == {"demo-headrace-fold", "demo-headrace-mlflow"}
    readers = {"headrace-gateway", "headrace-triton", "headrace-evaluate"}
    assert set(ACCOUNTS["read"]) == readers
    assert ACCOUNTS["convert"] == ["headrace-conversion"]
    assert ACCOUNTS["decide"] == ["headrace-controller"]


@pytest.mark.parametrize("name", [name for names in ACCOUNTS.values() for name in names])
def test_pods_with_a_role_may_ask_the_agent_of_pod_identity(name: str) -> None:
    found = pods(name)
    assert found
    for pod in found:
        component = pod["labels"]["app.kubernetes.io/component"]
        policy = one(objects(), "NetworkPolicy", f"-{component}")
        assert any(
            AGENT in ipaddress.ip_network(peer["ipBlock"]["cidr"])
            for rule in policy["spec"]["egress"]
            if 80 in [each["port"] for each in rule["ports"]]
            for peer in rule.get("to", [])
            if "ipBlock" in peer
        ), component


@pytest.mark.parametrize("role", ACCOUNTS)
def test_a_role_reaches_the_store_of_the_values_and_nothing_else(role: str) -> None:
    url = yaml.safe_load(VALUES)["packages"]["storeUrl"]
    (prefix,) = re.findall(r'prefix = "(\w+)"', STORE)
    bucket = url.removeprefix("s3://").removesuffix(f"/{prefix}")
    assert url == f"s3://{bucket}/{prefix}"
    assert 'storeUrl = "s3://${aws_s3_bucket.packages.id}/${local.prefix}"' in (
        FOLDER / "outputs.tf"
    ).read_text(encoding="utf-8")
    policy = (FOLDER / "policies" / f"{role}.json").read_text(encoding="utf-8")
    filled = policy.replace("${bucket}", bucket).replace("${prefix}", prefix)
    arn = f"arn:aws:s3:::{bucket}"
    below = f"{arn}/{prefix}/staging/*" if role == "convert" else f"{arn}/{prefix}/*"
    for statement in json.loads(filled)["Statement"]:
        whole = statement["Action"] == "s3:ListBucket"
        assert statement["Resource"] == (arn if whole else below)


def test_the_policy_of_conversions_is_the_one_of_the_page_on_security() -> None:
    policy = (FOLDER / "policies" / "convert.json").read_text(encoding="utf-8")
    filled = policy.replace("${bucket}", "BUCKET").replace("${prefix}", "PREFIX")
    assert filled in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_there_is_a_registry_for_every_image() -> None:
    (listed,) = re.findall(r"images += \[(.+)\]", STORE)
    run = {
        container["image"].rpartition("/")[2].partition(":")[0]
        for _, _, spec in pod_specs(objects())
        for container in spec["containers"] + spec.get("initContainers", [])
    }
    assert {f"headrace-{name}" for name in re.findall(r'"([\w-]+)"', listed)} == run


def test_what_the_values_say_comes_from_terraform_is_an_output() -> None:
    outputs = (FOLDER / "outputs.tf").read_text(encoding="utf-8")
    marked = re.findall(r"(\w+): .*# from terraform", VALUES)
    (value,) = re.findall(r'output "values" \{(.+?)\n\}', outputs, re.DOTALL)
    assert marked == re.findall(r"\b(registry|storeUrl|bootstrapServers|external) +=", value)


def test_costs_are_prices_over_rates() -> None:
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| ([\d,]+) \| \$([\d.]+) \| \$([\d.]+) \|", page)
    assert len(rows) == 4
    for rate, price, cost in rows:
        million_seconds = 1e6 / (float(rate.replace(",", "")) / 2)
        assert float(cost) == pytest.approx(float(price) * million_seconds / 3600, abs=0.006)

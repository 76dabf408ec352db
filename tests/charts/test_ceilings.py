"""The operator's ceilings in the chart: values, flags, and what the API server is to refuse."""

import json

import celpy
import pytest
import yaml
from celpy.adapter import json_to_cel
from chart_definition import crd
from helm_chart import CHART, SPACE, one, policies, refusal

from contracts.ceilings import CEILINGS, POOLS

SOME = ("ceilings.instances=4", "ceilings.timeoutSeconds=2.5", "ceilings.unkWords=0")


def test_the_chart_holds_the_expressions_as_they_are_made_now() -> None:
    held = (CHART / "files" / "ceilings.yaml").read_text(encoding="utf-8")
    assert held == crd.ceilings_as_yaml(), "run: python -P charts/crd.py"


def test_the_values_are_the_tables_rows() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = schema["properties"]["ceilings"]["properties"]
    assert list(values)[1:] == [*(each.name for each in CEILINGS), POOLS]
    assert [values[each.name]["minimum"] for each in CEILINGS] == [each.least for each in CEILINGS]
    assert all(values[name]["default"] is None for name in list(values)[1:])


def test_without_a_ceiling_nothing_is_made() -> None:
    assert policies("ceilings") == []


def test_the_policy_asks_what_the_table_asks_and_of_this_namespace_alone() -> None:
    found = policies("ceilings", *SOME, 'fullnameOverride="ours"')
    policy = one(found, "ValidatingAdmissionPolicy", f"ours.{SPACE}.ceilings.headrace.dev")
    binding = one(found, "ValidatingAdmissionPolicyBinding", policy["metadata"]["name"])
    spec = policy["spec"]
    assert {each["name"]: each["expression"] for each in spec["variables"]} == {
        each.name: each.cel
        for each in CEILINGS
        if each.name in ("instances", "timeoutSeconds", "unkWords")
    }
    assert [each["expression"] for each in spec["validations"]] == [
        "variables.instances <= double(4)",
        "variables.timeoutSeconds <= double(2.5)",
        "variables.unkWords <= double(0)",
    ]
    assert spec["failurePolicy"] == "Fail"
    (rule,) = spec["matchConstraints"]["resourceRules"]
    # Not of modelendpoints/status: what the controller writes there is never refused.
    assert (rule["resources"], rule["operations"]) == (["modelendpoints"], ["CREATE", "UPDATE"])
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    chosen = binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
    assert chosen == {"kubernetes.io/metadata.name": SPACE}


def test_a_cluster_without_such_policies_and_an_operator_who_wants_none_get_none() -> None:
    assert policies("ceilings", *SOME, apis=()) == []
    assert policies("ceilings", *SOME, "ceilings.policy=false") == []


@pytest.mark.parametrize("wrong", ["instances=0", "instances=1.5", "none=1"])
def test_a_ceiling_that_is_none_is_refused(wrong: str) -> None:
    assert "ceilings" in refusal(f"ceilings.{wrong}")


def test_every_ceiling_is_yaml_that_the_template_can_read() -> None:
    rows = yaml.safe_load(crd.ceilings_as_yaml())
    assert [row["name"] for row in rows] == [*(each.name for each in CEILINGS), POOLS]


def test_the_policy_lets_endpoints_name_the_pools_that_are_allowed() -> None:
    found = policies("ceilings", 'ceilings.pools=["default", "gpu"]')
    (policy,) = [each for each in found if each["kind"] == "ValidatingAdmissionPolicy"]
    (variable,) = policy["spec"]["variables"]
    (rule,) = policy["spec"]["validations"]
    environment = celpy.Environment()

    def passes(spec: dict[str, str]) -> bool:
        wish = environment.program(environment.compile(variable["expression"]))
        named = wish.evaluate({"object": json_to_cel({"spec": {"model": "m", **spec}})})
        asked = environment.program(environment.compile(rule["expression"]))
        return bool(asked.evaluate({"variables": json_to_cel({variable["name"]: str(named)})}))

    assert [passes(spec) for spec in ({}, {"pool": "gpu"}, {"pool": "cpu"})] == [True, True, False]

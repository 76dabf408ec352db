"""The policy that holds Jobs to the chart's template; a real API server tries it elsewhere."""

import json

from helm_chart import SPACE, one, policies

ON = "conversion.verifyJobs=true"


def test_it_holds_the_controllers_account_in_this_namespace_alone() -> None:
    found = policies("jobs", ON, 'fullnameOverride="ours"')
    policy = one(found, "ValidatingAdmissionPolicy", f"ours.{SPACE}.jobs.headrace.dev")
    binding = one(found, "ValidatingAdmissionPolicyBinding", policy["metadata"]["name"])
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["jobs"], ["CREATE", "UPDATE"])
    (who,) = policy["spec"]["matchConditions"]
    assert f"'system:serviceaccount:{SPACE}:ours-controller'" in who["expression"]
    chosen = binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
    assert chosen == {"kubernetes.io/metadata.name": SPACE}


def test_it_names_the_secrets_of_conversions_and_of_no_other_component() -> None:
    own = ("conversion", "controller", "gateway", "triton", "stats.evaluate")
    settings = [f'{name}.existingSecret="of-{name}"' for name in own]
    policy = one(policies("jobs", ON, *settings), "ValidatingAdmissionPolicy", "")
    said = json.dumps(policy["spec"]["validations"])
    assert [name for name in own if f"of-{name}" in said] == ["conversion"]
    assert not [kind for kind in ("index", "receipts", "webhook") if f"-{kind}" in said]


def test_it_is_left_out_where_it_is_not_known_or_not_wanted() -> None:
    assert policies("jobs", ON, apis=()) == []
    assert policies("jobs", "conversion.verifyJobs=false") == []

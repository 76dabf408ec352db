"""The policy that holds the users of decisions to be true; a real API server tries it elsewhere."""

from helm_chart import SPACE, one, policies


def test_decisions_are_held_to_their_users_in_this_namespace_alone() -> None:
    found = policies("commands", 'fullnameOverride="ours"')
    policy = one(found, "ValidatingAdmissionPolicy", f"ours.{SPACE}.commands.headrace.dev")
    binding = one(found, "ValidatingAdmissionPolicyBinding", policy["metadata"]["name"])
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    # Not of modelendpoints/status: what the controller writes there is never refused.
    assert (rule["resources"], rule["operations"]) == (["modelendpoints"], ["CREATE", "UPDATE"])
    assert all(
        "request.userInfo.username" in each["expression"] for each in policy["spec"]["validations"]
    )
    chosen = binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
    assert chosen == {"kubernetes.io/metadata.name": SPACE}


def test_a_cluster_without_such_policies_and_an_operator_who_wants_none_get_none() -> None:
    assert policies("commands", apis=()) == []
    assert policies("commands", "commands.verifyUser=false") == []

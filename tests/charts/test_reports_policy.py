"""The policy that lets loaders write their own reports; a real API server tries it elsewhere."""

from helm_chart import SPACE, one, policies


def test_it_holds_the_loaders_account_in_this_namespace_alone() -> None:
    found = policies("reports", 'fullnameOverride="ours"')
    policy = one(found, "ValidatingAdmissionPolicy", f"ours.{SPACE}.reports.headrace.dev")
    binding = one(found, "ValidatingAdmissionPolicyBinding", policy["metadata"]["name"])
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE", "UPDATE", "DELETE"]
    (who,) = policy["spec"]["matchConditions"]
    assert f"'system:serviceaccount:{SPACE}:ours-triton'" in who["expression"]
    chosen = binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
    assert chosen == {"kubernetes.io/metadata.name": SPACE}


def test_it_is_left_out_where_it_is_not_known_or_wanted_or_would_hold_the_controller() -> None:
    assert policies("reports", apis=()) == []
    assert policies("reports", "triton.loader.verifyReports=false") == []
    same = [
        f"{part}.serviceAccount.{value}"
        for part in ("triton", "controller")
        for value in ('name="all"', "create=false")
    ]
    assert policies("reports", *same) == []

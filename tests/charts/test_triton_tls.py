"""TLS between gateways, loaders and Triton: one Secret, in each pod that is on it."""

import pytest
from helm_chart import LIGHT, manifests, pod_specs

SECRET = "triton-grpc"
TLS = (f'triton.tls.existingSecret="{SECRET}"', 'triton.tls.name="engines"')
FOLDER = "/etc/headrace/triton-tls"
THEIRS = 'triton.addresses=["a.example.com:8001", "b.example.com:8001"]'


@pytest.mark.parametrize(
    ("settings", "on_it"),
    [((), {"gateway", "loader", "triton"}), ((THEIRS,), {"gateway", "loader"})],
)
def test_everybody_on_tritons_grpc_has_the_certificates(
    settings: tuple[str, ...], on_it: set[str]
) -> None:
    found = set()
    for _, _, spec in pod_specs(manifests("", *LIGHT, *TLS, *settings)):
        held = [each for each in spec.get("volumes", []) if each["name"] == "triton-tls"]
        for container in spec["containers"]:
            mounts = [each for each in container["volumeMounts"] if each["mountPath"] == FOLDER]
            if not mounts:
                continue
            found.add(container["name"])
            assert [each["secret"]["secretName"] for each in held] == [SECRET]
            if container["name"] == "triton":
                env = {each["name"]: each.get("value") for each in container["env"]}
                assert env["TRITON_TLS_FOLDER"] == FOLDER
            else:
                assert f"--triton-tls-folder={FOLDER}" in container["args"]
                assert "--triton-tls-name=engines" in container["args"]
    assert found == on_it


def test_without_a_secret_nothing_is_said_of_tls() -> None:
    assert "triton-tls" not in str(manifests("", *LIGHT))
    assert "TRITON_TLS" not in str(manifests("", *LIGHT))

"""A process finds its API server by what it was given, or says what is missing."""

import base64
import ssl
from pathlib import Path

import pytest
import yaml

from service.cluster import access, place
from service.cluster.errors import AccessError

CERTIFICATE = ssl.get_default_verify_paths().cafile


def account(folder: Path, authority: str) -> Path:
    (folder / "ca.crt").write_text(authority)
    (folder / "token").write_text("first\n")
    (folder / "namespace").write_text("models")
    return folder


@pytest.fixture
def authority() -> str:
    if CERTIFICATE is None or not Path(CERTIFICATE).exists():
        pytest.skip("this machine has no file of certificates")
    text = Path(CERTIFICATE).read_text(encoding="utf-8")
    end = "-----END CERTIFICATE-----"
    return text[: text.index(end) + len(end)] + "\n"


def config(folder: Path, **changed: object) -> dict[str, str]:
    said = {
        "current-context": "mine",
        "contexts": [{"name": "mine", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://10.0.0.1:6443/"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        **changed,
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(said))
    return {"KUBECONFIG": str(path)}


def test_a_pod_signs_in_by_its_service_account_and_a_renewed_token_counts(
    tmp_path: Path, authority: str
) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = access.found(environment, account=account(tmp_path, authority))
    assert (found.server, found.namespace) == ("https://10.96.0.1:6443", "models")
    assert found.authorization() == "Bearer first"
    (tmp_path / "token").write_text("second")
    assert found.authorization() == "Bearer second"
    (tmp_path / "token").unlink()
    with pytest.raises(AccessError, match="token"):
        found.authorization()


def test_an_address_of_ip_6_stands_in_brackets(tmp_path: Path, authority: str) -> None:
    found = access.in_pod("fd00::1", "443", account(tmp_path, authority))
    assert found.server == "https://[fd00::1]:443"


def test_a_pod_without_an_account_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="automountServiceAccountToken"):
        access.found({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, account=tmp_path)


def test_a_kubeconfig_wins_over_the_pods_account(tmp_path: Path) -> None:
    environment = {**config(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    found = access.found(environment)
    assert (found.server, found.namespace) == ("http://10.0.0.1:6443", "default")
    assert found.authorization() == "Bearer t"


def test_without_any_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="set KUBECONFIG"):
        access.found({"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"current-context": "other"}, "other"),
        ({"users": []}, "no user is called u"),
        ({"users": [{"name": "u", "user": {"exec": {"command": "aws"}}}]}, "by a program"),
        ({"clusters": [{"name": "k", "cluster": {}}]}, "server"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_says_why(
    tmp_path: Path, changed: dict[str, object], why: str
) -> None:
    with pytest.raises(AccessError, match=why):
        access.found(config(tmp_path, **changed))


def test_certificates_may_be_in_the_kubeconfig(tmp_path: Path, authority: str) -> None:
    data = base64.b64encode(authority.encode()).decode()
    cluster = {"server": "https://10.0.0.1:6443", "certificate-authority-data": data}
    found = access.found(config(tmp_path, clusters=[{"name": "k", "cluster": cluster}]))
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert len(found.tls.get_ca_certs()) == 1


def test_a_flag_names_a_namespace_or_a_folder(tmp_path: Path) -> None:
    environment = config(tmp_path)
    assert place.in_cluster("kubernetes://models")
    assert not place.in_cluster("/var/lib/endpoints")
    assert place.opened("kubernetes://models", environment).namespace == "models"
    assert place.opened("kubernetes://", environment).namespace == "default"

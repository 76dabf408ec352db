"""A process finds its API server by what it was given, or says what is missing."""

import base64
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import certificates
import pytest
import yaml
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes

from gateway.state import pod_reader
from gateway.state.pod_reader import PodReader
from gateway.state.sources import open_namespace
from service.cluster import access, reports
from service.cluster.client import ClusterClient
from service.cluster.collection import Reader
from service.cluster.errors import AccessError, ApiUnavailableError

LEASES = reports.collection(NAMESPACE)
Connected = Callable[..., Reader]

BOTH = pytest.mark.parametrize("connected", [access.connect, pod_reader.connected])


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    with fake_kubernetes(certificates.write(tmp_path, "the API server")) as server:
        yield server


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """As the kubelet mounts it."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "ca.crt").write_bytes((tmp_path / "tls.crt").read_bytes())
    (folder / "token").write_text("first")
    (folder / "namespace").write_text("models")
    return folder


def of_pod(fake: Fake) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(fake.port)}


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


def trusted(fake: Fake, folder: Path) -> list[dict[str, object]]:
    """The cluster of the server, whose certificate the kubeconfig holds."""
    data = base64.b64encode((folder / "tls.crt").read_bytes()).decode()
    cluster = {"server": fake.server, "certificate-authority-data": data}
    return [{"name": "k", "cluster": cluster}]


@BOTH
def test_a_pod_signs_in_by_its_service_account_and_a_renewed_token_counts(
    fake: Fake, account: Path, connected: Connected
) -> None:
    found = connected(of_pod(fake), account=account)
    assert found.list(LEASES) == ([], str(fake.world.number))
    (account / "token").write_text("second")
    found.list(LEASES)
    assert [said.lower() for said in fake.world.signed_in] == ["bearer first", "bearer second"]


@BOTH
def test_a_watch_over_tls_ends_for_its_reader_when_it_is_closed(
    fake: Fake, account: Path, connected: Connected
) -> None:
    stream = connected(of_pod(fake), account=account).watch(
        LEASES, str(fake.world.number), seconds=60, most_seconds=60
    )
    reading = threading.Event()
    ended: list[str] = []

    def read() -> None:
        reading.set()
        try:
            ended.extend(kind for kind, _ in stream.events())
        except ApiUnavailableError:
            ended.append("broken")

    reader = threading.Thread(target=read)
    reader.start()
    reading.wait()
    while reader.is_alive():
        stream.close()
        reader.join(0.1)
    assert ended in ([], ["broken"])


@BOTH
def test_who_is_not_who_the_account_says_is_not_spoken_to(
    fake: Fake, account: Path, connected: Connected
) -> None:
    other = account / "other"
    other.mkdir()
    (account / "ca.crt").write_bytes(certificates.write(other, "another")[0].read_bytes())
    with pytest.raises(ApiUnavailableError, match=r"(?i)certificate"):
        connected(of_pod(fake), account=account).list(LEASES)
    assert fake.world.asked == []


@BOTH
def test_a_pod_asks_its_own_api_server_past_every_proxy(
    fake: Fake, account: Path, monkeypatch: pytest.MonkeyPatch, connected: Connected
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    connected(of_pod(fake), account=account).list(LEASES)
    assert fake.world.asked == [f"GET {LEASES.path}"]


@BOTH
def test_a_pod_without_an_account_is_told_so(tmp_path: Path, connected: Connected) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(AccessError, match="automountServiceAccountToken"):
        connected(environment, account=tmp_path)


@BOTH
def test_an_account_that_is_taken_away_is_an_error_that_says_so(
    fake: Fake, account: Path, connected: Connected
) -> None:
    found = connected(of_pod(fake), account=account)
    (account / "token").unlink()
    with pytest.raises(AccessError, match="token"):
        found.list(LEASES)


def test_a_gateway_in_a_pod_has_a_reader_of_its_own_and_elsewhere_the_official_client(
    fake: Fake, account: Path, tmp_path: Path
) -> None:
    inside = open_namespace("kubernetes://", of_pod(fake), account=account)
    assert isinstance(inside.reader, PodReader)
    assert inside.name == "models"
    outside = open_namespace("kubernetes://a", {**of_pod(fake), **config(tmp_path)})
    assert isinstance(outside.reader, ClusterClient)
    assert outside.name == "a"


@pytest.mark.slow
def test_a_gateway_does_not_pay_for_the_official_client() -> None:
    said = "import gateway.main, sys; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", said], check=False).returncode == 0


def test_a_kubeconfig_wins_over_the_pods_account(fake: Fake, tmp_path: Path) -> None:
    environment = {**config(tmp_path, clusters=trusted(fake, tmp_path)), **of_pod(fake)}
    found = access.connect(environment)
    found.list(LEASES)
    assert found.namespace == "default"
    assert fake.world.signed_in == ["Bearer t"]


def test_without_any_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="set KUBECONFIG"):
        access.connect({"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"current-context": "other"}, "other"),
        ({"clusters": []}, "k"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_says_why(
    tmp_path: Path, changed: dict[str, object], why: str
) -> None:
    with pytest.raises(AccessError, match=f"kubeconfig .* can't be used: .*{why}"):
        access.connect(config(tmp_path, **changed))


@pytest.mark.parametrize("said", ["", "a: [", "just words"])
def test_what_is_no_kubeconfig_is_said_to_be_none(tmp_path: Path, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(said)
    with pytest.raises(AccessError, match="can't be used"):
        access.connect({"KUBECONFIG": str(path)})
    with pytest.raises(AccessError, match="can't be used"):
        access.connect({"KUBECONFIG": str(tmp_path / "none")})


def test_a_flag_names_a_namespace_or_a_folder(tmp_path: Path) -> None:
    environment = config(tmp_path)
    assert access.in_cluster("kubernetes://models")
    assert not access.in_cluster("/var/lib/endpoints")
    assert access.open_namespace("kubernetes://models", environment).name == "models"
    assert access.open_namespace("kubernetes://", environment).name == "default"


# Users whose credentials a program gives, as those of EKS, GKE and AKS

_PLUGIN = """\
#!/bin/sh
echo "$KUBERNETES_EXEC_INFO" >>{folder}/asked
test "$1" = get-token || exit 3
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
  "status": {{"token": "'"$CLOUD_TOKEN"'"}}}}'
"""


def by_program(folder: Path, server: str, **changed: object) -> dict[str, str]:
    """A kubeconfig as a cloud's own command writes it."""
    program = folder / "cloud"
    program.write_text(_PLUGIN.format(folder=folder))
    program.chmod(0o755)
    how = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(program),
        "args": ["get-token"],
        "env": [{"name": "CLOUD_TOKEN", "value": "given"}],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
        **changed,
    }
    return config(
        folder,
        clusters=[{"name": "k", "cluster": {"server": server}}],
        users=[{"name": "u", "user": {"exec": how}}],
    )


@pytest.fixture
def plain() -> Iterator[Fake]:
    with fake_kubernetes() as server:
        yield server


def test_a_users_program_gives_the_token(plain: Fake, tmp_path: Path) -> None:
    access.connect(by_program(tmp_path, plain.server)).list(LEASES)
    assert set(plain.world.signed_in) == {"Bearer given"}
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert plain.server in asked  # provideClusterInfo, which GKE's needs


def test_a_users_program_may_lie_beside_the_kubeconfig(plain: Fake, tmp_path: Path) -> None:
    access.connect(by_program(tmp_path, plain.server, command="./cloud")).list(LEASES)
    assert set(plain.world.signed_in) == {"Bearer given"}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"command": "no-such-program"}, "no-such-program"),
        ({"args": []}, "returned 3"),
        ({"apiVersion": "client.authentication.k8s.io/v1beta1"}, "does not match"),
    ],
)
def test_a_users_program_that_gives_no_credentials_is_named_with_the_reason(
    tmp_path: Path, changed: dict[str, object], why: str
) -> None:
    environment = by_program(tmp_path, "http://10.0.0.1", **changed)
    with pytest.raises(AccessError, match=f"of the user u gave no credentials: .*{why}"):
        access.connect(environment)


# Contexts, and several files


def two_files(folder: Path) -> dict[str, str]:
    """Each with a context; the first one's is current, as kubectl reads it."""
    paths = []
    for number, name in enumerate(("work", "home")):
        below = folder / name
        below.mkdir()
        context = {"cluster": "k" + name, "user": "u", "namespace": f"of-{name}"}
        cluster = {"server": f"http://10.0.0.{number + 1}"}
        said = config(
            below,
            **{
                "current-context": name,
                "contexts": [{"name": name, "context": context}],
                "clusters": [{"name": "k" + name, "cluster": cluster}],
            },
        )
        paths.append(said["KUBECONFIG"])
    return {"KUBECONFIG": ":".join([*paths, str(folder / "not-there")])}


def test_of_several_kubeconfigs_the_first_current_context_counts(tmp_path: Path) -> None:
    environment = two_files(tmp_path)
    assert access.connect(environment).namespace == "of-work"
    assert access.connect(environment, context="home").namespace == "of-home"
    assert access.contexts(environment) == ("work", "home")


def test_a_context_that_is_named_wins_over_the_pods_account(tmp_path: Path) -> None:
    environment = {**config(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.9"}
    home = tmp_path / ".kube"
    home.mkdir()
    Path(environment.pop("KUBECONFIG")).rename(home / "config")
    environment["HOME"] = str(tmp_path)
    assert access.connect(environment, context="mine").namespace == "default"


def test_a_kubeconfig_without_a_current_context_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="no context is current of these: mine"):
        access.connect(config(tmp_path, **{"current-context": ""}))

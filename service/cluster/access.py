"""From what a flag and the environment say to a client of a cluster.

Inside a pod the service account that the kubelet mounts is used, elsewhere the kubeconfig, both
read by the official client: certificates, tokens that are renewed, programs that give credentials,
and proxies work as they do for kubectl. It makes no call of the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.cluster.client import ClusterClient, official
from service.cluster.errors import AccessError

SCHEME = "kubernetes://"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of a cluster."""

    client: ClusterClient
    name: str


def in_cluster(flag: str) -> bool:
    """Whether a flag names a namespace rather than a folder."""
    return flag.startswith(SCHEME)


def named(flag: str) -> str:
    """The namespace that a flag names; empty: this process's own."""
    return flag.removeprefix(SCHEME).strip("/")


def opened(flag: str, environment: Mapping[str, str]) -> Namespace:
    """The namespace that a flag names; without a name, this process's own.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    client = connected(environment)
    return Namespace(client, named(flag) or client.namespace)


def in_pod(environment: Mapping[str, str]) -> bool:
    """Whether a pod's service account is what signs in: a kubeconfig that is named comes first."""
    return not environment.get("KUBECONFIG") and bool(environment.get("KUBERNETES_SERVICE_HOST"))


def own_namespace(account: Path = ACCOUNT) -> str:
    """The namespace of the pod that this process runs in; raises ``AccessError``."""
    try:
        return (account / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise not_mounted(account, error) from error


def not_mounted(account: Path, error: Exception) -> AccessError:
    """What to say where the service account can't be used."""
    return AccessError(
        f"no service account is mounted at {account} (automountServiceAccountToken): {error}"
    )


def connected(environment: Mapping[str, str], *, account: Path = ACCOUNT) -> ClusterClient:
    """A client with what this process was given: ``KUBECONFIG``, else its pod's service account.

    Raises:
        AccessError: there is none, or it can't be used; the message says what to do.
    """
    configuration = official().client.Configuration()
    if in_pod(environment):
        return _of_pod(configuration, environment, account)
    path = environment.get("KUBECONFIG", "")
    if not path:
        home = Path(environment.get("HOME", "/"), ".kube", "config")
        if not home.exists():
            raise AccessError(
                "no Kubernetes is known here: set KUBECONFIG, "
                "or run in a pod with a service account"
            )
        path = str(home)
    return _of_kubeconfig(configuration, path)


def _of_pod(
    configuration: Any,  # noqa: ANN401 - kubernetes.client.Configuration
    environment: Mapping[str, str],
    account: Path,
) -> ClusterClient:
    config = official().config
    loader = config.incluster_config.InClusterConfigLoader(
        token_filename=str(account / "token"),
        cert_filename=str(account / "ca.crt"),
        try_refresh_token=False,
        environ=environment,
    )
    try:
        loader.load_and_set(configuration)
    except (OSError, config.ConfigException) as error:
        raise not_mounted(account, error) from error
    # The kubelet renews the token. The loader's own way would keep a read one for a minute.
    configuration.refresh_api_key_hook = loader.load_and_set
    # A pod's proxy is for what lies outside of the cluster.
    configuration.proxy = None
    return ClusterClient(configuration, namespace=own_namespace(account))


def _of_kubeconfig(
    configuration: Any,  # noqa: ANN401 - kubernetes.client.Configuration
    path: str,
) -> ClusterClient:
    from yaml import YAMLError  # noqa: PLC0415 - with the official client, or not at all

    config = official().config
    try:
        config.load_kube_config(path, client_configuration=configuration)
        _, context = config.list_kube_config_contexts(path)
    except (
        config.ConfigException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        YAMLError,
    ) as error:
        raise AccessError(f"the kubeconfig {path} can't be used: {error}") from error
    namespace = context["context"].get("namespace") or "default"
    return ClusterClient(configuration, namespace=namespace)

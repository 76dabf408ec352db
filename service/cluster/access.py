"""From what a flag and the environment say to a client of a cluster.

Inside a pod the service account that the kubelet mounts is used, elsewhere the kubeconfig, both
read by the official client: certificates, tokens that are renewed, programs that give credentials,
and proxies work as they do for kubectl. It makes no call of the API.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.cluster.client import ClusterClient, official
from service.cluster.errors import AccessError

SCHEME = "kubernetes://"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class ClusterNamespace:
    """A namespace of a cluster."""

    client: ClusterClient
    name: str


def in_cluster(flag: str) -> bool:
    """Whether a flag names a namespace rather than a folder."""
    return flag.startswith(SCHEME)


def namespace_of(flag: str) -> str:
    """The namespace that a flag names; empty: this process's own."""
    return flag.removeprefix(SCHEME).strip("/")


def open_namespace(
    flag: str, environment: Mapping[str, str], *, context: str | None = None
) -> ClusterNamespace:
    """The namespace that a flag names; without a name, this process's own.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    client = connect(environment, context=context)
    return ClusterNamespace(client, namespace_of(flag) or client.namespace)


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
    """What to say if the service account can't be used."""
    return AccessError(
        f"no service account is mounted at {account} (automountServiceAccountToken): {error}"
    )


def connect(
    environment: Mapping[str, str], *, account: Path = ACCOUNT, context: str | None = None
) -> ClusterClient:
    """A client with what this process was given: ``KUBECONFIG``, else its pod's service account.

    ``context`` names one of the kubeconfig's; by default its current one.

    Raises:
        AccessError: there is none, or it can't be used; the message says what to do.
    """
    if context is None and in_pod(environment):
        return _of_pod(official().client.Configuration(), environment, account)
    return _of_kubeconfig(_kubeconfig(environment), context)


def contexts(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the kubeconfig's contexts; raises ``AccessError``."""
    path = _kubeconfig(environment)
    with _translate_errors(path):
        return tuple(item["name"] for item in _merge(path)["contexts"].value)


def namespaces_of_contexts(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The namespaces that contexts of the kubeconfig name; raises ``AccessError``."""
    path = _kubeconfig(environment)
    with _translate_errors(path):
        named = (item["context"].safe_get("namespace") for item in _merge(path)["contexts"].value)
        return tuple(dict.fromkeys(str(name) for name in named if name))


def _kubeconfig(environment: Mapping[str, str]) -> str:
    """The file, or the files with colons between them, as ``KUBECONFIG`` lists them."""
    path = environment.get("KUBECONFIG", "")
    if not path:
        home = Path(environment.get("HOME", "/"), ".kube", "config")
        if not home.exists():
            raise AccessError(
                "no Kubernetes is known here: set KUBECONFIG, "
                "or run in a pod with a service account"
            )
        path = str(home)
    return path


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


def _of_kubeconfig(path: str, context: str | None) -> ClusterClient:
    configuration = official().client.Configuration()
    with _translate_errors(path), _collected_errors() as said:
        merged = _merge(path)
        name = context or _current_context(path)
        known = {item["name"]: item["context"] for item in merged["contexts"].value}
        if name not in known:
            raise AccessError(_no_context(path, name, list(known)))
        official().config.load_kube_config(path, context=name, client_configuration=configuration)
        user = merged["users"].get_with_name(known[name].safe_get("user") or "", safe=True)
        if user is not None and "exec" in user["user"]:
            _check_signed_in(configuration, user, said)
    return ClusterClient(configuration, namespace=known[name].safe_get("namespace") or "default")


def _merge(path: str) -> Any:  # noqa: ANN401 - kubernetes.config.kube_config.ConfigNode
    """The lists of all files together; of entries with one name the first counts."""
    merged = official().config.kube_config.KubeConfigMerger(path).config
    if merged is None:
        raise AccessError(f"the kubeconfig {path} can't be used: there is no such file")
    return merged


def _current_context(path: str) -> str:
    """The first that a file names, as for kubectl; the official client takes the last."""
    files = official().config.kube_config.KubeConfigMerger(path).config_files.values()
    return next((str(file["current-context"]) for file in files if file.get("current-context")), "")


def _no_context(path: str, name: str, known: list[str]) -> str:
    there_are = ", ".join(known) or "none"
    if not name:
        return f"the kubeconfig {path} can't be used: no context is current of these: {there_are}"
    return f"the kubeconfig {path} can't be used: it has no context {name}, but: {there_are}"


def _check_signed_in(
    configuration: Any,  # noqa: ANN401 - kubernetes.client.Configuration
    user: Any,  # noqa: ANN401 - ConfigNode
    said: list[str],
) -> None:
    """The official client goes on as nobody if a user's program gave no credentials."""
    if configuration.api_key or configuration.cert_file:
        return
    program = user["user"]["exec"].safe_get("command")
    raise AccessError(
        f"the program {program} of the user {user['name']} gave no credentials"
        + (f": {'; '.join(said)}" if said else "")
    )


class _ErrorCollector(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def _collected_errors() -> Iterator[list[str]]:
    """What the official client says of a program that fails, which it only logs."""
    root, handler = logging.getLogger(), _ErrorCollector()
    root.addHandler(handler)
    try:
        yield handler.said
    finally:
        root.removeHandler(handler)


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Gives what reading a kubeconfig may raise as our error."""
    from yaml import YAMLError  # noqa: PLC0415 - with the official client, or not at all

    try:
        yield
    except AccessError:
        raise
    except (
        official().config.ConfigException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        YAMLError,
    ) as error:
        raise AccessError(f"the kubeconfig {path} can't be used: {error}") from error

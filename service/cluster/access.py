"""Where the API server is, and how this process signs in.

Called by the mains, which hand in the environment that they read. Inside a pod the service account
that the kubelet mounts is used, elsewhere the kubeconfig. It makes no call.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.cluster.errors import AccessError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """One API server and one way to sign in.

    Attributes:
        server: its URL.
        tls: None for plain HTTP, which is for tests.
        token: a bearer token that does not change.
        token_file: one that does: the kubelet renews it, so that it is read for each call.
        namespace: this process's own.
    """

    server: str
    tls: ssl.SSLContext | None = None
    token: str = ""
    token_file: Path | None = None
    namespace: str = "default"

    def authorization(self) -> str:
        """The header's value now; empty where a certificate signs in.

        Raises:
            AccessError: the token can't be read.
        """
        token = self.token
        if self.token_file is not None:
            try:
                token = self.token_file.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise AccessError(f"the API token can't be read: {error}") from error
        return f"Bearer {token}" if token else ""


def found(environment: Mapping[str, str], *, account: Path = ACCOUNT) -> Access:
    """The access that this process was given: ``KUBECONFIG``, else its pod's service account.

    Args:
        environment: of the process.
        account: where the kubelet mounts the service account.

    Raises:
        AccessError: there is none, or it can't be used; the message says what to do.
    """
    config = environment.get("KUBECONFIG", "")
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    home = Path(environment.get("HOME", "/"), ".kube", "config")
    if not config and host:
        return in_pod(host, environment.get("KUBERNETES_SERVICE_PORT", "443"), account)
    if not config and not home.exists():
        raise AccessError(
            "no Kubernetes is known here: set KUBECONFIG, or run in a pod with a service account"
        )
    try:  # outside of pods alone: images of services hold no YAML
        from service.cluster.kubeconfig import read  # noqa: PLC0415
    except ImportError as error:
        raise AccessError(f"a kubeconfig needs PyYAML, as headrace[cli] brings: {error}") from error
    return read(Path(config) if config else home)


def in_pod(host: str, port: str, account: Path) -> Access:
    """The access of a pod's service account.

    Raises:
        AccessError: none is mounted.
    """
    try:
        tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        namespace = (account / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise AccessError(
            f"no service account is mounted at {account} (automountServiceAccountToken): {error}"
        ) from error
    address = f"[{host}]" if ":" in host else host
    return Access(
        f"https://{address}:{port}",
        tls=tls,
        token_file=account / "token",
        namespace=namespace,
    )

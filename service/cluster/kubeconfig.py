"""Reads a kubeconfig: for commands and tests outside of the cluster.

Called by ``access.py``. Certificates and tokens are understood; programs that make tokens are not,
and it says so.
"""

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Any

import yaml

from service.cluster.access import Access
from service.cluster.errors import AccessError

_Part = dict[str, Any]


def read(path: Path) -> Access:
    """The access of the file's current context.

    Raises:
        AccessError: the file can't be used.
    """
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _named(config, "contexts", "context", config["current-context"])
        cluster = _named(config, "clusters", "cluster", context["cluster"])
        user = _named(config, "users", "user", context["user"])
        access = Access(
            str(cluster["server"]).rstrip("/"),
            tls=_tls(cluster, user, path.parent),
            token=str(user.get("token", "")),
            token_file=path.parent / user["tokenFile"] if "tokenFile" in user else None,
            namespace=str(context.get("namespace", "default")),
        )
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise AccessError(f"the kubeconfig {path} can't be used: {error!r}") from error
    if "exec" in user or "auth-provider" in user:
        raise AccessError(
            f"the kubeconfig {path} signs in by a program, which is not supported here: "
            "use one with a certificate or a token"
        )
    return access


def _named(config: _Part, kind: str, inner: str, name: str) -> _Part:
    for entry in config[kind]:
        if entry["name"] == name:
            part: _Part = entry[inner]
            return part
    raise ValueError(f"no {inner} is called {name}")


def _tls(cluster: _Part, user: _Part, folder: Path) -> ssl.SSLContext | None:
    if not str(cluster["server"]).startswith("https:"):
        return None
    authority = _bytes(cluster, "certificate-authority", folder)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate = _bytes(user, "client-certificate", folder)
    key = _bytes(user, "client-key", folder)
    if certificate and key:
        with tempfile.NamedTemporaryFile() as file:  # ssl reads keys from files alone
            file.write(certificate + b"\n" + key)
            file.flush()
            tls.load_cert_chain(file.name)
    return tls


def _bytes(part: _Part, name: str, folder: Path) -> bytes:
    """What the config holds itself, or names a file of; empty where neither."""
    if f"{name}-data" in part:
        return base64.b64decode(part[f"{name}-data"])
    if name in part:
        return Path(folder, part[name]).read_bytes()
    return b""

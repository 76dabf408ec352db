"""The servers of a run, each real: etcd with a kube-apiserver, Kafka, and roles of Headrace.

All listen on 127.0.0.1 at free ports, keep what they store in one folder, and end with the run.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import kubernetes
import psutil
import yaml
from own_servers import KafkaProcess

from bench.processes import free_port, started
from headrace.stack.kafka import KafkaNode, prepare

_FILES = Path(__file__).parents[3] / "charts" / "headrace" / "files"
DEFINITIONS = (_FILES / "modelendpoints.crd.yaml", _FILES / "endpointrecords.crd.yaml")
HOST = "127.0.0.1"
_START_SECONDS = 120.0
_STOP_SECONDS = 20.0


@dataclass(frozen=True)
class ApiServer:
    """An API server that answers.

    Attributes:
        port: of HTTPS on 127.0.0.1.
        account: folder with ``ca.crt``, ``token`` and ``namespace``, as a pod has one.
        kubeconfig: for the official client.
        metrics: of etcd.
        pids: of kube-apiserver and etcd.
    """

    port: int
    account: Path
    kubeconfig: Path
    metrics: str
    pids: Mapping[str, int]

    @property
    def outside(self) -> dict[str, str]:
        """The environment of a process that signs in by a kubeconfig."""
        return {"KUBECONFIG": str(self.kubeconfig)}

    @property
    def inside(self) -> dict[str, str]:
        """The environment of a process that signs in as a pod does."""
        return {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(self.port)}


@contextmanager
def api_server(binaries: str, folder: Path, namespace: str) -> Iterator[ApiServer]:
    """An etcd and a kube-apiserver with our definition and an empty namespace.

    ``binaries`` is a folder where they are looked for before those of PATH.
    """
    folder.mkdir(parents=True)
    client, peer, secure = free_port(), free_port(), free_port()
    certificate, key = folder / "ca.crt", folder / "tls.key"
    token = secrets.token_hex(16)
    (folder / "token").write_text(token)
    (folder / "namespace").write_text(namespace)
    (folder / "tokens.csv").write_text(f'{token},bench,bench,"system:masters"\n')
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=bench", "-addext", f"subjectAltName=IP:{HOST}", "-keyout", str(key), "-out",
         str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    url = f"http://{HOST}:{client}"
    with ExitStack() as stack:
        etcd = stack.enter_context(
            started(
                [
                    _program("etcd", binaries), "--data-dir", str(folder / "etcd"),
                    "--log-level", "error",
                    "--listen-client-urls", url, "--advertise-client-urls", url,
                    "--listen-peer-urls", f"http://{HOST}:{peer}",
                ],
                folder / "etcd.log",
            )
        )  # fmt: skip
        _until(lambda: _answers(f"{url}/health"), "etcd", folder / "etcd.log")
        server = stack.enter_context(
            started(
                [
                    _program("kube-apiserver", binaries), f"--etcd-servers={url}",
                    f"--bind-address={HOST}", f"--advertise-address={HOST}",
                    f"--secure-port={secure}", f"--tls-cert-file={certificate}",
                    f"--tls-private-key-file={key}", f"--token-auth-file={folder / 'tokens.csv'}",
                    "--authorization-mode=AlwaysAllow", "--service-cluster-ip-range=10.0.0.0/24",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    f"--service-account-key-file={key}",
                    f"--service-account-signing-key-file={key}",
                    "--disable-admission-plugins=ServiceAccount",
                ],
                folder / "apiserver.log",
            )
        )  # fmt: skip
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(secure, certificate, token, namespace)))
        _until(lambda: _ready(kubeconfig), "kube-apiserver", folder / "apiserver.log")
        _define(kubeconfig, namespace)
        yield ApiServer(
            port=secure,
            account=folder,
            kubeconfig=kubeconfig,
            metrics=f"{url}/metrics",
            pids={"apiserver": server.pid, "etcd": etcd.pid},
        )


@contextmanager
def kafka(folder: Path) -> Iterator[KafkaProcess]:
    """A broker, of what ``make .venv/.parts`` fetched."""
    cache = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
    node = KafkaNode(folder, port=free_port(), controller_port=free_port(), heap_megabytes=512)
    broker = KafkaProcess(prepare(cache), node)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules."""
    return [sys.executable, "-P", "-m", name, *arguments]


def scraped(url: str, *names: str) -> dict[str, float]:
    """These metrics without labels, or summed over them; 0 of one that is not there."""
    found = dict.fromkeys(names, 0.0)
    for line in httpx.get(url, timeout=30, trust_env=False).text.splitlines():
        name = line.partition(" ")[0].partition("{")[0]
        if name in found:
            found[name] += float(line.rpartition(" ")[2])
    return found


class Usage:
    """Processor time of processes from here on, and their memory."""

    def __init__(self, pids: Mapping[str, Sequence[int]]) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._before = self._cpu()

    def figures(self) -> dict[str, float]:
        """``NAME_cores`` and ``NAME_megabytes`` of each name, of the process that has most."""
        took = time.monotonic() - self._began
        after = self._cpu()
        found = {}
        for name, pids in self._pids.items():
            found[f"{name}_cores"] = max(after[pid] - self._before[pid] for pid in pids) / took
            found[f"{name}_megabytes"] = max(psutil.Process(pid).memory_info().rss for pid in pids)
            found[f"{name}_megabytes"] /= 1 << 20
        return found

    def _cpu(self) -> dict[int, float]:
        times = {pid: psutil.Process(pid).cpu_times() for one in self._pids.values() for pid in one}
        return {pid: used.user + used.system for pid, used in times.items()}


def _program(name: str, folder: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((folder, os.environ.get("PATH", ""))))
    if found is None:
        raise RuntimeError(f"{name} is not on PATH: name its folder by --binaries")
    return found


def _kubeconfig(port: int, authority: Path, token: str, namespace: str) -> dict[str, Any]:
    cluster = {"server": f"https://{HOST}:{port}", "certificate-authority": str(authority)}
    context = {"cluster": "bench", "user": "bench", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": token}}],
        "contexts": [{"name": "bench", "context": context}],
    }


def _ready(kubeconfig: Path) -> bool:
    with kubernetes.config.new_client_from_config(str(kubeconfig)) as api:
        try:
            kubernetes.client.CoreV1Api(api).list_namespace(_request_timeout=5)
        except Exception:  # noqa: BLE001 - it may be anything while the server starts
            return False
    return True


def _define(kubeconfig: Path, namespace: str) -> None:
    with kubernetes.config.new_client_from_config(str(kubeconfig)) as api:
        kubernetes.client.CoreV1Api(api).create_namespace({"metadata": {"name": namespace}})
        for file in DEFINITIONS:
            _define_kind(api, yaml.safe_load(file.read_text(encoding="utf-8")), namespace)


def _define_kind(api: kubernetes.client.ApiClient, body: dict[str, Any], namespace: str) -> None:
    kubernetes.client.ApiextensionsV1Api(api).create_custom_resource_definition(body)
    objects = kubernetes.client.CustomObjectsApi(api)
    spec = body["spec"]
    where = (spec["group"], spec["versions"][0]["name"], namespace, spec["names"]["plural"])

    def established() -> bool:
        try:
            objects.list_namespaced_custom_object(*where)
        except kubernetes.client.ApiException:
            return False
        return True

    _until(established, f"the definition of {spec['names']['kind']}", None)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _until(done: Callable[[], bool], what: str, log: Path | None) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not done():
        if time.monotonic() > deadline:
            words = log.read_text(errors="replace")[-2000:] if log is not None else ""
            raise RuntimeError(f"{what} did not get ready: {words}")
        time.sleep(0.2)

"""Pods of an installation: which are not well and why, and a page of one of them.

A page is asked through a port forward of the kubelet, as ``kubectl port-forward`` does it: network
policies may keep everything else from a pod's port, the API server's own proxy too.
"""

import functools
import http.client
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from service.cluster import errors
from service.cluster.client import ClusterClient
from service.cluster.errors import ApiUnavailableError

LABEL_OF_COMPONENT = "app.kubernetes.io/component"
_SELECTOR = "app.kubernetes.io/part-of=headrace"
_CREATING = ("ContainerCreating", "PodInitializing")  # said too while a volume is not mounted
_OVER = ("Succeeded", "Failed")  # phases of a Job's pod that ended: its Job tells the rest
_RECENT_SECONDS = 600.0
_FORWARDING = "Kubernetes port forward proxy"  # begins the name of such a thread
_REFUSED = "connection refused"
_MOST = 160  # characters of a message


@dataclass(frozen=True)
class Pod:
    """A pod that should run.

    Attributes:
        name: of the pod.
        component: which part of Headrace it is, as the chart labels it.
        ready: as the kubelet says.
        said: why it is not ready, or how a container of it ended in the last ten minutes.
    """

    name: str
    component: str
    ready: bool
    said: str = ""


def of_installation(client: ClusterClient, namespace: str, now: float) -> tuple[Pod, ...]:
    """Headrace's pods in a namespace, by name; raises as ``ClusterClient.ask``."""
    found = client.ask(client.core.list_namespaced_pod, namespace, label_selector=_SELECTOR)
    read = (_read(item, now) for item in found.get("items") or ())
    pods = sorted((pod for pod in read if pod is not None), key=lambda pod: pod.name)
    if any(word in pod.said for pod in pods for word in _CREATING):
        failed = _failed_mounts(client, namespace)
        pods = [
            replace(pod, said=f"{pod.said}; {failed[pod.name]}")
            if pod.name in failed and not pod.ready
            else pod
            for pod in pods
        ]
    return tuple(pods)


def page(
    client: ClusterClient, namespace: str, pod: str, port: int, path: str, *, seconds: float
) -> tuple[int, str]:
    """Status and text of a page that a pod serves over HTTP.

    Raises:
        OSError: no answer in time, or none that is HTTP; and as ``ClusterClient.ask``.
    """
    from kubernetes import stream  # noqa: PLC0415 - of the official client, large

    _silence_forwarding()
    try:
        with client.asking(f"port-forward {pod}"):
            forward = stream.portforward(
                client.core.connect_get_namespaced_pod_portforward,
                pod,
                namespace,
                ports=str(port),
                _request_timeout=seconds,
            )
    except ApiUnavailableError as error:
        # The client of WebSockets has its refusals only in words.
        if refused := re.search(r"Handshake status (4\d\d)", str(error)):
            status = int(refused[1])
            raise errors.of_status(status, f"port-forward {pod}: {status}") from error
        raise
    try:
        socket = forward.socket(port)
        socket.settimeout(seconds)
        connection = _ForwardedConnection(socket, seconds)
        connection.request("GET", path, headers={"connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (http.client.HTTPException, OSError) as error:
        # The kubelet's own words name what it runs on and little else.
        said = forward.error(port) or error or type(error).__name__
        why = _REFUSED if _REFUSED in str(said) else _first_line(said)
        raise OSError(f"port {port} of {pod} does not answer: {why}") from error
    finally:
        forward.close()


@functools.cache
def _silence_forwarding() -> None:
    """Keeps the official client's forwarding threads from writing to a terminal how they end.

    Each ends by an error if the other side closes first; what matters of it is raised by the
    socket that is read here.
    """
    usual = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        if raised.thread is None or not raised.thread.name.startswith(_FORWARDING):
            usual(raised)

    threading.excepthook = hook


class _ForwardedConnection(http.client.HTTPConnection):
    """A connection that somebody else has made."""

    def __init__(self, made: Any, seconds: float) -> None:  # noqa: ANN401 - socket-like
        super().__init__("localhost", timeout=seconds)
        self._made = made

    def connect(self) -> None:
        """Takes what there is."""
        self.sock = self._made


def _read(item: Mapping[str, Any], now: float) -> Pod | None:
    """A pod as the API has it; None of one that has ended or is to end."""
    metadata, status = item.get("metadata") or {}, item.get("status") or {}
    if status.get("phase") in _OVER or metadata.get("deletionTimestamp"):
        return None
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    ready = (conditions.get("Ready") or {}).get("status") == "True"
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    said = [text for each in containers if (text := _of_container(each, now))]
    placed = conditions.get("PodScheduled") or {}
    if placed.get("status") == "False":
        said.append(
            f"not placed on a node: {_first_line(placed.get('message') or placed.get('reason'))}"
        )
    if not ready and not said:
        waits = _first_line((conditions.get("Ready") or {}).get("message"))
        said.append(waits or f"its phase is {status.get('phase') or 'not known'}")
    component = (metadata.get("labels") or {}).get(LABEL_OF_COMPONENT, "")
    return Pod(str(metadata.get("name", "")), str(component), ready, "; ".join(said))


def _failed_mounts(client: ClusterClient, namespace: str) -> dict[str, str]:
    """What Events say of volumes that can't be mounted, by pod; none if they may not be read."""
    selector = "involvedObject.kind=Pod,reason=FailedMount"
    try:
        found = client.ask(client.core.list_namespaced_event, namespace, field_selector=selector)
    except errors.ApiRefusedError:
        return {}
    events = sorted(found.get("items") or (), key=lambda each: str(each.get("lastTimestamp")))
    return {each["involvedObject"]["name"]: _first_line(each.get("message")) for each in events}


def _of_container(container: Mapping[str, Any], now: float) -> str:
    """What is wrong with a container, or was lately; empty if nothing is."""
    name = container.get("name", "")
    state, last = container.get("state") or {}, container.get("lastState") or {}
    words = []
    if waiting := state.get("waiting"):
        message = _first_line(waiting.get("message"))
        reason = waiting.get("reason") or "waiting"
        words.append(f"{name}: {reason}{f' ({message})' if message else ''}")
    ended = state.get("terminated") or {}
    if ended and ended.get("exitCode"):
        words.append(f"{name}: {_describe_ending(ended)}")
    before = last.get("terminated") or {}
    if before and now - _unix(before.get("finishedAt")) < _RECENT_SECONDS:
        words.append(f"{name} was restarted after {_describe_ending(before)}")
    return "; ".join(words)


def _describe_ending(ended: Mapping[str, Any]) -> str:
    reason = ended.get("reason") or "Error"
    return f"{reason}, exit code {ended.get('exitCode')}"


def _unix(time: object) -> float:
    """Seconds since 1970 of the API's time; 0 of none."""
    try:
        return datetime.fromisoformat(str(time)).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0


def _first_line(message: object) -> str:
    line = str(message or "").strip().partition("\n")[0]
    return line if len(line) <= _MOST else f"{line[: _MOST - 3]}..."

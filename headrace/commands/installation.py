"""What runs in a cluster's namespace: Headrace's pods, and what gateways say of themselves.

A pod that is ready may still have something to tell: a gateway whose users' code crashes, or whose
package can't be opened, goes on serving the rest, and says so on its page.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from headrace.commands.layout import Sentence, TableRow, rows
from headrace.stack import health
from service.cluster import pods
from service.cluster.access import ClusterNamespace
from service.cluster.errors import ApiRefusedError
from service.cluster.pods import Pod

GATEWAY = "gateway"
OPERATIONS_PORT = 9310  # of the chart's gateways
_PAGE_SECONDS = 3.0
_KEPT_SECONDS = 10.0
_AT_ONCE = 16


class Installation(msgspec.Struct, frozen=True):
    """Headrace's pods.

    Attributes:
        pods: all that should run.
        said: what is wrong, by a pod's name; those that are well are left out.
        unread: what could not be asked, as a sentence; empty if all could.
    """

    pods: tuple[Pod, ...] = ()
    said: dict[str, str] = {}
    unread: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "pods": [
                {
                    "pod": pod.name,
                    "component": pod.component,
                    "ready": pod.ready,
                    "said": self.said.get(pod.name, ""),
                }
                for pod in self.pods
            ],
            "unread": self.unread,
        }

    def draw(self) -> Any:  # noqa: ANN401 - what rich draws
        """A row for each pod with which something is wrong, and a sentence."""
        found = [
            TableRow((f"  {pod.name}", pod.component, self.said[pod.name]), style="yellow")
            for pod in self.pods
            if pod.name in self.said
        ]
        return rows((), found)

    def sentence(self) -> Sentence:
        """How many are well, and what could not be asked."""
        number, unready = len(self.pods), sum(not pod.ready for pod in self.pods)
        if not self.pods:
            return Sentence(self.unread or "No pod of Headrace runs there.", style="yellow")
        told = f"{number - unready} of {number} pods are ready."
        return Sentence(
            " ".join(filter(None, (told, self.unread))), style="yellow" if unready else ""
        )


class CachedInstallation:
    """Asks a namespace's pods at most every ten seconds, however often it is looked at."""

    def __init__(self, namespace: ClusterNamespace) -> None:
        self._namespace = namespace
        self._found: tuple[float, Installation] | None = None

    def ask(self, now: float) -> Installation:
        """As ``ask``; ``now`` in unix seconds."""
        if self._found is None or not 0 <= now - self._found[0] < _KEPT_SECONDS:
            self._found = now, ask(self._namespace, now)
        return self._found[1]


def ask(namespace: ClusterNamespace, now: float) -> Installation:
    """The pods of a namespace; raises ``ApiUnavailableError`` and ``AccessError``."""
    try:
        found = pods.of_installation(namespace.client, namespace.name, now)
    except ApiRefusedError as error:
        if error.status != 403:
            raise
        return Installation(unread="Pods are not shown: your account may not list them.")
    said = {pod.name: pod.said for pod in found if pod.said}
    gateways = [pod.name for pod in found if pod.component == GATEWAY and pod.ready]
    if not gateways:
        return Installation(found, said)
    with ThreadPoolExecutor(min(_AT_ONCE, len(gateways)), thread_name_prefix="pods") as threads:
        answers = dict(
            zip(gateways, threads.map(partial(_ask_gateway, namespace), gateways), strict=True)
        )
    unread = ""
    for name, answer in answers.items():
        if answer is None:
            unread = "What gateways say of themselves is not shown: it needs pods/portforward."
        elif answer:
            said[name] = "; ".join(filter(None, (said.get(name), answer)))
    return Installation(found, said, unread)


def _ask_gateway(namespace: ClusterNamespace, pod: str) -> str | None:
    """What a gateway says is wrong; None if the account may not ask."""
    try:
        status, text = pods.page(
            namespace.client, namespace.name, pod, OPERATIONS_PORT, "/readyz", seconds=_PAGE_SECONDS
        )
    except ApiRefusedError as error:
        return None if error.status == 403 else ""
    except OSError as error:
        return f"its page can't be asked: {error}"
    return health.of_page(status, text)

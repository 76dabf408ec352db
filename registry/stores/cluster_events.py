"""Makes a Kubernetes Event of each transition of an endpoint, for ``kubectl describe mep``.

An Event's name follows from its content, so that creating it twice does nothing. One that can't be
created is named in the log: the endpoint's own history is the record.
"""

import hashlib
import logging
from collections.abc import Iterator

from contracts.endpoint import EndpointStatus, Phase, Transition
from registry.stores.cluster_shown import moment
from service.cluster.client import ClusterClient
from service.cluster.collection import Object
from service.cluster.errors import ConflictError, KubernetesError

log = logging.getLogger(__name__)

_COMPONENT = "headrace-controller"
_WARNINGS = frozenset({Phase.BLOCKED, Phase.REJECTED, Phase.ROLLED_BACK, Phase.EXPIRED})
_MOST_MESSAGE = 1024


class Events:
    """The Events of one namespace."""

    def __init__(self, client: ClusterClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def create(self, item: Object, before: EndpointStatus, after: EndpointStatus) -> None:
        """Creates those of the transitions that ``after`` has beyond ``before``."""
        for transition in new(before, after):
            try:
                create = self._client.core.create_namespaced_event
                self._client.ask(create, self._namespace, event(item, transition))
            except ConflictError:
                continue  # created already, by this process or the one before
            except KubernetesError as error:
                log.warning("an Event can't be created: %s", error)
                return


def new(before: EndpointStatus, after: EndpointStatus) -> Iterator[Transition]:
    """The transitions in one history and not in the other, oldest first."""
    known = {_mark(line) for line in before.history}
    found = [line for line in after.history if _mark(line) not in known]
    yield from sorted(found, key=lambda line: line.at)


def event(item: Object, transition: Transition) -> Object:
    """The Event of one transition."""
    metadata = item["metadata"]
    digest = hashlib.sha256(repr(_mark(transition)).encode()).hexdigest()[:16]
    at = moment(transition.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{digest}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": item["apiVersion"],
            "kind": item["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning" if transition.phase in _WARNINGS else "Normal",
        "reason": transition.phase.value,
        "message": _message(transition),
        "source": {"component": _COMPONENT},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _message(transition: Transition) -> str:
    text = f"version {transition.version} is {transition.phase.value}"
    if transition.reason:
        text += f": {transition.reason}"
    if transition.by:
        text += f" (by {transition.by})"
    return text[:_MOST_MESSAGE]


def _mark(line: Transition) -> tuple[float, str, Phase]:
    return line.at, line.version, line.phase

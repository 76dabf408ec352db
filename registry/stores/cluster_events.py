"""Makes a Kubernetes Event of each transition of an endpoint, for ``kubectl describe mep``.

An Event's name follows from its content, so that creating it twice does nothing. One that can't be
created is named in the log: the endpoint's own history is the record.
"""

import hashlib
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from contracts.endpoint import EndpointStatus, Phase, Transition
from registry.stores.cluster_shown import moment
from service.cluster.client import ClusterClient
from service.cluster.collection import Object
from service.cluster.errors import ConflictError, KubernetesError

log = logging.getLogger(__name__)

_COMPONENT = "headrace-controller"
_WARNINGS = frozenset({Phase.BLOCKED, Phase.REJECTED, Phase.ROLLED_BACK, Phase.EXPIRED})
_MOST_MESSAGE = 1024
_MOST_WAITING = 1000  # writes whose Events are not created yet


class Events:
    """The Events of one namespace.

    Once started, a thread creates them: no write of an endpoint waits for those of another, nor for
    its own. It creates what waits before the process ends.
    """

    def __init__(self, client: ClusterClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._room = threading.BoundedSemaphore(_MOST_WAITING)
        self._thread: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """From now on they are created beside what creates them; ``close`` ends it."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="events")
        # Its import takes the interpreter for most of a second, which the first rollout that is
        # taken back would wait for.
        self._thread.submit(lambda: self._client.core)

    def close(self) -> None:
        """Creates those that wait, and ends the thread."""
        if self._thread is not None:
            self._thread.shutdown()

    def create(self, item: Object, before: EndpointStatus, after: EndpointStatus) -> None:
        """Creates those of the transitions that ``after`` has beyond ``before``."""
        made = [event(item, transition) for transition in new(before, after)]
        if self._thread is None:
            self._create(made)
        elif made and self._room.acquire(blocking=False):
            self._thread.submit(self._create_beside, made)
        elif made:
            name = item["metadata"]["name"]
            log.warning("%d Events of %s are left out: too many wait", len(made), name)

    def _create_beside(self, made: Sequence[Object]) -> None:
        try:
            self._create(made)
        except Exception:
            log.exception("a bug: Events can't be created")
        finally:
            self._room.release()

    def _create(self, made: Sequence[Object]) -> None:
        for each in made:
            try:
                self._client.ask(self._client.core.create_namespaced_event, self._namespace, each)
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

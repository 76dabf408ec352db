"""Makes Kubernetes Events of what happens to an endpoint, for ``kubectl describe mep``.

There is one of each transition, and one whenever something else is waited for. An Event's name
follows from its content, so that creating it twice does nothing, and a fault that comes and goes is
one Event for as long as the cluster keeps it. One that can't be
created is named in the log: the endpoint's own history is the record.
"""

import hashlib
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from contracts.endpoint import EndpointStatus, Phase, Transition, Wait
from contracts.status_events import identify_line, new_lines
from contracts.waiting import describe_with_time, identify_wait, new_waits, to_do
from registry.stores.cluster_shown import moment
from service.cluster.client import ClusterClient
from service.cluster.collection import Object
from service.cluster.errors import ConflictError, KubernetesError

log = logging.getLogger(__name__)

_COMPONENT = "headrace-controller"
_WARNINGS = frozenset({Phase.BLOCKED, Phase.REJECTED, Phase.ROLLED_BACK, Phase.EXPIRED})
_MOST_MESSAGE = 1024
_MOST_WAITING = 1000  # writes whose Events are not created yet


class KubernetesEvents:
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
        # rolled back would wait for.
        self._thread.submit(lambda: self._client.core)

    def close(self) -> None:
        """Creates those that wait, and ends the thread."""
        if self._thread is not None:
            self._thread.shutdown()

    def create(self, item: Object, before: EndpointStatus, after: EndpointStatus) -> None:
        """Creates those of the transitions and waits that ``after`` has beyond ``before``."""
        made = [*_events(item, before, after)]
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


def _events(item: Object, before: EndpointStatus, after: EndpointStatus) -> Iterator[Object]:
    """Those of the transitions, and of what is waited for if no transition says it too."""
    lines, candidate = tuple(new_lines(before, after)), after.candidate
    said = {
        line.version
        for line in lines
        if candidate is not None
        and (line.version, line.phase) == (candidate.version, candidate.phase)
    }
    waits = {wait.version: wait for wait in after.waits if wait.version in said}
    yield from (event(item, line, waits.get(line.version)) for line in lines)
    for wait in new_waits(before, after):
        if wait.version not in said:
            yield event_of_wait(item, after, wait)


def event(item: Object, transition: Transition, wait: Wait | None = None) -> Object:
    """The Event of one transition, with what a person can do about what is waited for then."""
    rest = "" if wait is None else f"; to do: {to_do(item['metadata']['name'], wait)}"
    made = _event(item, identify_line(transition), transition.at)
    return {
        **made,
        "type": "Warning" if transition.phase in _WARNINGS else "Normal",
        "reason": transition.phase.value,
        "message": _message(transition)[: _MOST_MESSAGE - len(rest)] + rest,
    }


def event_of_wait(item: Object, status: EndpointStatus, wait: Wait) -> Object:
    """The Event of something that is waited for, with what a person can do."""
    metadata = item["metadata"]
    who = f"version {wait.version} waits: " if wait.version else "waits: "
    made = _event(item, (metadata["uid"], *identify_wait(status, wait)), wait.since)
    words = describe_with_time(metadata["name"], status, wait, _MOST_MESSAGE - len(who))
    return {**made, "type": "Normal", "reason": "Waits", "message": who + words}


def _event(item: Object, mark: tuple[object, ...], seconds: float) -> Object:
    metadata = item["metadata"]
    digest = hashlib.sha256(repr(mark).encode()).hexdigest()[:16]
    at = moment(seconds)
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
    return text

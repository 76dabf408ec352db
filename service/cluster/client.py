"""Calls of the Kubernetes API through the official client, each with a deadline and our errors.

The official client signs in, keeps connections, and knows the API's paths; objects stay as the API
server gives them. Its typed APIs would check and rewrite what is sent: they refuse a field of a Job
that is newer than they are, and take the microseconds from a Lease's time, without which an API
server refuses it. So kinds of API groups go through ``CustomObjectsApi``, and answers are not made
into models. Nothing is retried here: the caller knows what a second try may do.
"""

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from service.cluster import errors
from service.cluster.collection import (
    LIST_PATIENCE,
    Collection,
    Object,
    check_own,
    check_watch,
    read_list,
)
from service.cluster.errors import (
    AccessError,
    ApiRefusedError,
    ApiUnavailableError,
    MissingError,
    UnreadableEventError,
)
from service.steady_clock import API_SERVER
from service.timed_answers import time_answers

_MERGE_PATCH = "application/merge-patch+json"
# So that a peer that went without a word is noticed within half a minute.
_KEEPALIVE = {"idle": 10, "interval": 5, "count": 3}


def official() -> ModuleType:
    """The official client: imported when it is first needed, because it costs most of a second.

    Raises:
        AccessError: it is not installed.
    """
    try:
        import kubernetes  # noqa: PLC0415
    except ImportError as error:
        raise AccessError(
            f"a cluster needs the package kubernetes, as headrace brings it: {error}"
        ) from error
    found: ModuleType = kubernetes
    return found


class ClusterClient:
    """One API server. Threads may share it.

    ``timeout_seconds`` is the deadline of connecting, and of each answer as a whole.
    """

    def __init__(
        self,
        configuration: Any,  # noqa: ANN401 - kubernetes.client.Configuration, imported late
        *,
        namespace: str = "default",
        timeout_seconds: float = 5.0,
    ) -> None:
        self._kubernetes = official()
        # A second try of its own would double each deadline.
        configuration.retries = False
        keepalive = self._kubernetes.utils.keepalive.tcp_keepalive_socket_options
        configuration.socket_options = keepalive(**_KEEPALIVE)
        self.namespace = namespace
        self._server = configuration.host
        self._timeout = timeout_seconds
        self._api = self._kubernetes.client.ApiClient(configuration)
        self._api.user_agent = "headrace"
        pools = self._api.rest_client.pool_manager
        pools.pool_classes_by_scheme = {
            scheme: type("Pool", (pool,), {"ConnectionCls": time_answers(pool.ConnectionCls)})
            for scheme, pool in pools.pool_classes_by_scheme.items()
        }
        self._custom = self._kubernetes.client.CustomObjectsApi(self._api)

    @property
    def core(self) -> Any:  # noqa: ANN401 - kubernetes.client.CoreV1Api
        """The API of pods and Events, for ``ask`` and ``text``. Its import is large."""
        return self._kubernetes.client.CoreV1Api(self._api)

    def ask(self, method: Callable[..., Any], *arguments: object, **options: object) -> Object:
        """What a method of the official client is answered with.

        Raises:
            ApiUnavailableError: no answer in time, or the server can't serve now.
            ApiRefusedError: the server will not; a subclass for 404, 409 and 410.
            AccessError: this process can't sign in.
        """
        data = self._data(method.__name__, method, *arguments, **options)
        return _object(data, method.__name__)

    def user(self) -> str:
        """The name under which the API server knows this process; empty if it does not say.

        Raises:
            ApiUnavailableError: no answer in time.
            AccessError: this process can't sign in.
        """
        review = self._kubernetes.client.AuthenticationV1Api(self._api).create_self_subject_review
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = self.ask(review, body)
            return str(answer["status"]["userInfo"]["username"])
        except (ApiRefusedError, KeyError, TypeError):  # of before 1.28, or forbidden
            return ""

    def namespaces(self) -> tuple[str, ...]:
        """Names of the cluster's namespaces; raises as ``ask``."""
        found = self.ask(self.core.list_namespace)
        return tuple(str(item["metadata"]["name"]) for item in found.get("items") or ())

    def text(self, method: Callable[..., Any], *arguments: object, **options: object) -> str:
        """As ``ask``, for what is no object."""
        return self._data(method.__name__, method, *arguments, **options).decode(errors="replace")

    def get(self, collection: Collection, name: str) -> Object:
        """One object, read now; raises as ``ask``."""
        method = self._custom.get_namespaced_custom_object
        return self._call_on(collection, "GET", method, name=name)

    def create(self, collection: Collection, body: Object, **options: object) -> Object:
        """Stores an object that was not there, and returns it as stored; raises as ``ask``."""
        method = self._custom.create_namespaced_custom_object
        return self._call_on(collection, "POST", method, body=body, **options)

    def replace(self, collection: Collection, name: str, body: Object, **options: object) -> Object:
        """Writes all but the status of an object, of the resourceVersion that ``body`` says."""
        method = self._custom.replace_namespaced_custom_object
        return self._call_on(collection, "PUT", method, name=name, body=body, **options)

    def replace_status(self, collection: Collection, name: str, body: Object) -> Object:
        """Writes only the status, of the resourceVersion that ``body`` says."""
        method = self._custom.replace_namespaced_custom_object_status
        return self._call_on(collection, "PUT status of", method, name=name, body=body)

    def merge(self, collection: Collection, name: str, patch: Object) -> Object:
        """Writes what a patch says, whatever else is there; raises as ``ask``."""
        method = self._custom.patch_namespaced_custom_object
        return self._call_on(
            collection, "PATCH", method, name=name, body=patch, _content_type=_MERGE_PATCH
        )

    def put(self, collection: Collection, body: Object) -> None:
        """Writes what ``body`` says, whatever else is there, and makes the object if need be.

        An annotation or label that ``body`` does not name stays. Who stops writing one that others
        read writes None in its place.
        """
        try:
            self.merge(collection, body["metadata"]["name"], body)
        except MissingError:
            self.create(collection, body)

    def delete(self, collection: Collection, name: str, **options: object) -> None:
        """Removes an object; raises as ``ask``."""
        method = self._custom.delete_namespaced_custom_object
        self._call_on(collection, "DELETE", method, name=name, **options)

    def list(self, collection: Collection, revision: str = "") -> tuple[list[Object], str]:
        """All objects, and the revision from which a watch goes on; see ``Reader``."""
        method = self._custom.list_namespaced_custom_object
        cached = (
            {"resource_version": revision, "resource_version_match": "NotOlderThan"}
            if revision
            else {}
        )
        answer = self._call_on(
            collection, "GET", method, **_select(collection), **cached,
            _request_timeout=LIST_PATIENCE * self._timeout,
        )  # fmt: skip
        return read_list(answer, collection.path)

    def watch(
        self, collection: Collection, revision: str, *, seconds: int, most_seconds: float
    ) -> "ClientWatch":
        """Begins a watch; see ``Reader``."""
        with self.asking(f"watch {collection.path}"):
            response = self._custom.list_namespaced_custom_object(
                **_names(collection),
                **_select(collection),
                watch=True,
                allow_watch_bookmarks=True,
                resource_version=revision,
                timeout_seconds=seconds,
                _preload_content=False,
                _request_timeout=self._timeout,
            )
            check_watch(response.headers.get("Content-Length"), collection.path)
            response._original_response.time.allow(most_seconds)  # noqa: SLF001 - in no other way
        return ClientWatch(self, collection, response)

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Gives what the official client raises within as our errors."""
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            yield
        except self._kubernetes.client.ApiException as error:
            API_SERVER.note((error.headers or {}).get("Date"))
            if not error.status:  # TLS that can't be agreed on
                raise self._build_silence_error(error.reason) from error
            if error.body is None:  # said in a watch, where nobody else speaks
                raise errors.of_status(error.status, f"{what}: {error.reason}") from error
            raise errors.of_answer(error.status, what, error.body) from error
        except HTTPError as error:
            raise self._build_silence_error(error) from error
        except (OSError, self._kubernetes.config.ConfigException) as error:
            # A connection's own are HTTPErrors by now.
            raise AccessError(f"this process can't sign in to {self._server}: {error}") from error

    def _build_silence_error(self, error: object) -> ApiUnavailableError:
        return ApiUnavailableError(f"the API server {self._server} does not answer: {error}")

    def _call_on(
        self, collection: Collection, verb: str, method: Callable[..., Any], **options: object
    ) -> Object:
        name = options.get("name")
        what = f"{verb} {collection.path_of(str(name)) if name else collection.path}"
        answer = _object(self._data(what, method, **_names(collection), **options), what)
        if verb == "POST":
            name = options["body"]["metadata"]["name"]  # type: ignore[index]
        if name and answer.get("kind") != "Status":  # what a deletion may be answered with
            check_own(answer, str(name), what)
        return answer

    def _data(
        self, what: str, method: Callable[..., Any], *arguments: object, **options: object
    ) -> bytes:
        with self.asking(what):
            deadline = {"_request_timeout": self._timeout}
            response = method(*arguments, **(deadline | options), _preload_content=False)
            API_SERVER.note(response.headers.get("Date"))
            data: bytes = response.data
            return data


class ClientWatch:
    """A watch that has begun; see ``EventStream``."""

    def __init__(
        self,
        client: ClusterClient,
        collection: Collection,
        response: Any,  # noqa: ANN401 - urllib3.HTTPResponse
    ) -> None:
        self._client = client
        self._collection = collection
        self._response = response

    def events(self) -> Generator[tuple[str, Object], None, None]:
        """See ``EventStream``."""
        watch = official().watch.Watch(return_type="object")
        try:
            with self._client.asking(f"watch {self._collection.path}"):
                # With a time given it begins no watch by itself when this one ends.
                for event in watch.stream(lambda **_: self._response, timeout_seconds=1):
                    yield event["type"], event["raw_object"]
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableEventError(f"an event that can't be read: {error!r}") from error

    def close(self) -> None:
        """See ``EventStream``."""
        with suppress(OSError, RuntimeError, ValueError):  # it has ended meanwhile
            self._response.shutdown()


def _names(collection: Collection) -> dict[str, str]:
    group, _, version = collection.version.partition("/")
    return {
        "group": group,
        "version": version,
        "namespace": collection.namespace,
        "plural": collection.plural,
    }


def _select(collection: Collection) -> dict[str, str]:
    return {"label_selector": collection.selector} if collection.selector else {}


def _object(data: bytes, what: str) -> Object:
    try:
        answer = json.loads(data)
    except ValueError as error:
        raise ApiUnavailableError(f"{what} was answered by no JSON") from error
    if not isinstance(answer, dict):
        raise ApiUnavailableError(f"{what} was answered by no object")
    return answer

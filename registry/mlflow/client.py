"""MLflow through its own client: how it is opened, and what its exceptions mean.

The one place that settles how the client behaves: deadline, retries, telemetry, logs. How it signs
in, by which proxy and certificates, and which workspace it asks if a connection names none, are the
client's own variables (``MLFLOW_TRACKING_USERNAME``, ``MLFLOW_TRACKING_TOKEN``,
``MLFLOW_TRACKING_SERVER_CERT_PATH``, ``HTTPS_PROXY``, ``MLFLOW_WORKSPACE``). Importing the client
takes seconds, so that the import waits for the first server that is opened
(docs/decisions/0026-mlflow-client.md).
"""

import asyncio
import math
import os
import re
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from registry.errors import SourceRefusedError, SourceUnavailableError
from service.timed_answers import LargeResponse, TimedResponse, time_answers

if TYPE_CHECKING:
    import requests
    from mlflow import MlflowClient
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

Answer = TypeVar("Answer")

# One retry, at once: a server may close a connection just as the client uses it again. A caller
# comes back by itself if MLflow is away.
_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",  # which may lie beyond any deadline
    "MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD": "false",  # files come only through the server
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_CONFIGURE_LOGGING": "false",  # its records go to our log
}
_THREADS = 4  # calls that hang hold up no other work of the process
_MESSAGE_CHARACTERS = 300
# What a later try may find otherwise.
_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
# That a proxy without a backend answers, and that MLflow answers in its own format only.
_OF_OTHERS = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.GONE})
_MISSING = "RESOURCE_DOES_NOT_EXIST"
_NO_WORKSPACE = f"{_MISSING}: Workspace "  # nothing is known then of what was asked for
_SERVED = "/api/2.0/mlflow-artifacts/artifacts"  # where the server itself serves artifacts
_DOWNLOAD_TITLE = "#####\n"
_STATUS = re.compile(r"failed with error code (\d{3})|too many (\d{3}) error responses")


class UnsafePathError(SourceRefusedError):
    """A list of artifacts holds a name that leads out of its folder."""


class ForeignSourceError(SourceRefusedError):
    """Artifacts lie where the operator has not allowed to read or write."""


class MlflowConnection:
    """One MLflow server; threads may share it, and a process opens one.

    Args:
        uri: its address, ``http://`` or ``https://``.
        timeout_seconds: how long it may be silent while it is asked something.
        sources: URLs below which artifacts may lie, beside those that the server itself serves;
            ``{workspace}`` in them is the connection's.
        workspace: that is asked; empty: the client's own.

    Raises:
        SourceUnavailableError: another kind of address.
    """

    def __init__(
        self, uri: str, *, timeout_seconds: float, sources: Sequence[str] = (), workspace: str = ""
    ) -> None:
        if urllib.parse.urlsplit(uri).scheme not in ("http", "https"):
            raise SourceUnavailableError(f"MLflow's address must begin with http, not {uri}")
        self.uri = uri.rstrip("/")
        self._timeout = timeout_seconds
        # Without a workspace's name such a URL would hold those of all.
        named = (each for each in sources if workspace or "{workspace}" not in each)
        self._sources = tuple(each.replace("{workspace}", workspace) for each in named)
        self.workspace = workspace
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mlflow")
        # The client takes whole seconds, only from its environment.
        timeout = str(math.ceil(timeout_seconds))
        os.environ.update({**_SETTINGS, "MLFLOW_HTTP_REQUEST_TIMEOUT": timeout})
        if bundle := os.environ.get("SSL_CERT_FILE"):  # what the rest of the process trusts
            os.environ.setdefault("REQUESTS_CA_BUNDLE", bundle)
        from mlflow import MlflowClient  # noqa: PLC0415 - see above

        time_client()
        self._client = MlflowClient(self.uri, self.uri)

    def ask(self, question: Callable[["MlflowClient"], Answer]) -> Answer:
        """The client's answer; this thread waits for it.

        Raises:
            SourceRefusedError: MLflow answered that it will not do it, or does not know it.
            SourceUnavailableError: no answer, not in time, or one that is none.
        """
        try:
            with _within(self.workspace):
                return question(self._client)
        except Exception as error:  # requests', protobuf's and the client's own
            raise _api_fault(self.uri, error) from error

    async def ask_in_time(self, question: Callable[["MlflowClient"], Answer]) -> Answer:
        """As ``ask``, off the event loop and within the deadline."""
        return await self.in_time(lambda: self.ask(question))

    async def in_time(self, call: Callable[[], Answer]) -> Answer:
        """Makes a call off the event loop.

        Raises:
            SourceUnavailableError: it takes too long; its thread is left to its own timeouts.
        """
        doing = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            return await asyncio.wait_for(doing, self._timeout + 1.0)
        except TimeoutError as error:
            raise SourceUnavailableError(f"MLflow at {self.uri} takes too long") from error

    def folder(self, root: str) -> "ArtifactFolder":
        """The artifacts of a run or a model.

        Raises:
            ForeignSourceError: they lie where nobody allowed.
            SourceRefusedError: nothing here can reach that kind of store.
        """
        check_source(root, self.uri, self._sources)
        return ArtifactFolder(self.uri, root, self.workspace)


def _within(workspace: str) -> AbstractContextManager[object]:
    """Has the client ask a workspace on this thread, and only here, whatever its environment says.

    The client's own setter is of the whole process.
    """
    if not workspace:
        return nullcontext()
    from mlflow.utils.workspace_context import (  # noqa: PLC0415 - clients before 3.10 have none
        ServerWorkspaceContext,
    )

    entered: AbstractContextManager[object] = ServerWorkspaceContext(workspace)
    return entered


@cache
def time_client() -> None:
    """Has the client's requests and answers each take no longer than its timeout as a whole.

    Its own is of one read or write. A connection's class is all that changes.
    """
    from mlflow.utils import request_utils  # noqa: PLC0415 - see above

    name = "TCPKeepAliveHTTPAdapter"
    if not hasattr(request_utils, name):  # older clients, 3.1 among them, have requests' own
        name = "HTTPAdapter"
    adapter: Any = getattr(request_utils, name)

    class TimedAdapter(adapter):
        def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - requests'
            pool = super().get_connection_with_tls_context(*arguments, **options)
            if not issubclass(pool.ConnectionCls.response_class, TimedResponse):
                pool.ConnectionCls = time_answers(pool.ConnectionCls, LargeResponse)
            return pool

    setattr(request_utils, name, TimedAdapter)


def check_source(root: str, server: str, sources: Sequence[str]) -> None:
    """Refuses artifacts that lie neither in the tracking server nor below an allowed URL.

    A person who may register a version chooses its ``source``, and it is read with our credentials.
    They would open other people's buckets and files of this machine, or go to a server of the
    author's.

    Args:
        root: where the artifacts lie, as MLflow says.
        server: the tracking server's address.
        sources: URLs; a path holds what is below it, by whole segments.

    Raises:
        ForeignSourceError: they lie elsewhere, or the URL can be read in two ways.
    """
    place = _place(root)
    if place is not None:
        scheme, host, path = place
        ours = urllib.parse.urlsplit(server).netloc.lower()
        if scheme == "mlflow-artifacts" and host in ("", ours):
            return
        for allowed in filter(None, map(_place, (f"{server}{_SERVED}", *sources))):
            if allowed[:2] == (scheme, host) and path[: len(allowed[2])] == allowed[2]:
                return
    raise ForeignSourceError(
        f"its files are at {root[:_MESSAGE_CHARACTERS]}, which is neither served by the tracking "
        "server nor below a URL that the operator allows (mlflow.sources)"
    )


def _place(url: str) -> tuple[str, str, tuple[str, ...]] | None:
    """Scheme, host and segments of a URL; None if it has parts that drivers read differently."""
    parts = urllib.parse.urlsplit(url)
    segments = tuple(filter(None, parts.path.split("/")))
    plain = urllib.parse.unquote(url)
    if parts.query or parts.fragment or "\\" in plain or {".", ".."} & set(plain.split("/")):
        return None
    return parts.scheme or "file", parts.netloc.lower(), segments


class ArtifactFolder:
    """A folder of artifacts, through the server if it serves them, else where they lie.

    Each call raises ``SourceUnavailableError`` if MLflow is away, and ``SourceRefusedError``
    if MLflow refuses or if the store behind it fails, in whichever way.
    """

    def __init__(self, uri: str, root: str, workspace: str = "") -> None:
        from mlflow.store.artifact import (  # noqa: PLC0415 - see above
            artifact_repository_registry as stores,
        )

        self._uri = uri
        self.root = root.rstrip("/")
        self._workspace = workspace
        self._files: ArtifactRepository = self._call(
            lambda: stores.get_artifact_repository(self.root, tracking_uri=uri)
        )
        if workspace:  # it fetches on threads of its own
            enter = _within(workspace).__enter__
            self._files.thread_pool = ThreadPoolExecutor(_THREADS, initializer=enter)

    def files(self) -> Iterator[tuple[str, int | None]]:
        """Paths and bytes of all files within, folders walked through, in a fixed order.

        A store that does not say bytes gives None.

        Raises:
            UnsafePathError: a name leads out of the folder.
        """
        folders: list[str | None] = [None]
        while folders:
            folder = folders.pop()
            for entry in self._call(partial(self._files.list_artifacts, folder)):
                if entry.is_dir:
                    folders.append(entry.path)
                else:
                    size = entry.file_size  # text, if the server hands it out
                    yield entry.path, None if size is None else int(size)

    def fetch(self, name: str, to: Path) -> None:
        """Copies the file ``name`` to the same path below the folder ``to``."""
        self._call(lambda: self._files.download_artifacts(name, str(to)))

    def put(self, name: str, data: bytes) -> None:
        """Writes a file, over what was there."""
        path = PurePosixPath(name)
        folder = "/".join(path.parent.parts)  # empty, and never a dot, for the root itself
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, path.name)
            file.write_bytes(data)
            self._call(partial(self._files.log_artifact, str(file), folder))

    def _call(self, call: Callable[[], Answer]) -> Answer:
        try:
            with _within(self._workspace):
                return call()
        except Exception as error:  # a store's driver raises what it likes: botocore no OSError
            raise _store_fault(self._uri, self.root, error) from error


def _api_fault(uri: str, error: Exception) -> SourceRefusedError | SourceUnavailableError:
    """What an exception of the client means.

    The client raises one class for almost everything. What it answers for a status that may pass
    (408, 429, 5xx) is never a ``RestException``: such statuses end its retries. A 404 that is not
    in MLflow's own format is the word of whatever stands before it, an ingress without its backend.
    """
    from mlflow.exceptions import MlflowException, RestException  # noqa: PLC0415 - see above

    status = _status(error)
    if status in _OF_OTHERS and not (isinstance(error, RestException) or _is_own(error)):
        return SourceUnavailableError(
            f"MLflow at {uri} does not answer, and something before it says {status}: "
            f"{_message(error)}"
        )
    if not status and isinstance(error, MlflowException):
        of_code = error.get_http_status_code()
        status = of_code if of_code < 500 else 0  # which it guesses if there is no code
    if isinstance(error, RestException) or (400 <= status < 500 and status not in _PASSING):
        verb = f"answered {status}" if status else "refuses"
        missing = isinstance(error, RestException) and error.error_code == _MISSING
        missing = missing and not str(error).startswith(_NO_WORKSPACE)
        return SourceRefusedError(
            f"MLflow at {uri} {verb}: {_message(error)}", status, missing=missing
        )
    if status:
        return SourceUnavailableError(f"MLflow at {uri} answered {status}")
    return SourceUnavailableError(f"MLflow at {uri} does not answer: {_message(error)}")


def _store_fault(
    uri: str, root: str, error: Exception
) -> SourceRefusedError | SourceUnavailableError:
    """What an exception of an artifact store's driver means."""
    import requests  # noqa: PLC0415 - comes with the client
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 - see above

    sentence = f"the artifacts at {root}: {_message(error)}"
    if getattr(error, "error_code", "") == "INVALID_PARAMETER_VALUE":
        return UnsafePathError(sentence)
    asked = any(isinstance(each, requests.RequestException) for each in _chain(error))
    if isinstance(error, MlflowException | requests.RequestException) and (asked or _status(error)):
        return _api_fault(uri, error)
    return SourceRefusedError(sentence)


def _is_own(error: Exception) -> bool:
    """Whether an answer is an error in MLflow's own format."""
    response = _response(error)
    try:
        said = None if response is None else response.json()
    except ValueError:
        return False
    return isinstance(said, dict) and "error_code" in said


def _status(error: Exception) -> int:
    """HTTP's status that an exception of the client tells; 0 if it tells none."""
    if (response := _response(error)) is not None:
        return response.status_code
    found = next(filter(None, (_STATUS.search(str(each)) for each in _chain(error))), None)
    return int(found[1] or found[2]) if found else 0


def _message(error: Exception) -> str:
    """What the server said, else the first words of the exception that began it."""
    if (response := _response(error)) is not None:
        return response.text[:_MESSAGE_CHARACTERS]
    first = tuple(_chain(error))[-1]
    # A download's exception holds another as text, below a title.
    text = str(first).rpartition(_DOWNLOAD_TITLE)[2] or type(first).__name__
    return text[:_MESSAGE_CHARACTERS]


def _response(error: Exception) -> "requests.Response | None":
    """An answer over HTTP that became an exception; other libraries' hold none of this kind."""
    import requests  # noqa: PLC0415 - comes with the client

    answers = (getattr(each, "response", None) for each in _chain(error))
    return next((each for each in answers if isinstance(each, requests.Response)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

"""One question to MLflow's REST interface, with a deadline, off the event loop.

Called by ``mlflow_source.py`` and ``mlflow_artifacts.py``. Importing MLflow's own client takes
longer than everything else in the controller's start. It repeats nothing and remembers nothing.
"""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from registry.errors import SourceRefusedError, SourceUnavailableError
from service import replies

Json = Mapping[str, Any]

API = "api/2.0/mlflow"
ARTIFACTS = "api/2.0/mlflow-artifacts/artifacts"
_SAID_BYTES = 300
# What a later try may find otherwise.
_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class MlflowRest:
    """An MLflow server.

    Args:
        uri: its address, ``http://`` or ``https://``.
        authorization: value of the header, if the server wants one.
        timeout_seconds: deadline of one question.
    """

    def __init__(self, uri: str, *, authorization: str, timeout_seconds: float) -> None:
        self.uri = uri.rstrip("/")
        self._headers = {"Authorization": authorization} if authorization else {}
        self._timeout = timeout_seconds

    async def get(self, route: str) -> Json:
        """The answer's object; an empty one where MLflow does not know what was asked for.

        Raises:
            SourceUnavailableError: no answer, not in time, or one that is no object.
        """
        try:
            return _object(self.uri, await self._in_time("GET", route))
        except SourceRefusedError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return {}
            raise SourceUnavailableError(str(error)) from error

    async def post(self, route: str, body: Json) -> None:
        """Asks for a change.

        Raises:
            SourceRefusedError: MLflow answered that it will not do it.
            SourceUnavailableError: no answer, or not in time.
        """
        data = json.dumps(body).encode()
        await self._in_time("POST", route, data, "application/json")

    async def put(self, route: str, data: bytes) -> None:
        """Sends a file.

        Raises:
            SourceRefusedError: MLflow answered that it will not take it.
            SourceUnavailableError: no answer, or not in time.
        """
        await self._in_time("PUT", route, data, "application/octet-stream")

    async def _in_time(
        self, method: str, route: str, data: bytes | None = None, kind: str = "application/json"
    ) -> bytes:
        call = asyncio.to_thread(self._call, method, route, data, kind)
        try:
            return await asyncio.wait_for(call, self._timeout + 1.0)
        except TimeoutError as error:
            raise SourceUnavailableError(f"MLflow at {self.uri} takes too long") from error

    def _call(self, method: str, route: str, data: bytes | None, kind: str) -> bytes:
        headers = {**self._headers, "Content-Type": kind}
        request = urllib.request.Request(  # noqa: S310 - an operator's setting
            f"{self.uri}/{route}", data=data, headers=headers, method=method
        )
        try:
            with replies.ask(request, self._timeout) as reply:
                return replies.read(reply)
        except urllib.error.HTTPError as error:
            said = replies.said(error, _SAID_BYTES)
            sentence = f"MLflow at {self.uri} answered {error.code}: {said}"
            if 400 <= error.code < 500 and error.code not in _PASSING:
                raise SourceRefusedError(sentence, error.code) from error
            raise SourceUnavailableError(sentence) from error
        except (OSError, ValueError) as error:
            raise SourceUnavailableError(f"MLflow at {self.uri} does not answer: {error}") from (
                error
            )


def _object(uri: str, body: bytes) -> Json:
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise SourceUnavailableError(f"MLflow at {uri} does not answer: {error}") from error
    if not isinstance(answer, dict):
        raise SourceUnavailableError(f"MLflow at {uri} answered with no object")
    return answer

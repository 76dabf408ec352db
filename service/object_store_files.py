"""The objects of S3, and of what speaks its language, as files of fsspec: ``s3://BUCKET/KEY``.

s3fs with one more question at each answer: is it the object store's? An ingress without a backend
answers 404 too, and a login page 200, and s3fs takes the one for an object that is not there and
the other for an empty list. Here both are an ``OSError``: that an object is missing is said by the
store's own error, or by a list of its own, or not at all. fsspec opens it by the entry point in
``pyproject.toml``. Each answer has its time (``service/timed_answers.py``). It changes nothing of
what s3fs asks, caches or repeats.
"""

# ruff: noqa: FBT001, FBT002 - the signatures are s3fs's

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from s3fs import S3FileSystem

from service.timed_answers import LEAST_BYTES, LEAST_SECONDS, AnswerTime

_OF_LISTS = frozenset({"Name", "IsTruncated"})  # every list of objects has them
_WITH_ETAG = frozenset({"GetObject", "HeadObject", "PutObject"})

Fields = dict[str, Any]


class ForeignAnswerError(OSError):
    """An answer that is not in the words of S3: maybe of a proxy without a backend."""


class ObjectStoreFiles(S3FileSystem):
    """The objects that one store holds. Threads may share it."""

    read_timeout = LEAST_SECONDS

    def _prepare_config_kwargs(self) -> Fields:
        return {**super()._prepare_config_kwargs(), "http_session_cls": _TimedSession}

    async def set_session(self, refresh: bool = False, kwargs: Fields | None = None) -> Any:  # noqa: ANN401 - a client of aiobotocore
        """The client of s3fs, which shows us each answer."""
        client = await super().set_session(refresh, kwargs or {})
        # Under one name, so that it is there once however often this is called.
        check = partial(_check, seconds=client.meta.config.read_timeout)
        client.meta.events.register("after-call.s3", check, unique_id="headrace-own-words")
        return client

    async def _info(
        self,
        path: str,
        bucket: str | None = None,
        key: str | None = None,
        refresh: bool = False,
        version_id: str | None = None,
    ) -> Fields:
        """Name, size and type; an answer to HEAD has no words, so that a 404 has a list asked."""
        try:
            found: Fields = await super()._info(path, bucket, key, refresh, version_id)
        except FileNotFoundError:
            bucket, key, _ = self.split_path(self._strip_protocol(path))
            if key:
                listed = await self._call_s3(
                    "list_objects_v2", Bucket=bucket, Prefix=key, MaxKeys=1
                )
                if any(item["Key"] == key for item in listed.get("Contents", ())):
                    return await self._info_of_listed(path, bucket, key, version_id)
            raise
        return found

    async def _info_of_listed(
        self, path: str, bucket: str, key: str, version_id: str | None
    ) -> Fields:
        """Asks once more: another may have written the object since it was said to be missing."""
        try:
            found: Fields = await super()._info(path, bucket, key, True, version_id)
        except FileNotFoundError:
            sentence = f"{path} is listed, and is said not to be there"
            raise ForeignAnswerError(sentence) from None
        return found


class _TimedSession(AIOHTTPSession):
    async def send(self, request: Any) -> Any:  # noqa: ANN401 - of aiobotocore
        """The answer but for a download's body; an upload has as much time as a download."""
        headers = request.headers
        size = headers.get("X-Amz-Decoded-Content-Length") or headers.get("Content-Length") or 0
        time = AnswerTime(self._timeout.sock_read * (1 + int(size) / LEAST_BYTES))
        async with _in_time(time):
            answer = await super().send(request)
            if answer.status_code >= 300:
                await answer.content  # the words of a refusal
        return answer


async def _read(read: Any, time: AnswerTime, amount: int | None = None) -> bytes:  # noqa: ANN401 - of aiobotocore
    """All that is left of a download, or at most ``amount`` bytes, and none only at the end."""
    found = bytearray()
    while True:
        async with _in_time(time):
            piece = await read(LEAST_BYTES if amount is None else amount)
        time.note(len(piece))
        found += piece
        if not piece or amount is not None:
            return bytes(found)


@asynccontextmanager
async def _in_time(time: AnswerTime) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(time.seconds_left()):
            yield
    except TimeoutError:
        time.seconds_left()
        raise


def _check(http_response: Any, parsed: Fields, model: Any, seconds: float, **_: object) -> None:  # noqa: ANN401 - of aiobotocore
    """Times an answer.

    Raises:
        ForeignAnswerError: S3 would not give it.
        OSError: there is no such bucket.
    """
    status, operation = int(http_response.status_code), str(model.name)
    if status == 404:
        code = str(parsed.get("Error", {}).get("Code", ""))
        if code == "NoSuchBucket":  # says nothing of what is in it: s3fs would
            raise OSError(f"the object store says {code} to {operation}")
        is_own = model.http.get("method") == "HEAD" or not (code.isdigit() or not code)
    elif status >= 300:
        return  # nothing is believed of these
    elif operation == "ListObjectsV2":
        is_own = not _OF_LISTS.isdisjoint(parsed)
    else:
        is_own = operation not in _WITH_ETAG or "ETag" in parsed
    if not is_own:
        if (body := parsed.get("Body")) is not None:
            body.close()  # of a download, which nobody is going to read
        raise ForeignAnswerError(
            f"the object store does not answer, and something before it says {status} to "
            f"{operation}"
        )
    if (body := parsed.get("Body")) is not None:
        body.read = partial(_read, body.read, AnswerTime(seconds, LEAST_BYTES))

"""The folders of conversions in the package store: one for each, which goes with its conversion.

A controller that was killed, or whose store was away, leaves some behind, with a whole package
in each. They are found by looking twice: a Job goes on when its controller is killed, and the next
controller finds it again, so that a folder is removed only when nothing can write there any more.
A store may be several controllers': each removes what bears the mark of its own keys.
"""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat

from registry.conversions.messages import ConversionRequest
from registry.packages.store import PackageStore, StoreError

log = logging.getLogger(__name__)

STAGING = "staging"
EVERY_SECONDS = 86400.0
_MARK_CHARACTERS = 8
_ID_CHARACTERS = 32


def staging_url(request: ConversionRequest, key: bytes) -> str:
    """The folder of one conversion: the same for the same request, and nobody else's to guess."""
    text = request.model_copy(update={"work_dir": ""}).model_dump_json(by_alias=True)
    made = hmac.digest(key, b"headrace/staging\n" + text.encode(), "sha256").hex()
    return f"{_all_of(request.store_url)}/{_mark(key)}{made[:_ID_CHARACTERS]}"


class StagingFolders:
    """The folders that this controller uses, and those that others left."""

    def __init__(self, store_url: str, keys: Sequence[bytes]) -> None:
        self._url = _all_of(store_url)
        self._marks = tuple(_mark(key) for key in keys)
        self._used: set[str] = set()

    @contextmanager
    def hold(self, url: str) -> Iterator[None]:
        """Keeps a folder from being taken for one that was left."""
        self._used.add(url)
        try:
            yield
        finally:
            self._used.discard(url)

    async def clean(
        self,
        conversion_seconds: float,
        *,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Removes what was left, now and then, until it is cancelled.

        Args:
            conversion_seconds: so long a conversion of an earlier controller may go on. What is
                there at the start and after that time is removed; then there is a look a day.
            wait: sleeps for the given number of seconds.
        """
        before = await self._list_folders()
        for seconds in chain((conversion_seconds,), repeat(EVERY_SECONDS)):
            await wait(seconds)
            now = await self._list_folders()
            for url in sorted((before & now) - self._used):
                if url not in self._used:  # by now
                    await asyncio.to_thread(remove, url)
            before = now

    async def _list_folders(self) -> frozenset[str]:
        """This controller's folders that are there; none if the store can't be asked."""
        try:
            names = await asyncio.to_thread(PackageStore(self._url).names)
        except StoreError as error:
            log.warning("folders of conversions are not looked for until the next time: %s", error)
            return frozenset()
        return frozenset(f"{self._url}/{name}" for name in names if name.startswith(self._marks))


def remove(url: str) -> None:
    """Removes a folder; a store that can't be written is logged."""
    try:
        PackageStore(url).remove_all()
    except StoreError as error:
        log.warning("the folder of a conversion stays behind: %s", error)


def _mark(key: bytes) -> str:
    """How the folders of a controller with this key begin."""
    return f"{hmac.digest(key, b'headrace/staging', 'sha256').hex()[:_MARK_CHARACTERS]}-"


def _all_of(store_url: str) -> str:
    return f"{store_url.rstrip('/')}/{STAGING}"

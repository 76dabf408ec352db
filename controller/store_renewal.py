"""Renews the release's mark in the package store, as a sign of life, every hour.

Without it the store would look free to another release some day. A store that is away, also as the
controller starts, is asked again a minute later. One that another release has by now is not written
to: the controller ends, since the next package that it publishes might be removed by the other one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from registry.packages.store import StoreError
from registry.packages.store_mark import RENEW_SECONDS

RETRY_SECONDS = 60.0

log = logging.getLogger(__name__)


class StoreRenewal:
    """Runs beside the controller's loop."""

    def __init__(
        self,
        claim: Callable[[], str],
        on_taken: Callable[[], None],
        *,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._claim = claim
        self._on_taken = on_taken
        self._wait = wait

    async def run(self) -> None:
        """Renews until it is cancelled, or another release has the store."""
        while True:
            pause = RENEW_SECONDS
            try:
                refused = await asyncio.to_thread(self._claim)
            except StoreError as error:
                log.warning("the mark of the package store is not renewed: %s", error)
                refused, pause = "", RETRY_SECONDS
            if refused:
                log.error("%s", refused)
                self._on_taken()
                return
            await self._wait(pause)

"""Keeps a picture of MLflow that is fresh when MLflow answers, and has verdicts told to it.

Run by the controller as a task of its own, so that an MLflow that hangs delays nobody. What can't
be read stays as it was last seen; what can't be told is told later, because ``write_back.py``
compares what should be there with what is. It never decides a verdict.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from registry import metrics
from registry.errors import SourceUnavailableError
from registry.mlflow_source import ModelRegistry, Picture, RegisteredModel
from registry.projection import Projection
from registry.write_back import WriteBack

log = logging.getLogger(__name__)

_READ_AGAIN_SECONDS = 60.0  # also where nothing seems to have changed


class SourceWatch:
    """Asks, compares, tells.

    Args:
        source: the registry.
        write_back: tells it.
        poll_seconds: time between two rounds.
        changed: set whenever the picture is a new one.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        source: ModelRegistry,
        write_back: WriteBack,
        *,
        poll_seconds: float,
        changed: asyncio.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._write_back = write_back
        self._poll_seconds = poll_seconds
        self._changed = changed
        self._clock = clock
        self._woken = asyncio.Event()
        self._followed: frozenset[str] = frozenset()
        self._wanted = Projection()
        self._read_at: dict[str, tuple[int, float]] = {}
        self._answers = True
        self.picture: Picture | None = None

    def wake(self) -> None:
        """Asks at once: something is said to have changed."""
        self._woken.set()

    def follow(self, models: Iterable[str], wanted: Projection) -> None:
        """Whose versions to read, and what MLflow should say, from now on."""
        followed = frozenset(models)
        if followed - self._followed:
            self.wake()
        self._followed = followed
        self._wanted = wanted

    async def run(self) -> None:
        """Rounds without end; MLflow's absence is told once and does not end them."""
        while True:
            self._woken.clear()
            try:
                await self.round()
            except SourceUnavailableError as error:
                metrics.SOURCE_UP.set(0)
                if self._answers:
                    log.warning("going on with what was last seen: %s", error)
                self._answers = False
            else:
                metrics.SOURCE_UP.set(1)
                if not self._answers:
                    log.info("MLflow answers again")
                self._answers = True
            try:
                async with asyncio.timeout(self._poll_seconds):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Asks once, then tells what MLflow does not know yet.

        Raises:
            SourceUnavailableError: MLflow does not answer; the picture stays.
        """
        models = {model.name: model for model in await self._source.models()}
        before = self.picture.versions if self.picture else {}
        versions = {}
        for name in sorted(self._followed & models.keys()):
            known = before.get(name)
            fresh = known is None or self._is_due(models[name])
            versions[name] = await self._source.versions(name) if fresh else known or ()
            if fresh:
                self._read_at[name] = (models[name].changed, self._clock())
        picture = Picture(models, versions)
        self._show(picture)
        self.picture = await self._write_back.tell(picture, self._wanted)

    def _is_due(self, model: RegisteredModel) -> bool:
        changed, at = self._read_at.get(model.name, (-1, 0.0))
        return changed != model.changed or self._clock() - at >= _READ_AGAIN_SECONDS

    def _show(self, picture: Picture) -> None:
        if picture != self.picture:
            self.picture = picture
            self._changed.set()

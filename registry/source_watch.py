"""Keeps a picture of MLflow that is fresh when MLflow answers, and tells it the verdicts.

Run by the controller as a task of its own, so that an MLflow that hangs delays nobody. What can't
be read stays as it was last seen; what can't be told is told later, because verdicts are compared
with the tags that are there. It never decides a verdict.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from registry import metrics
from registry.errors import SourceUnavailableError
from registry.mlflow_source import ModelRegistry, RegisteredModel, RegisteredVersion

log = logging.getLogger(__name__)

_READ_AGAIN_SECONDS = 60.0  # also where nothing seems to have changed


@dataclass(frozen=True, slots=True)
class Picture:
    """MLflow as last seen: all models, and the versions of those that endpoints follow."""

    models: Mapping[str, RegisteredModel] = field(default_factory=dict)
    versions: Mapping[str, tuple[RegisteredVersion, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a version at an endpoint."""

    endpoint: str
    model: str
    version: str
    verdict: str
    reason: str

    def tags(self) -> dict[str, str]:
        """The tags that tell it."""
        prefix = f"headrace.{self.endpoint}"
        return {f"{prefix}.verdict": self.verdict, f"{prefix}.reason": self.reason}


class SourceWatch:
    """Asks, compares, tells.

    Args:
        source: the registry.
        poll_seconds: time between two rounds.
        changed: set whenever the picture is a new one.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        source: ModelRegistry,
        *,
        poll_seconds: float,
        changed: asyncio.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._poll_seconds = poll_seconds
        self._changed = changed
        self._clock = clock
        self._woken = asyncio.Event()
        self._followed: frozenset[str] = frozenset()
        self._verdicts: tuple[Verdict, ...] = ()
        self._read_at: dict[str, tuple[int, float]] = {}
        self._answers = True
        self.picture: Picture | None = None

    def wake(self) -> None:
        """Asks at once: something is said to have changed."""
        self._woken.set()

    def follow(self, models: Iterable[str], verdicts: Iterable[Verdict]) -> None:
        """Whose versions to read, and what to tell, from now on."""
        followed = frozenset(models)
        if followed - self._followed:
            self.wake()
        self._followed = followed
        self._verdicts = tuple(verdicts)

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
        self._show(Picture(models, versions))
        await self._tell()

    def _is_due(self, model: RegisteredModel) -> bool:
        changed, at = self._read_at.get(model.name, (-1, 0.0))
        return changed != model.changed or self._clock() - at >= _READ_AGAIN_SECONDS

    def _show(self, picture: Picture) -> None:
        if picture != self.picture:
            self.picture = picture
            self._changed.set()

    async def _tell(self) -> None:
        for verdict in self._verdicts:
            for key, value in verdict.tags().items():
                version = self._find(verdict)
                if version is not None and version.tags.get(key, "") != value:
                    await self._source.set_tag(version, key, value)
                    self._remember(version, key, value)

    def _find(self, verdict: Verdict) -> RegisteredVersion | None:
        versions = self.picture.versions.get(verdict.model, ()) if self.picture else ()
        return next((item for item in versions if item.number == verdict.version), None)

    def _remember(self, version: RegisteredVersion, key: str, value: str) -> None:
        """The tag as it is now, so that it is not told again before the next reading."""
        if self.picture is None:
            return
        told = RegisteredVersion(
            version.model, version.number, version.identity, {**version.tags, key: value}
        )
        versions = tuple(
            told if item.number == version.number else item
            for item in self.picture.versions[version.model]
        )
        self.picture = Picture(
            self.picture.models, {**self.picture.versions, version.model: versions}
        )

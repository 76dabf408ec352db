"""Makes MLflow say what the projection says: tags, aliases, and evidence in the versions' runs.

Only differences are written, so that whatever could not be written is written later. Files are
compared by a digest that a tag keeps. What MLflow refuses, or what fails in here, is logged once
and tried again after a while; it holds up nothing else. It decides no verdict.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from registry import metrics
from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow.model_registry import (
    MlflowSnapshot,
    ModelRegistry,
    RegisteredVersion,
    RunArtifacts,
)
from registry.mlflow.projection import WAITS, Projection, ShownRollout, VersionTags

log = logging.getLogger(__name__)

Render = Callable[[ShownRollout], Awaitable[Mapping[str, bytes]]]

NO_RUN = "kept only in Headrace: the version was registered without a run"
_RETRY_SECONDS = 60.0


class WriteBack:
    """Compares and writes."""

    def __init__(
        self,
        source: ModelRegistry,
        artifacts: RunArtifacts,
        render: Render,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._artifacts = artifacts
        self._render = render
        self._clock = clock
        self._retry_at: dict[str, float] = {}

    async def write(self, snapshot: MlflowSnapshot, wanted: Projection) -> MlflowSnapshot:
        """Writes what the snapshot lacks.

        Gives the snapshot as it is now, so that nothing is written again before the next look.

        Raises:
            SourceUnavailableError: MLflow went away; the rest is written next time.
        """
        for item in (*wanted.tags, *_over(snapshot, wanted)):
            snapshot = await self._tags(snapshot, item.model, item.version, item.tags)
        for alias in wanted.aliases:
            model = snapshot.models.get(alias.model)
            known = snapshot.version(alias.model, alias.version)
            if model is None or known is None or model.aliases.get(alias.alias) == alias.version:
                continue
            setting = partial(self._source.set_alias, alias.model, alias.alias, alias.version)
            if await self._attempt(f"alias {alias.alias} of {alias.model}", setting):
                log.info("%s is now version %s of %s", alias.alias, alias.version, alias.model)
        for evidence in wanted.evidence:
            snapshot = await self._evidence(snapshot, evidence)
        return snapshot

    async def _tags(
        self, snapshot: MlflowSnapshot, model: str, version: str, tags: Mapping[str, str]
    ) -> MlflowSnapshot:
        known = snapshot.version(model, version)
        if known is None:
            return snapshot
        for key, value in tags.items():
            if known.tags.get(key, "") == value:
                continue
            setting = partial(self._source.set_tag, known, key, value)
            if await self._attempt(f"tag {key} of {model} version {version}", setting):
                known = replace(known, tags={**known.tags, key: value})
        return snapshot.with_version(known)

    async def _evidence(self, snapshot: MlflowSnapshot, evidence: ShownRollout) -> MlflowSnapshot:
        known = snapshot.version(evidence.model, evidence.version)
        digest_tag = evidence.tag("evidence_digest")
        if known is None or known.tags.get(digest_tag, "") == evidence.digest:
            return snapshot
        if not known.run_id:
            location = NO_RUN
        elif await self._attempt(evidence.folder, partial(self._upload, known, evidence)):
            location = f"runs:/{known.run_id}/{evidence.folder}"
        else:
            return snapshot
        tags = {evidence.tag("evidence"): location, digest_tag: evidence.digest}
        return await self._tags(snapshot, evidence.model, evidence.version, tags)

    async def _upload(self, version: RegisteredVersion, evidence: ShownRollout) -> None:
        for name, data in (await self._render(evidence)).items():
            await self._artifacts.put(version.run_id, f"{evidence.folder}/{name}", data)

    async def _attempt(self, what: str, doing: Callable[[], Awaitable[None]]) -> bool:
        """Whether it is done now; what failed a moment ago is not tried yet."""
        if self._clock() < self._retry_at.get(what, -math.inf):
            return False
        try:
            await doing()
        except SourceUnavailableError:
            metrics.WRITE_BACK_FAILURES.inc()
            raise
        except SourceRefusedError as error:
            if what not in self._retry_at:
                log.warning("MLflow refuses %s: %s", what, error)
        except Exception:  # of a page that can't be drawn, for instance
            if what not in self._retry_at:
                log.exception("MLflow can't be told %s", what)
        else:
            self._retry_at.pop(what, None)
            return True
        metrics.WRITE_BACK_FAILURES.inc()
        self._retry_at[what] = self._clock() + _RETRY_SECONDS
        return False


def _over(snapshot: MlflowSnapshot, wanted: Projection) -> Iterable[VersionTags]:
    """Empty tags for versions that wait no more, and that MLflow still shows as waiting."""
    told: dict[str, dict[str, set[str]]] = {}
    for item in wanted.tags:
        for key in item.tags:
            if key.endswith(f".{WAITS}"):
                told.setdefault(item.model, {}).setdefault(key, set()).add(item.version)
    for model, keys in told.items():
        for version in snapshot.versions.get(model, ()):
            over = {
                key: ""
                for key, versions in keys.items()
                if version.tags.get(key) and version.number not in versions
            }
            if over:
                yield VersionTags(model, version.number, over)

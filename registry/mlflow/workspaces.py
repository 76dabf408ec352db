"""Several workspaces of one MLflow, each with a connection and a watch of its own.

A model of a workspace is named ``WORKSPACE/MODEL`` everywhere; MLflow allows no ``/`` in either.
Where a release names no workspaces there is one watch, of the client's own (``MLFLOW_WORKSPACE``),
and models have their names alone. A workspace that is gone holds up no other.
"""

import asyncio
from collections.abc import Iterable, Mapping

from contracts.model import name_within, qualify, workspace_of
from registry.mlflow.model_registry import MlflowSnapshot, RegisteredVersion
from registry.mlflow.projection import Projection
from registry.mlflow.watch import SourceWatch


class WorkspaceWatches:
    """The watches of a release's workspaces, by their names, as one source."""

    def __init__(self, watches: Mapping[str, SourceWatch]) -> None:
        self._watches = dict(watches)

    def snapshot_of(self, model: str) -> MlflowSnapshot | None:
        """A model's workspace as last seen, or None; of one that is not watched, only why."""
        workspace = workspace_of(model)
        if (watch := self._watches.get(workspace)) is not None:
            return watch.snapshot
        if workspace:
            why = f"this release does not follow MLflow's workspace {workspace} (mlflow.workspaces)"
        else:
            every = ", ".join(self._watches)
            why = f"{model} names no workspace of MLflow, and this release follows {every}"
        return MlflowSnapshot(unfollowed=why)

    def models(self) -> list[str]:
        """Names of all models that were seen."""
        seen = (watch.snapshot for watch in self._watches.values())
        return [name for snapshot in seen if snapshot is not None for name in snapshot.models]

    def find_version(self, model: str, number: str) -> RegisteredVersion | None:
        """A version as last seen; None if it was not."""
        snapshot = self.snapshot_of(model)
        return snapshot.version(model, number) if snapshot is not None else None

    def announce(self, model: str) -> None:
        """A webhook told of a change of a model; of any, if it has no name.

        MLflow may send an entry of another workspace than that of the change: it keeps entries by
        their events, for a minute. So all are asked.
        """
        told = workspace_of(model)
        for workspace, watch in self._watches.items():
            if workspace in {"", told}:  # one of the client's own, whatever MLflow calls it
                name = name_within(model)
                watch.announce(qualify(workspace, name) if name else "")
            else:
                watch.wake()

    def follow(self, models: Iterable[str], wanted: Projection) -> None:
        """Whose versions to read, and what MLflow should say, from now on."""
        every = frozenset(models)
        for workspace, watch in self._watches.items():
            watch.follow(
                {model for model in every if workspace_of(model) == workspace},
                wanted.of_workspace(workspace),
            )

    async def run(self) -> None:
        """The rounds of all of them, without end."""
        async with asyncio.TaskGroup() as tasks:
            for workspace, watch in self._watches.items():
                tasks.create_task(watch.run(), name=f"source {workspace}".strip())

"""Reads registered models from MLflow, sets tags and aliases there, and puts files into runs.

What it can't reach is ``SourceUnavailableError``, never an empty registry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from contracts.model import name_within, qualify
from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow.client import MlflowConnection

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.entities.model_registry import RegisteredModel as RegisteredModelEntity
    from mlflow.store.entities.paged_list import PagedList

PAGE = 200  # models or versions that are asked for at once


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """``changed`` grows with every new or removed version of the model.

    ``created`` differs between two models that had the same name in turn; 0 if MLflow tells none.
    """

    name: str
    changed: int
    aliases: Mapping[str, str] = field(default_factory=dict)
    created: int = 0


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """``identity`` differs between two versions that had the same name and number in turn.

    ``run_id`` is empty if the version was registered without a run. ``source`` is where its
    files are, as the person who registered it said.
    """

    model: str
    number: str
    identity: str
    tags: Mapping[str, str] = field(default_factory=dict)
    run_id: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class MlflowSnapshot:
    """MLflow as last seen: all models, and the versions of those that endpoints follow.

    ``doubted``: models that endpoints follow and only one look has missed so far.
    ``unfollowed``: why nothing is known of a workspace; empty of one that is followed.
    """

    models: Mapping[str, RegisteredModel] = field(default_factory=dict)
    versions: Mapping[str, tuple[RegisteredVersion, ...]] = field(default_factory=dict)
    doubted: frozenset[str] = frozenset()
    unfollowed: str = ""

    def version(self, model: str, number: str) -> RegisteredVersion | None:
        """One version, if it was seen."""
        found = self.versions.get(model, ())
        return next((item for item in found if item.number == number), None)

    def with_version(self, known: RegisteredVersion) -> "MlflowSnapshot":
        """With what is known of one of its versions now."""
        versions = tuple(
            known if item.number == known.number else item for item in self.versions[known.model]
        )
        return replace(self, versions={**self.versions, known.model: versions})


class ModelRegistry(Protocol):
    """The registry; each call raises ``SourceUnavailableError`` if it does not answer.

    What it refuses to write is ``SourceRefusedError``.
    """

    async def models(self) -> tuple[RegisteredModel, ...]:
        """Every registered model."""

    async def changed_models(self, since: int) -> tuple[RegisteredModel, ...]:
        """Models that changed at ``since`` (as ``RegisteredModel.changed``) or later.

        New and removed versions change a model; aliases and removed models are seen only in
        ``models``. Raises ``SourceRefusedError`` too, if the registry can't say it.
        """

    async def model(self, name: str) -> RegisteredModel | None:
        """One registered model; None if there is none of that name."""

    async def versions(self, model: str) -> tuple[RegisteredVersion, ...]:
        """A model's versions whose registration has ended well, newest first."""

    async def set_tag(self, version: RegisteredVersion, key: str, value: str) -> None:
        """Sets a tag of a version."""

    async def set_alias(self, model: str, alias: str, number: str) -> None:
        """Lets an alias of a model name one of its versions."""


class RunArtifacts(Protocol):
    """Files of runs."""

    async def put(self, run_id: str, path: str, data: bytes) -> None:
        """Writes one file, over what was there.

        Raises:
            SourceRefusedError: it can't be written there, and trying again soon would not help.
            SourceUnavailableError: MLflow is away.
        """


class MlflowRegistry:
    """An MLflow server, as ``ModelRegistry`` and as ``RunArtifacts``.

    Models of a connection's workspace are named with it (``contracts.model.qualify``).
    """

    def __init__(self, server: MlflowConnection) -> None:
        self._server = server

    def _model(self, item: "RegisteredModelEntity") -> RegisteredModel:
        return RegisteredModel(
            name=qualify(self._server.workspace, item.name),
            changed=int(item.last_updated_timestamp or 0),
            aliases={alias: str(version) for alias, version in item.aliases.items()},
            created=int(item.creation_timestamp or 0),
        )

    def _version(self, item: "ModelVersion") -> RegisteredVersion:
        parts = (item.creation_timestamp, item.source, item.run_id)
        return RegisteredVersion(
            model=qualify(self._server.workspace, item.name),
            number=str(item.version),
            identity="|".join(str(part or "") for part in parts),
            tags=dict(item.tags),
            run_id=item.run_id or "",
            source=item.source or "",
        )

    async def models(self) -> tuple[RegisteredModel, ...]:
        """Every registered model; prompts are none."""
        found = await self._all(
            lambda token: (
                lambda client: client.search_registered_models(max_results=PAGE, page_token=token)
            )
        )
        return tuple(map(self._model, found))

    async def changed_models(self, since: int) -> tuple[RegisteredModel, ...]:
        """The models that changed last; see the Protocol."""
        found: list[RegisteredModel] = []
        token: str | None = None
        while True:
            search = partial(_find_newest_models, token)
            page = await self._server.ask_in_time(search)
            found.extend(map(self._model, page))
            token = page.token
            if not token or found[-1].changed < since:
                return tuple(model for model in found if model.changed >= since)

    async def model(self, name: str) -> RegisteredModel | None:
        """One model; see the Protocol."""
        try:
            within = name_within(name)
            found = await self._server.ask_in_time(lambda it: it.get_registered_model(within))
        except SourceRefusedError as error:
            if error.missing:
                return None
            raise SourceUnavailableError(str(error)) from error
        if found.name != within:  # something before MLflow answers
            raise SourceUnavailableError(f"asked for the model {name}, it tells of {found.name!r}")
        return self._model(found)

    async def versions(self, model: str) -> tuple[RegisteredVersion, ...]:
        """A model's versions, newest first; see the Protocol. Others' are a proxy's doing."""
        name = name_within(model)
        quote = '"' if "'" in name else "'"  # MLflow knows no way to write a quote within
        found = await self._all(
            lambda token: (
                lambda client: client.search_model_versions(
                    f"name={quote}{name}{quote}", max_results=PAGE, page_token=token
                )
            )
        )
        for item in found:
            if item.name != name or not str(item.version).isdecimal():
                told = f"version {item.version} of {item.name}"
                raise SourceUnavailableError(f"asked for versions of {model}, it lists {told}")
        ready = [item for item in found if item.status == "READY"]
        ready.sort(key=lambda item: int(item.version), reverse=True)
        return tuple(map(self._version, ready))

    async def set_tag(self, version: RegisteredVersion, key: str, value: str) -> None:
        """Sets a tag; see the Protocol."""
        name = name_within(version.model)
        await self._server.ask_in_time(
            lambda client: client.set_model_version_tag(name, version.number, key, value)
        )

    async def set_alias(self, model: str, alias: str, number: str) -> None:
        """Sets an alias; see the Protocol."""
        name = name_within(model)
        await self._server.ask_in_time(
            lambda client: client.set_registered_model_alias(name, alias, number)
        )

    async def put(self, run_id: str, path: str, data: bytes) -> None:
        """Writes one file of a run; see ``RunArtifacts``."""
        run = await self._server.ask_in_time(lambda client: client.get_run(run_id))
        root = str(run.info.artifact_uri)
        await self._server.in_time(lambda: self._server.folder(root).put(path, data))

    async def _all(
        self, page: Callable[[str | None], Callable[["MlflowClient"], Any]]
    ) -> list[Any]:
        """All pages, however many; none if MLflow does not know what was asked for."""
        found: list[Any] = []
        token: str | None = None
        while True:
            try:
                answer = await self._server.ask_in_time(page(token))
            except SourceRefusedError as error:
                if error.missing:
                    break
                raise SourceUnavailableError(str(error)) from error
            found.extend(answer)
            token = answer.token
            if not token:
                break
        return found


def _find_newest_models(
    token: str | None, client: "MlflowClient"
) -> "PagedList[RegisteredModelEntity]":
    newest = ["last_updated_timestamp DESC"]
    return client.search_registered_models(max_results=PAGE, order_by=newest, page_token=token)

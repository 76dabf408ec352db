"""Reads registered models from MLflow, and sets tags and aliases there.

Called by ``source_watch.py`` and ``write_back.py``. What it can't reach is
``SourceUnavailableError``, never an empty registry.
"""

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from registry.mlflow_rest import API, Json, MlflowRest

_PAGE = 200
_MOST_PAGES = 50


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """``changed`` grows with every new or removed version of the model."""

    name: str
    changed: int
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """``identity`` differs between two versions that had the same name and number in turn.

    ``run_id`` is empty where the version was registered without a run.
    """

    model: str
    number: str
    identity: str
    tags: Mapping[str, str] = field(default_factory=dict)
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """MLflow as last seen: all models, and the versions of those that endpoints follow."""

    models: Mapping[str, RegisteredModel] = field(default_factory=dict)
    versions: Mapping[str, tuple[RegisteredVersion, ...]] = field(default_factory=dict)

    def version(self, model: str, number: str) -> RegisteredVersion | None:
        """One version, if it was seen."""
        found = self.versions.get(model, ())
        return next((item for item in found if item.number == number), None)

    def with_version(self, known: RegisteredVersion) -> "Picture":
        """With what is known of one of its versions now."""
        versions = tuple(
            known if item.number == known.number else item for item in self.versions[known.model]
        )
        return Picture(self.models, {**self.versions, known.model: versions})


class ModelRegistry(Protocol):
    """The registry; each call raises ``SourceUnavailableError`` where it does not answer.

    What it refuses to write is ``SourceRefusedError``.
    """

    async def models(self) -> tuple[RegisteredModel, ...]:
        """Every registered model."""
        ...

    async def versions(self, model: str) -> tuple[RegisteredVersion, ...]:
        """A model's versions whose registration has ended well, newest first."""
        ...

    async def set_tag(self, version: RegisteredVersion, key: str, value: str) -> None:
        """Sets a tag of a version."""
        ...

    async def set_alias(self, model: str, alias: str, number: str) -> None:
        """Lets an alias of a model name one of its versions."""
        ...


class MlflowRegistry:
    """An MLflow server."""

    def __init__(self, rest: MlflowRest) -> None:
        self._rest = rest

    async def models(self) -> tuple[RegisteredModel, ...]:
        """Every registered model."""
        found = await self._search("registered-models/search", "registered_models", {})
        return tuple(
            RegisteredModel(
                name=str(item["name"]),
                changed=int(item.get("last_updated_timestamp", 0)),
                aliases={
                    str(alias["alias"]): str(alias["version"]) for alias in item.get("aliases", ())
                },
            )
            for item in found
        )

    async def versions(self, model: str) -> tuple[RegisteredVersion, ...]:
        """A model's versions, newest first; see the Protocol."""
        quoted = model.replace("'", "''")
        query = {"filter": f"name='{quoted}'"}
        found = await self._search("model-versions/search", "model_versions", query)
        ready = [item for item in found if item.get("status", "READY") == "READY"]
        ready.sort(key=lambda item: int(item["version"]), reverse=True)
        return tuple(_version(item) for item in ready)

    async def set_tag(self, version: RegisteredVersion, key: str, value: str) -> None:
        """Sets a tag; see the Protocol."""
        where = {"name": version.model, "version": version.number}
        await self._rest.post(
            f"{API}/model-versions/set-tag", {**where, "key": key, "value": value}
        )

    async def set_alias(self, model: str, alias: str, number: str) -> None:
        """Sets an alias; see the Protocol."""
        body = {"name": model, "alias": alias, "version": number}
        await self._rest.post(f"{API}/registered-models/alias", body)

    async def _search(self, route: str, key: str, query: Mapping[str, str]) -> list[Json]:
        found: list[Json] = []
        token = ""
        for _ in range(_MOST_PAGES):
            page = {"max_results": str(_PAGE), **query}
            if token:
                page["page_token"] = token
            answer = await self._rest.get(f"{API}/{route}?{urllib.parse.urlencode(page)}")
            found.extend(answer.get(key, ()))
            token = str(answer.get("next_page_token") or "")
            if not token:
                break
        return found


def _version(item: Json) -> RegisteredVersion:
    parts = (item.get("creation_timestamp"), item.get("source"), item.get("run_id"))
    return RegisteredVersion(
        model=str(item["name"]),
        number=str(item["version"]),
        identity="|".join(str(part or "") for part in parts),
        tags={str(tag["key"]): str(tag.get("value", "")) for tag in item.get("tags", ())},
        run_id=str(item.get("run_id") or ""),
    )

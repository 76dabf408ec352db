"""Reads registered models from MLflow and writes verdicts back as tags.

Called by the controller. It speaks MLflow's REST interface itself, because importing MLflow's
client takes longer than everything else in the controller's start. Every question has a deadline
and runs in a thread; what it can't reach is ``SourceUnavailableError``, never an empty registry.
"""

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from registry.errors import SourceUnavailableError

_API = "api/2.0/mlflow"
_PAGE = 200
_MOST_PAGES = 50
_TAG_CHARACTERS = 500

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """``changed`` grows with every new or removed version of the model."""

    name: str
    changed: int
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """``identity`` differs between two versions that had the same name and number in turn."""

    model: str
    number: str
    identity: str
    tags: Mapping[str, str] = field(default_factory=dict)


class ModelRegistry(Protocol):
    """The registry; each call raises ``SourceUnavailableError`` where it does not answer."""

    async def models(self) -> tuple[RegisteredModel, ...]:
        """Every registered model."""
        ...

    async def versions(self, model: str) -> tuple[RegisteredVersion, ...]:
        """A model's versions whose registration has ended well, newest first."""
        ...

    async def set_tag(self, version: RegisteredVersion, key: str, value: str) -> None:
        """Sets a tag of a version; a version that is gone is no error."""
        ...


class MlflowRegistry:
    """An MLflow server.

    Args:
        uri: its address, ``http://`` or ``https://``.
        authorization: value of the header, if the server wants one.
        timeout_seconds: deadline of one question.
    """

    def __init__(self, uri: str, *, authorization: str, timeout_seconds: float) -> None:
        self._uri = uri.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if authorization:
            self._headers["Authorization"] = authorization
        self._timeout = timeout_seconds

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
        body = {**where, "key": key, "value": value[:_TAG_CHARACTERS]}
        await self._ask("model-versions/set-tag", body=body)

    async def _search(self, route: str, key: str, query: Mapping[str, str]) -> list[Json]:
        found: list[Json] = []
        token = ""
        for _ in range(_MOST_PAGES):
            page = {"max_results": str(_PAGE), **query}
            if token:
                page["page_token"] = token
            answer = await self._ask(f"{route}?{urllib.parse.urlencode(page)}")
            found.extend(answer.get(key, ()))
            token = str(answer.get("next_page_token") or "")
            if not token:
                break
        return found

    async def _ask(self, route: str, *, body: Json | None = None) -> Json:
        try:
            return await asyncio.wait_for(
                asyncio.to_thread(self._call, route, body), self._timeout + 1.0
            )
        except TimeoutError as error:
            raise SourceUnavailableError(f"MLflow at {self._uri} takes too long") from error

    def _call(self, route: str, body: Json | None) -> Json:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - an operator's setting
            f"{self._uri}/{_API}/{route}", data=data, headers=self._headers
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as reply:  # noqa: S310
                answer = json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return {}  # the model or version is gone
                said = error.read(300).decode(errors="replace")
            raise SourceUnavailableError(
                f"MLflow at {self._uri} answered {error.code}: {said}"
            ) from error
        except (OSError, ValueError) as error:
            raise SourceUnavailableError(f"MLflow at {self._uri} does not answer: {error}") from (
                error
            )
        if not isinstance(answer, dict):
            raise SourceUnavailableError(f"MLflow at {self._uri} answered with no object")
        return answer


def _version(item: Json) -> RegisteredVersion:
    parts = (item.get("creation_timestamp"), item.get("source"), item.get("run_id"))
    return RegisteredVersion(
        model=str(item["name"]),
        number=str(item["version"]),
        identity="|".join(str(part or "") for part in parts),
        tags={str(tag["key"]): str(tag.get("value", "")) for tag in item.get("tags", ())},
    )

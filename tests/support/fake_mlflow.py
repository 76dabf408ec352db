"""MLflow's REST interface over folders, on a real socket, as far as MLflow's own client asks.

Artifacts are listed, sent, taken and removed as MLflow does with a folder of its own. The tests in
``registry/test_mlflow_source.py`` hold it and a real server to the same. With ``script`` a test
answers in its place.
"""

import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from http_server import Answer, Request, http_server

API = "/api/2.0/mlflow"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"

Json = dict[str, Any]


@dataclass
class FakeMlflow:
    """What the server knows. ``root`` holds the artifacts that it serves."""

    root: Path
    models: dict[str, Json] = field(default_factory=dict)
    versions: dict[tuple[str, str], Json] = field(default_factory=dict)
    locations: dict[tuple[str, str], str] = field(default_factory=dict)
    runs: dict[str, Json] = field(default_factory=dict)
    logged: dict[str, str] = field(default_factory=dict)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    asked: list[tuple[str, Json]] = field(default_factory=list)  # path and query, or body
    script: Callable[[str, Json], tuple[int, Any] | None] = lambda path, query: None
    broken: bool = False
    missing: int = 0  # bytes at the end of each answer that never come
    uri: str = ""

    def register(
        self,
        name: str,
        location: str,
        *,
        run_id: str = "",
        created: int = 1_000,
    ) -> None:
        """Version 1 of ``name``; ``created`` in unix milliseconds."""
        self.models[name] = {"name": name, "last_updated_timestamp": created}
        self.versions[name, "1"] = {
            "name": name,
            "version": "1",
            "status": "READY",
            "source": f"models:/m-{name}",
            "run_id": run_id,
            "creation_timestamp": created,
        }
        self.locations[name, "1"] = location

    def log_run(self, run_id: str, artifacts: str, **extra: Any) -> None:
        """A run with its artifacts; ``extra`` goes into the run."""
        info = {"run_id": run_id, "artifact_uri": artifacts, "lifecycle_stage": "active"}
        self.runs[run_id] = {"info": info, **extra}

    def respond(self, request: Request) -> Answer:
        """What it answers, unless a test has it answer something else."""
        path = request.path
        asked = json.loads(request.body) if request.method == "POST" else request.query
        self.asked.append((path, asked))
        self.headers.append(request.headers)
        instead = (503, {}) if self.broken else self.script(path, asked)
        if instead is None and request.method in {"PUT", "DELETE"}:
            self._store(request) if request.method == "PUT" else self._remove(path)
            instead = (200, {})
        status, body = instead or self._answer(path, asked)
        return Answer(status, body, self.missing)

    def _answer(self, path: str, asked: Json) -> tuple[int, Any]:
        """Status and body of a route, or of the artifact at ``path``."""
        file = self._artifact(path)
        if path.startswith(f"{ARTIFACTS}/") and file.is_file():
            return 200, file.read_bytes()
        found = self._found(path, asked)
        if found is None:
            message = f"{' '.join(map(str, asked.values()))} not found"
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": message}
        return 200, found

    def _artifact(self, path: str) -> Path:
        """The file or folder that is asked for at ``path``."""
        return self.root / path.removeprefix(f"{ARTIFACTS}/")

    def _store(self, request: Request) -> None:
        file = self._artifact(request.path)
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_name(f".{uuid.uuid4().hex}")
        aside.write_bytes(request.body)
        aside.replace(file)

    def _remove(self, path: str) -> None:
        found = self._artifact(path)
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)

    def _found(self, path: str, asked: Json) -> Json | None:
        """What a route finds; None where MLflow says that it is not there."""
        route = path.removeprefix(f"{API}/")
        if route.startswith("logged-models/"):
            location = self.logged.get(route.rsplit("/", 1)[-1])
            return {"model": {"info": {"artifact_uri": location}}} if location else None
        find = _ROUTES.get(route)
        try:
            return find(self, asked) if find else None
        except KeyError:
            return None

    def _search_models(self, asked: Json) -> Json:
        found = list(self.models.values())
        if asked.get("order_by") == "last_updated_timestamp DESC":
            found.sort(key=lambda model: -int(model["last_updated_timestamp"]))
        return _page("registered_models", found, asked)

    def _create_model(self, asked: Json) -> Json:
        name = asked["name"]
        self.models[name] = {"name": name, "last_updated_timestamp": 1_000}
        return {"registered_model": self.models[name]}

    def _set_alias(self, asked: Json) -> Json:
        version = self.versions[_version_of(asked)]
        kept = [
            item
            for item in self.models[asked["name"]].get("aliases", ())
            if item["alias"] != asked["alias"]
        ]
        alias = {"alias": asked["alias"], "version": version["version"]}
        self.models[asked["name"]]["aliases"] = [*kept, alias]
        return {}

    def _search_versions(self, asked: Json) -> Json:
        quoted = asked["filter"].removeprefix("name=")
        wanted = quoted[1 : quoted.index(quoted[0], 1)]  # whatever follows is none of ours
        found = [each for (model, _), each in self.versions.items() if model == wanted]
        return _page("model_versions", found, asked)

    def _create_version(self, asked: Json) -> Json:
        name = asked["name"]
        number = str(1 + sum(model == name for model, _ in self.versions))
        self.models[name]["last_updated_timestamp"] += 1
        self.locations[name, number] = asked["source"]
        made = {"version": number, "status": "READY", "creation_timestamp": 1_000}
        self.versions[name, number] = {**asked, **made}
        return {"model_version": self.versions[name, number]}

    def _set_tag(self, asked: Json) -> Json:
        version = self.versions[_version_of(asked)]
        kept = [item for item in version.get("tags", ()) if item["key"] != asked["key"]]
        version["tags"] = [*kept, {"key": asked["key"], "value": asked["value"]}]
        return {}

    def _create_run(self, asked: Json) -> Json:
        run_id = uuid.uuid4().hex
        self.log_run(run_id, f"mlflow-artifacts:/0/{run_id}/artifacts")
        return {"run": self.runs[run_id]}

    def _list(self, asked: Json) -> Json:
        folder = self.root / asked.get("path", "")
        entries = sorted(folder.iterdir()) if folder.is_dir() else []
        return {"files": [_listed(entry) for entry in entries if entry.name[0] != "."]}


def _version_of(asked: Json) -> tuple[str, str]:
    return asked["name"], asked["version"]


_ROUTES: dict[str, Callable[[FakeMlflow, Json], Json]] = {
    "registered-models/search": FakeMlflow._search_models,
    "registered-models/get": lambda fake, asked: {"registered_model": fake.models[asked["name"]]},
    "registered-models/create": FakeMlflow._create_model,
    "registered-models/alias": FakeMlflow._set_alias,
    "model-versions/search": FakeMlflow._search_versions,
    "model-versions/create": FakeMlflow._create_version,
    "model-versions/get": lambda fake, asked: {"model_version": fake.versions[_version_of(asked)]},
    "model-versions/get-download-uri": lambda fake, asked: {
        "artifact_uri": fake.locations[_version_of(asked)]
    },
    "model-versions/set-tag": FakeMlflow._set_tag,
    "runs/create": FakeMlflow._create_run,
    "runs/get": lambda fake, asked: {"run": fake.runs[asked["run_id"]]},
    ARTIFACTS: FakeMlflow._list,
}


def _page(key: str, found: list[Json], asked: Json) -> Json:
    begin, most = int(asked.get("page_token", 0)), int(asked["max_results"])
    more = {"next_page_token": str(begin + most)} if begin + most < len(found) else {}
    return {key: found[begin : begin + most], **more}


def _listed(entry: Path) -> Json:
    # As MLflow does it: 64-bit numbers are text in its JSON, and a folder has no size.
    size = {} if entry.is_dir() else {"file_size": str(entry.stat().st_size)}
    return {"path": entry.name, "is_dir": entry.is_dir(), **size}


@contextmanager
def serve(fake: FakeMlflow) -> Iterator[FakeMlflow]:
    """Serves ``fake`` on a free port until the block ends; sets its ``uri``."""
    with http_server(fake.respond) as fake.uri:
        yield fake

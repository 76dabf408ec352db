"""MLflow's REST interface over folders, on a real socket: conversion and artifacts.

Artifacts are listed, sent, taken and removed as MLflow does with a folder of its own.
"""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"


@dataclass
class FakeMlflow:
    """What the server knows. ``root`` holds the artifacts that it serves."""

    root: Path
    versions: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    locations: dict[tuple[str, str], str] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    logged: dict[str, str] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
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
        self.versions[name, "1"] = {
            "name": name,
            "source": f"models:/m-{name}",
            "run_id": run_id,
            "creation_timestamp": created,
        }
        self.locations[name, "1"] = location

    def log_run(self, run_id: str, artifacts: str, **extra: Any) -> None:
        """A run with its artifacts; ``extra`` goes into the run."""
        self.runs[run_id] = {"info": {"artifact_uri": artifacts}, **extra}

    def answer(self, path: str, query: dict[str, str]) -> Any:
        """The JSON of a route, or None for what it does not know."""
        key = (query.get("name", ""), query.get("version", ""))
        if path.endswith("/model-versions/get"):
            return self.versions.get(key) and {"model_version": self.versions[key]}
        if path.endswith("/model-versions/get-download-uri"):
            return self.locations.get(key) and {"artifact_uri": self.locations[key]}
        if path.endswith("/runs/get"):
            run = self.runs.get(query.get("run_id", ""))
            return run and {"run": run}
        if "/logged-models/" in path:
            location = self.logged.get(path.rsplit("/", 1)[-1])
            return location and {"model": {"info": {"artifact_uri": location}}}
        if path == ARTIFACTS:
            folder = self.root / query.get("path", "")
            entries = sorted(folder.iterdir()) if folder.is_dir() else []
            return {"files": [_listed(entry) for entry in entries if entry.name[0] != "."]}
        return None


def _listed(entry: Path) -> dict[str, Any]:
    # As MLflow does it: 64-bit numbers are text in its JSON, and a folder has no size.
    size = {} if entry.is_dir() else {"file_size": str(entry.stat().st_size)}
    return {"path": entry.name, "is_dir": entry.is_dir(), **size}


class _Handler(BaseHTTPRequestHandler):
    fake: FakeMlflow

    def do_GET(self) -> None:
        self.fake.headers.append(dict(self.headers))
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        file = self.fake.root / path.removeprefix(f"{ARTIFACTS}/")
        if self.fake.broken:
            self._send(503, b"{}")
        elif path.startswith(f"{ARTIFACTS}/") and file.is_file():
            self._send(200, file.read_bytes())
        elif (found := self.fake.answer(path, query)) is not None:
            self._send(200, json.dumps(found).encode())
        else:
            self._send(404, b"{}")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.fake.headers.append(dict(self.headers))
        if self.fake.broken:
            self._send(503, b"{}")
            return
        file = self._artifact()
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_name(f".{uuid.uuid4().hex}")
        aside.write_bytes(body)
        aside.replace(file)
        self._send(200, b"{}")

    def do_DELETE(self) -> None:
        self.fake.headers.append(dict(self.headers))
        found = self._artifact()
        if self.fake.broken:
            self._send(503, b"{}")
            return
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)
        self._send(200, b"{}")

    def _artifact(self) -> Path:
        return self.fake.root / unquote(urlsplit(self.path).path).removeprefix(f"{ARTIFACTS}/")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - self.fake.missing])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: a test's output is its own."""


@contextmanager
def serve(fake: FakeMlflow) -> Iterator[FakeMlflow]:
    """Serves ``fake`` on a free port until the block ends; sets its ``uri``."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    fake.uri = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

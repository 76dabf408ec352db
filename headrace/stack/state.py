"""The home folder of a local stack: its layout, its lock and its record of what runs.

``headrace up`` opens and locks a home; the other commands only read it. What the services write
into their own folders is theirs; this module creates the folders and checks what is left of them.
"""

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from contracts.endpoint import ModelEndpoint
from contracts.model import DEFAULT_POOL
from headrace.errors import BrokenHomeError, HomeInUseError
from service import durable

LAYOUT = 1
_MARKER = "headrace-home.json"
_FOLDERS = (
    "endpoints",
    "endpoints/.controller",
    "packages",
    "triton/model-repository",
    "mlflow",
    "kafka",
    "reports",
    "logs",
)


class GatewayRecord(BaseModel):
    """Where one gateway listens; its metrics are at ``OPERATIONS_URL/metrics``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    url: str
    grpc: str
    operations_url: str


class TritonRecord(BaseModel):
    """Where one Triton and the loader beside it listen.

    ``metrics_url`` is empty for an existing Triton, whose metrics are its owner's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    grpc: str
    metrics_url: str
    loader: str
    loader_metrics_url: str
    pool: str = DEFAULT_POOL


class StackRecord(BaseModel):
    """What runs, for the other commands: written by ``up``, removed when it ends.

    ``gateway_url``, ``gateway_grpc`` and ``triton_grpc`` are the first replica's; ``gateways`` and
    ``tritons`` are all of them. ``package_store`` is empty if packages lie in the home.
    ``pages``: by service, the URL that answers 200 if it is well, and else why it is not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    started_at: float
    gateway_url: str
    gateway_grpc: str
    mlflow_url: str
    stats_url: str = ""
    kafka_bootstrap: str
    triton_grpc: str
    package_store: str = ""
    auto_endpoints: bool = True
    gateways: tuple[GatewayRecord, ...] = ()
    tritons: tuple[TritonRecord, ...] = ()
    services: dict[str, int] = {}
    pages: dict[str, str] = {}


class Home:
    """Paths inside ``$HEADRACE_HOME``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.endpoints = root / "endpoints"  # one JSON file an endpoint
        self.packages = root / "packages"  # the package store
        self.receipt_keys = root / "receipt-keys"  # sign answers; made at a gateway's first start
        self.mlflow = root / "mlflow"  # MLflow's database and artifacts
        self.kafka = root / "kafka"  # Kafka's log segments and settings
        self.reports = root / "reports"  # one report a loader
        self.logs = root / "logs"  # one log a process
        self.stack_file = root / "stack.json"  # the record of the running stack
        self.lock_file = root / ".lock"  # held by ``headrace up`` for as long as it runs
        self.marker = root / _MARKER  # written first: proof that the folder is ours

    def repository_of(self, triton: str) -> Path:
        """What the embedded Triton of this name loads from."""
        return self.root / triton / "model-repository"

    def python_of(self, triton: str) -> Path:
        """The environment of Python in which a Triton's models run."""
        return self.root / triton / "python"

    def control_key_of(self, triton: str) -> Path:
        """The key that the embedded Triton of this name asks its loader for."""
        return self.root / triton / "control-key"


@contextlib.contextmanager
def claim_home(root: Path) -> Iterator[Home]:
    """Makes the home folder or checks the one that is there, and holds it for this process.

    The kernel lets go of the lock however the process ends.

    Raises:
        HomeInUseError: another ``headrace up`` holds it.
        BrokenHomeError: the folder holds something else, or was left half-written.
    """
    home = Home(root)
    try:
        _refuse_foreign(home)
        root.mkdir(parents=True, exist_ok=True)
        with _lock(home):
            if not home.marker.exists():
                durable.write(home.marker, json.dumps({"layout": LAYOUT}).encode() + b"\n")
            _check(home)
            for folder in _FOLDERS:
                (root / folder).mkdir(parents=True, exist_ok=True)
            yield home
    except PermissionError as error:
        raise BrokenHomeError(
            f"No right to write {error.filename}. Choose another folder with --home."
        ) from error


@contextlib.contextmanager
def _lock(home: Home) -> Iterator[None]:
    descriptor = os.open(home.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            raise HomeInUseError(
                f"A headrace stack already runs on {home.root} (process {holder or 'unknown'}). "
                "Stop it with Ctrl-C there, or start another with --home FOLDER and its own ports."
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def is_locked(home: Home) -> bool:
    """Whether a ``headrace up`` runs on this home now."""
    if not home.lock_file.exists():
        return False
    descriptor = os.open(home.lock_file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_record(home: Home, record: StackRecord) -> None:
    """Says what runs, whole or not at all; raises ``OSError``."""
    durable.write(home.stack_file, record.model_dump_json(indent=2).encode() + b"\n")


def wrote_record(home: Home, record: StackRecord) -> bool:
    """The same for a stack that runs: whether it could be said.

    A disk without room ends nothing that runs; until it has some, the last record stands.
    """
    try:
        write_record(home, record)
    except OSError:
        return False
    return True


def forget_other_loaders(home: Home, loaders: Collection[str]) -> None:
    """Removes the reports of loaders that the stack no longer has, before it starts.

    A gateway would look for their Tritons for ever.
    """
    for path in home.reports.glob("[!.]*.json"):
        if path.stem not in loaders:
            path.unlink(missing_ok=True)


def read_record(home: Home) -> StackRecord | None:
    """The running stack, or None if none runs on this home."""
    if not is_locked(home):
        return None
    try:
        return StackRecord.model_validate_json(home.stack_file.read_bytes())
    except (FileNotFoundError, ValidationError):
        # It is just starting or ending; its record is not there yet or was written by another
        # version of this program.
        return None


def _refuse_foreign(home: Home) -> None:
    if home.root.exists() and not home.root.is_dir():
        raise BrokenHomeError(f"{home.root} is a file. Choose another folder with --home.")
    if not home.root.exists() or home.marker.exists():
        return
    if any(entry.name != home.lock_file.name for entry in home.root.iterdir()):
        raise BrokenHomeError(
            f"{home.root} is not empty and has no {_MARKER}: it is not a Headrace home, or was "
            "left half-written. Move it away, or choose another folder with --home."
        )


def _check(home: Home) -> None:
    _check_marker(home)
    _check_endpoints(home)
    _check_database(home.mlflow / "mlflow.db")


def _check_marker(home: Home) -> None:
    try:
        layout = json.loads(home.marker.read_bytes())["layout"]
    except (ValueError, KeyError, TypeError):
        raise BrokenHomeError(
            f"{home.marker} is damaged. Move {home.root} away, or choose another with --home."
        ) from None
    if layout != LAYOUT:
        raise BrokenHomeError(
            f"{home.root} has layout {layout}, this program knows layout {LAYOUT}. Use the "
            "version of headrace that made it, or choose another folder with --home."
        )


def _check_endpoints(home: Home) -> None:
    for path in sorted(home.endpoints.glob("*.json")):
        try:
            ModelEndpoint.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole file"
            raise BrokenHomeError(
                f"The endpoint file {path} can't be read ({where}: {first['msg']}). Fix it "
                "or move it away; with auto endpoints it is made again from MLflow."
            ) from None


def _check_database(path: Path) -> None:
    if not path.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            tables = {
                name
                for (name,) in database.execute("select name from sqlite_master where type='table'")
            }
    except sqlite3.DatabaseError as error:
        raise BrokenHomeError(
            f"MLflow's database {path} is damaged ({error}). Put back a copy, or move the folder "
            f"{path.parent} away to begin with an empty registry."
        ) from None
    if tables and "alembic_version" not in tables:
        raise BrokenHomeError(
            f"MLflow's database {path} was left half-written by its first start. Move the folder "
            f"{path.parent} away; an empty one is made at the next start."
        )

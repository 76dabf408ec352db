"""A real MLflow server on this machine: SQLite, with artifacts served, one worker.

It starts the very application that ``mlflow server`` starts, without that command's own process
around it: this takes a third of the time, which is what a second ``headrace up`` mostly waits for.
It never touches a server that it did not start.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contracts import telemetry_off


@dataclass(frozen=True)
class LocalMlflowServer:
    """One server: where its state lies and where it listens."""

    folder: Path
    port: int = 5000
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """The tracking URI for clients."""
        return f"http://{self.host}:{self.port}"

    @property
    def database(self) -> Path:
        """Runs and registered models."""
        return self.folder / "mlflow.db"

    @property
    def artifacts(self) -> Path:
        """Files of runs and models."""
        return self.folder / "artifacts"


def command(server: LocalMlflowServer) -> list[str]:
    """Runs the server until SIGTERM, in one process."""
    program = [sys.executable, "-P", "-m", "uvicorn", "mlflow.server.fastapi_app:app"]
    return [*program, "--host", server.host, "--port", str(server.port), "--log-level", "warning"]


def environment(server: LocalMlflowServer, base: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: ``base`` with what ``mlflow server`` would tell its worker.

    The names with an underscore are MLflow's own (``mlflow.server.constants``) for just this; the
    lock file holds the version that they were read from, and a test starts it.
    """
    return {
        **base,
        **telemetry_off.VARIABLES,
        "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{server.database}",
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(server.artifacts),
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "_MLFLOW_SGI_NAME": "uvicorn",
        # Background jobs judge language models: five more processes that nothing here uses.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        # Its webhooks must reach a controller on this machine.
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
        "OMP_NUM_THREADS": "1",
    }


def lay_out(server: LocalMlflowServer) -> None:
    """Makes the folders; leaves what is in them as it is."""
    server.artifacts.mkdir(parents=True, exist_ok=True)


def readiness_url(url: str) -> str:
    """A question of the registry at ``url``; the first makes the database, which takes seconds."""
    return f"{url}/api/2.0/mlflow/registered-models/search?max_results=1"

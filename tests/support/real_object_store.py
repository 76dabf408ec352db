"""A real S3-compatible server on this machine: Versity's gateway over a folder, with one bucket.

``make object-store`` builds it where Go is. Clients find it as they find any: by the variables in
``environment``.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import fsspec
import pytest
from own_ports import own_ports
from own_servers import OwnProcess

BUCKET = "models"
ACCESS_KEY = "headrace"
SECRET_KEY = "a-secret-of-the-tests"
START_SECONDS = 120.0
STOP_SECONDS = 10.0


def found(cache: Path) -> str | None:
    """The path of ``versitygw``; None where there is none."""
    return shutil.which("versitygw", path=f"{os.environ.get('PATH', '')}:{cache / 'object-store'}")


def program(cache: Path) -> str:
    """The path of ``versitygw``; skips the test where there is none."""
    path = found(cache)
    if path is None:
        pytest.skip("there is no S3 server here: make object-store builds it, where Go is")
    return path


class ObjectStore(OwnProcess):
    """A server under this process' care. Its objects outlive it."""

    def __init__(self, program: str, home: Path) -> None:
        super().__init__(home / "versitygw.log", STOP_SECONDS)
        self._program = program
        self._objects = home / "objects"
        self._users = home / "users"
        self._beside = home / "metadata"  # not every file system keeps it in its own attributes
        (self._port,) = own_ports(1)
        self.environment = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def pid(self) -> int:
        """The id of its process, which runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it and waits until it takes connections."""
        for folder in (self._objects, self._beside, self._users):
            folder.mkdir(parents=True, exist_ok=True)
        self._run(
            "the S3 server",
            [
                self._program,
                f"--port=127.0.0.1:{self._port}",
                f"--iam-dir={self._users}",
                "--quiet",
                "posix",
                f"--sidecar={self._beside}",
                str(self._objects),
            ],
            self._answers,
            within_seconds=START_SECONDS,
            extended=_with_root,
        )

    def add_user(self, access: str, secret: str) -> dict[str, str]:
        """Makes a user who may do nothing yet; the variables that sign in as that user."""
        subprocess.run(
            [
                self._program,
                *("admin", "--access", ACCESS_KEY, "--secret", SECRET_KEY),
                *("--endpoint-url", self.environment["AWS_ENDPOINT_URL"]),
                *("create-user", "--access", access, "--secret", secret, "--role", "user"),
            ],
            check=True,
            capture_output=True,
        )
        return {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret}

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def _with_root(environment: Mapping[str, str]) -> dict[str, str]:
    return {**environment, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}


def use(patch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    """Has clients of this process read these variables.

    fsspec keeps what it opened before, whose credentials would be the old ones.
    """
    for name, value in environment.items():
        patch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def make_bucket() -> None:
    """Makes the bucket, as an administrator would."""
    fsspec.filesystem("s3").mkdir(BUCKET)


def make_bucket_at(environment: Mapping[str, str]) -> None:
    """The same at the server that these variables name, with none of this process's own."""
    files = fsspec.filesystem(
        "s3",
        key=environment["AWS_ACCESS_KEY_ID"],
        secret=environment["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=environment["AWS_ENDPOINT_URL"],
    )
    files.mkdir(BUCKET)

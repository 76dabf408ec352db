"""Servers of the local stack under this process' care: started, killed, frozen, stopped.

``headrace.stack`` says what to start. ``headrace up`` has a supervisor of its own.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from headrace.errors import ServiceFailedError
from headrace.stack import kafka, mlflow, triton
from headrace.stack.kafka import KafkaFiles, KafkaNode
from headrace.stack.mlflow import LocalMlflowServer
from headrace.stack.triton import TritonFiles, TritonServer
from service import replies

# For a hang: a server that ends instead of starting is noticed at once, and a busy machine is slow.
START_SECONDS = 240.0

_POLL_SECONDS = 0.05
_TAIL_CHARACTERS = 1500


def answers(url: str, *, timeout_seconds: float = 5.0) -> bool:
    """Whether a GET of ``url`` is answered with 200."""
    try:
        with replies.ask(url, timeout_seconds) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


class OwnProcess:
    """One server process at a time; what it stores outlives it."""

    def __init__(self, log: Path, stop_seconds: float) -> None:
        self._log = log
        self._stop_seconds = stop_seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What the server wrote."""
        return self._log

    def kill9(self) -> None:
        """Ends the server as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Asks the server to end, and insists after a while. Does nothing on one that is down."""
        self._end(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal. By SIGSTOP the server is halted, and closes nothing, until SIGCONT."""
        if self._process is not None:
            self._process.send_signal(number)
            if number is signal.SIGSTOP:  # until its last thread has stopped it may answer
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _run(
        self,
        name: str,
        command: Sequence[str],
        answers: Callable[[], bool],
        *,
        within_seconds: float,
        extended: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
        cwd: Path | None = None,
    ) -> None:
        """Starts the server and waits until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=extended(os.environ),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + within_seconds
        while not answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill9()
                text = self._log.read_text(encoding="utf-8", errors="replace")
                raise ServiceFailedError(f"{name} did not start: {text[-_TAIL_CHARACTERS:]}")
            time.sleep(_POLL_SECONDS)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)  # a frozen one could not hear
            process.send_signal(how)
        try:
            process.wait(self._stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def takes_connections(node: KafkaNode, *, timeout_seconds: float = 1.0) -> bool:
    """Whether something accepts connections at the node's port: Kafka does once it serves."""
    try:
        socket.create_connection((node.host, node.port), timeout=timeout_seconds).close()
    except OSError:
        return False
    return True


class KafkaProcess(OwnProcess):
    """A node under this process' care: start, kill, wipe, stop.

    Its state outlives ``kill9`` and ``stop``, so that ``start`` goes on where it ended.
    """

    def __init__(self, files: KafkaFiles, node: KafkaNode, properties: str = "") -> None:
        """Takes further lines of ``server.properties``, which win over those that the node has."""
        super().__init__(node.folder / "kafka.log", 15.0)
        self._properties = properties
        self._files = files
        self.node = node

    @property
    def bootstrap(self) -> str:
        """What clients connect to, ``host:port``."""
        return self.node.bootstrap

    def start(self, *, timeout_seconds: float = START_SECONDS) -> None:
        """Starts the node and waits until it takes connections.

        Raises:
            ServiceFailedError: its port is taken, its storage can't be used, or it was not up in
                time.
        """
        if takes_connections(self.node):
            raise ServiceFailedError(f"something else listens at {self.bootstrap} already")
        kafka.lay_out(self.node)
        with self.node.properties_file.open("a", encoding="utf-8") as file:
            file.write(self._properties)
        kafka.remove_leftovers(self.node)
        kafka.format_storage(self._files, self.node, timeout_seconds=START_SECONDS)
        self._run(
            "Kafka",
            kafka.server_command(self._files, self.node),
            lambda: takes_connections(self.node),
            within_seconds=timeout_seconds,
            extended=kafka.environment,
        )


class MlflowProcess(OwnProcess):
    """A server under this process' care. Its state outlives it."""

    def __init__(self, server: LocalMlflowServer) -> None:
        super().__init__(server.folder / "mlflow.log", 10.0)
        self.server = server

    @property
    def url(self) -> str:
        """The tracking URI for clients."""
        return self.server.url

    def start(self, *, timeout_seconds: float = START_SECONDS) -> None:
        """Starts the server and waits until its registry answers; raises ``ServiceFailedError``."""
        mlflow.lay_out(self.server)
        self._run(
            "MLflow",
            mlflow.command(self.server),
            lambda: answers(mlflow.readiness_url(self.url)),
            within_seconds=timeout_seconds,
            extended=partial(mlflow.environment, self.server),
            cwd=self.server.folder,
        )


class TritonProcess(OwnProcess):
    """A server under this process' care: start, kill, stop."""

    def __init__(
        self, files: TritonFiles, server: TritonServer, log: Path, python: Path | None = None
    ) -> None:
        super().__init__(log, 10.0)
        self._files = files
        self._python = python
        self.server = server

    @property
    def grpc(self) -> str:
        """Where it takes gRPC, ``host:port``."""
        return self.server.grpc

    def start(self, *, timeout_seconds: float = START_SECONDS) -> None:
        """Starts the server and waits until it is ready; raises ``ServiceFailedError``."""
        triton.remove_leftovers(self.server)
        self._run(
            "Triton",
            triton.command(self._files, self.server),
            lambda: answers(triton.readiness_url(self.server)),
            within_seconds=timeout_seconds,
            extended=partial(triton.environment, self._files, python=self._python),
        )

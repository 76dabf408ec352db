"""A server under this process' care, for tests and benchmarks: started, killed, frozen, stopped.

``kafka.py``, ``mlflow.py`` and ``triton.py`` say what to start and when it is ready. ``headrace
up`` has its own supervisor and does not use this.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.errors import ServiceFailedError
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

"""The example model: where it lies, whether to register it, and the command that does.

The model is registered by its own script, with the standard MLflow client; nothing here knows what
is in it.
"""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from headrace.errors import DownloadError, RequestFailedError

MODEL = "sentiment-classifier"
ENDPOINT = "sentiment-classifier"
TEXT = "a warm, funny and moving film"

_ASK_SECONDS = 30.0


def script() -> Path:
    """The script that registers the example, from a wheel or a checkout.

    Raises:
        DownloadError: the installation is incomplete.
    """
    package = Path(__file__).parent.parent
    for folder in (package / "example", package.parent / "examples" / "sentiment"):
        if (folder / "register.py").is_file():
            return folder / "register.py"
    raise DownloadError(
        "The example is not installed: install headrace again, or use --no-example."
    )


def command(tracking_uri: str, *arguments: str) -> list[str]:
    """Registers the example at ``tracking_uri``."""
    return [sys.executable, "-P", str(script()), "--tracking-uri", tracking_uri, *arguments]


async def registry_is_empty(
    tracking_uri: str, note: Callable[[str], None], within_seconds: float
) -> bool:
    """Whether MLflow has no registered model at all; ``note`` is told of an answer that is late.

    Raises:
        RequestFailedError: MLflow refuses, or does not answer in time.
    """
    url = f"{tracking_uri.rstrip('/')}/api/2.0/mlflow/registered-models/search"
    began = time.monotonic()
    async with httpx.AsyncClient(timeout=_ASK_SECONDS, trust_env=False) as client:
        while True:
            try:
                answer = await client.get(url, params={"max_results": 1})
                answer.raise_for_status()
                return not answer.json().get("registered_models")
            except httpx.HTTPError as error:
                seconds = time.monotonic() - began
                if seconds > within_seconds or not isinstance(error, httpx.TimeoutException):
                    why = str(error) or type(error).__name__
                    raise RequestFailedError(
                        f"MLflow at {tracking_uri} does not answer: {why}."
                    ) from error
                note(f"MLflow does not answer after {seconds:.0f} s")


async def register(
    words: Sequence[str],
    environment: Mapping[str, str],
    note: Callable[[str], None],
    *,
    within_seconds: float,
    say_every_seconds: float = 30.0,
) -> None:
    """Registers the example by the words of ``command``; ends the script when cancelled.

    ``note`` is told now and then how long it takes.

    Raises:
        RequestFailedError: the script failed, or took longer than ``within_seconds``.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=dict(environment), start_new_session=True,
    )  # fmt: skip
    began = time.monotonic()
    speaking = asyncio.create_task(process.communicate())
    try:
        async with asyncio.timeout(within_seconds):
            while not speaking.done():
                await asyncio.wait([speaking], timeout=say_every_seconds)
                if not speaking.done():
                    note(f"its script still runs after {time.monotonic() - began:.0f} s")
        said, _ = speaking.result()
    except TimeoutError as error:
        raise RequestFailedError(
            f"Registering the example took more than {within_seconds:g} s: --start-within gives it "
            "longer, --no-example leaves it out."
        ) from error
    finally:
        if not speaking.done():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await speaking
    if process.returncode != 0:
        last = said.decode(errors="replace").strip()[-1000:]
        raise RequestFailedError(f"The example could not be registered:\n{last}")

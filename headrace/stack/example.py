"""The example model: where it lies, whether to register it, and the command that does.

The model is registered by its own script, with the standard MLflow client; nothing here knows what
is in it.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpx

from headrace.errors import DownloadError, RequestFailedError

MODEL = "sentiment-classifier"
ENDPOINT = "sentiment-classifier"
TEXT = "a warm, funny and moving film"

_TIMEOUT_SECONDS = 120.0


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


async def registry_is_empty(tracking_uri: str) -> bool:
    """Whether MLflow has no registered model at all; raises ``RequestFailedError``."""
    url = f"{tracking_uri.rstrip('/')}/api/2.0/mlflow/registered-models/search"
    try:
        async with httpx.AsyncClient(timeout=30.0, trust_env=False) as client:
            answer = await client.get(url, params={"max_results": 1})
            answer.raise_for_status()
    except httpx.HTTPError as error:
        raise RequestFailedError(f"MLflow at {tracking_uri} does not answer: {error}.") from error
    return not answer.json().get("registered_models")


async def register(tracking_uri: str, environment: Mapping[str, str]) -> None:
    """Registers the example; ends the script when cancelled; raises ``RequestFailedError``."""
    process = await asyncio.create_subprocess_exec(
        *command(tracking_uri),
        stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=dict(environment), start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            said, _ = await process.communicate()
    except (asyncio.CancelledError, TimeoutError) as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if isinstance(error, TimeoutError):
            raise RequestFailedError("Registering the example took too long.") from error
        raise
    if process.returncode != 0:
        last = said.decode(errors="replace").strip()[-1000:]
        raise RequestFailedError(f"The example could not be registered:\n{last}")

"""Conversions that need torch and transformers: has them installed, once, then runs again.

Who installs is a program that the settings name (the local stack names
``headrace.stack.provision``): it prints one JSON object a line, ``{"kind": "progress",
"message"}`` as it goes, then ``{"kind": "installed", "path"}`` or ``{"kind": "failed", "reason"}``.
Without such a program the version is blocked with a sentence. It never installs into the
environment that serves.
"""

import asyncio
import json
import logging
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from contracts.endpoint import Phase
from registry.conversions import process_group
from registry.conversions.launcher import ConversionLauncher, OnProgress
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    ConversionRequest,
    PublishedPackage,
)
from registry.errors import RegistryError

log = logging.getLogger(__name__)

_MISSING = (
    "this version is PyTorch, and its conversion needs torch and transformers: install "
    "headrace[export] where the controller runs, or give it --export-command"
)


class ExportUnavailableError(RegistryError):
    """torch and transformers can't be had; the message says what to do."""


class ExportEnvironment(Protocol):
    """Where torch and transformers come from."""

    async def ensure(self, progress: Callable[[str], None]) -> Path:
        """The folder to put on PYTHONPATH; installs it if it isn't there.

        Raises:
            ExportUnavailableError: with what to do.
        """


class CommandExportEnvironment:
    """A program that installs them."""

    def __init__(
        self, argv: tuple[str, ...], environment: Mapping[str, str], *, timeout_seconds: float
    ) -> None:
        self._argv = argv
        self._environment = environment
        self._timeout = timeout_seconds

    async def ensure(self, progress: Callable[[str], None]) -> Path:
        """Runs the program; see the Protocol."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=DEVNULL,
                stdout=PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ExportUnavailableError(f"{self._argv[0]} can't be run: {error}") from error
        try:
            return await asyncio.wait_for(_install(process.stdout, progress), self._timeout)
        except TimeoutError as error:
            raise ExportUnavailableError(
                f"the installation of torch and transformers took more than {self._timeout:g} s"
            ) from error
        finally:
            process_group.kill(process.pid)
            await process.wait()


class ExportingLauncher:
    """A launcher that has the export environment installed at the first version that needs it.

    ``environment`` is None if nothing can install torch and transformers here.
    """

    def __init__(self, launcher: ConversionLauncher, environment: ExportEnvironment | None) -> None:
        self._launcher = launcher
        self._environment = environment

    async def run(
        self,
        request: ConversionRequest,
        progress: OnProgress,
        *,
        python_path: tuple[Path, ...] = (),
    ) -> PublishedPackage | ConversionFailure:
        """Runs a conversion, a second time with torch if the first found that it needs it."""
        result = await self._launcher.run(request, progress, python_path=python_path)
        if not isinstance(result, ConversionFailure) or not result.needs_export:
            return result
        if self._environment is None:
            return ConversionFailure(reason=_MISSING, by_version=False, needs_export=True)

        def note(line: str) -> None:
            message = f"installing torch and transformers, once: {line}"
            progress(ConversionProgress(phase=Phase.CONVERTING, message=message))

        try:
            folder = await self._environment.ensure(note)
        except ExportUnavailableError as error:
            return ConversionFailure(reason=str(error), by_version=False, needs_export=True)
        return await self._launcher.run(request, progress, python_path=(folder, *python_path))


async def _install(lines: "asyncio.StreamReader | None", progress: Callable[[str], None]) -> Path:
    assert lines is not None  # noqa: S101 - it was asked for
    async for line in lines:
        try:
            message = json.loads(line)
            kind = message["kind"]
        except (ValueError, TypeError, KeyError):
            log.info("the installer printed: %s", line[:500].decode(errors="replace").rstrip())
            continue
        if kind == "installed":
            return Path(message["path"])
        if kind == "failed":
            raise ExportUnavailableError(str(message.get("reason", "no reason was given")))
        progress(str(message.get("message", "")))
    raise ExportUnavailableError("the installer of torch and transformers ended without a word")

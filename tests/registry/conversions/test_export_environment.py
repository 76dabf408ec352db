"""torch and transformers are had once, or a sentence says how."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conversion_template import request
from registry_fakes import ref

from registry.conversions.export_environment import (
    CommandExportEnvironment,
    ExportingLauncher,
    ExportUnavailableError,
)
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    ConversionRequest,
    PublishedPackage,
)

REQUEST = request()
NEEDS = ConversionFailure(reason="torch is missing", by_version=False, needs_export=True)


class Torchless:
    """Fails without a folder on its path."""

    def __init__(self) -> None:
        self.paths: list[tuple[Path, ...]] = []

    async def run(
        self,
        request: ConversionRequest,
        progress: Callable[[ConversionProgress], None],
        *,
        python_path: tuple[Path, ...] = (),
    ) -> PublishedPackage | ConversionFailure:
        del request, progress
        self.paths.append(python_path)
        return PublishedPackage(ref=ref()) if python_path else NEEDS


class Folder:
    async def ensure(self, progress: Callable[[str], None]) -> Path:
        progress("downloading")
        return Path("/torch")


async def test_a_version_that_needs_torch_is_converted_once_it_is_there() -> None:
    launcher, told = Torchless(), list[ConversionProgress]()
    result = await ExportingLauncher(launcher, Folder()).run(REQUEST, told.append)
    assert result == PublishedPackage(ref=ref())
    assert launcher.paths == [(), (Path("/torch"),)]
    assert "downloading" in told[0].message


async def test_without_an_installer_a_sentence_says_what_to_do() -> None:
    result = await ExportingLauncher(Torchless(), None).run(REQUEST, lambda _: None)
    assert isinstance(result, ConversionFailure)
    assert not result.by_version
    assert "install headrace[export]" in result.reason


def command(*lines: object, then: str = "") -> CommandExportEnvironment:
    printed = "".join(f"print({json.dumps(line)!r}, flush=True)\n" for line in lines)
    argv = (sys.executable, "-I", "-c", printed + then)
    return CommandExportEnvironment(argv, dict(os.environ), timeout_seconds=120.0)


async def test_an_installer_tells_its_progress_and_then_the_folder() -> None:
    told: list[str] = []
    installer = command(
        {"kind": "progress", "message": "torch"}, "noise", {"kind": "installed", "path": "/t"}
    )
    assert await installer.ensure(told.append) == Path("/t")
    assert told == ["torch"]


@pytest.mark.parametrize(
    ("installer", "words"),
    [
        (command({"kind": "failed", "reason": "no space left"}), "no space left"),
        (command(), "without a word"),
        (CommandExportEnvironment(("/no/such",), {}, timeout_seconds=1.0), "can't be run"),
        (
            CommandExportEnvironment(
                (sys.executable, "-I", "-c", "import signal; signal.pause()"),
                {},
                timeout_seconds=0.2,
            ),
            "more than 0.2 s",
        ),
    ],
)
async def test_an_installer_that_fails_is_told_in_its_words(
    installer: CommandExportEnvironment, words: str
) -> None:
    with pytest.raises(ExportUnavailableError, match=words):
        await asyncio.wait_for(installer.ensure(lambda _: None), 120)

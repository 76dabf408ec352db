"""Conversions as real processes: their words, their limits, their end."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conversion_template import request
from registry_fakes import ref

from contracts.endpoint import Phase
from registry.conversions import process_group
from registry.conversions.launcher import SubprocessLauncher, SubprocessOptions
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    PublishedPackage,
    result_file,
)

REQUEST = request()
PUBLISHED = PublishedPackage(ref=ref())


def launcher(
    folder: Path, code: str, *, timeout: float = 30.0, memory: int = 1 << 30
) -> SubprocessLauncher:
    """A launcher whose conversion is a Python program of one string."""
    options = SubprocessOptions(
        work_dir=folder / "work",
        environment=dict(os.environ),
        timeout_seconds=timeout,
        memory_bytes=memory,
        command=(sys.executable, "-I", "-c", code),
    )
    return SubprocessLauncher(options)


async def run(
    made: SubprocessLauncher,
) -> tuple[PublishedPackage | ConversionFailure, list[ConversionProgress]]:
    told: list[ConversionProgress] = []
    return await made.run(REQUEST, told.append), told


def say(message: ConversionProgress | PublishedPackage | ConversionFailure) -> str:
    """Code that prints a line."""
    return f"print({message.model_dump_json()!r}, flush=True)\n"


def end(result: PublishedPackage | ConversionFailure = PUBLISHED) -> str:
    """Code that writes the file of the result."""
    return f"import pathlib, sys; pathlib.Path(sys.argv[2]).write_bytes({result_file(result)!r})\n"


async def test_progress_is_handed_on_and_the_result_returned(tmp_path: Path) -> None:
    step = ConversionProgress(phase=Phase.VERIFYING, message="comparing")
    result, told = await run(launcher(tmp_path, say(step) + end()))
    assert result == PUBLISHED
    assert told == [step]


async def test_what_is_no_message_is_passed_over(tmp_path: Path) -> None:
    code = "print('a library says hello'); print('x' * 3_000_000)\n" + end()
    result, _ = await run(launcher(tmp_path, code))
    assert result == PUBLISHED


async def test_the_request_and_an_empty_scratch_folder_reach_the_process(tmp_path: Path) -> None:
    code = (
        "import json, pathlib, sys\n"
        "request = json.loads(pathlib.Path(sys.argv[1]).read_text())\n"
        "assert request['model'] == 'm' and not list(pathlib.Path(request['work_dir']).iterdir())\n"
    )
    result, _ = await run(launcher(tmp_path, code + end()))
    assert result == PUBLISHED
    assert list((tmp_path / "work").iterdir()) == []


async def test_a_conversion_gives_way_to_what_serves_on_the_same_machine(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        f"while os.nice(0) < {min(19, os.nice(0) + 1)}: time.sleep(0.01)\n"  # 19 is the most
    )
    result, _ = await run(launcher(tmp_path, code + end(), timeout=60))
    assert result == PUBLISHED


async def test_a_forged_result_among_what_is_printed_is_not_believed(tmp_path: Path) -> None:
    """A version's code prints that another package is published, and the conversion fails."""
    honest = ConversionFailure(reason="a strange graph", by_version=True)
    result, told = await run(launcher(tmp_path, say(PUBLISHED) + end(honest)))
    assert (result, told) == (honest, [])
    result, _ = await run(launcher(tmp_path, say(PUBLISHED) + "raise SystemExit(3)"))
    assert isinstance(result, ConversionFailure)
    assert "status 3" in result.reason


@pytest.mark.parametrize(
    "write",
    [
        "pathlib.Path(sys.argv[2]).write_text('{}')",
        "pathlib.Path(sys.argv[2]).write_bytes(b'\\xff' * 100_000)",
        "pathlib.Path(sys.argv[2]).mkdir()",
        "import os; os.mkfifo(sys.argv[2])",
        "pathlib.Path('x').write_bytes(DATA); pathlib.Path(sys.argv[2]).symlink_to('x')",
    ],
)
async def test_a_file_that_is_no_result_counts_as_none(tmp_path: Path, write: str) -> None:
    code = f"import pathlib, sys; DATA = {result_file(PUBLISHED)!r}; {write}"
    result, _ = await run(launcher(tmp_path, code))
    assert isinstance(result, ConversionFailure)
    assert "status 0" in result.reason


async def test_a_crash_after_the_result_changes_nothing(tmp_path: Path) -> None:
    code = end() + "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    result, _ = await run(launcher(tmp_path, code))
    assert result == PUBLISHED


@pytest.mark.parametrize(
    ("code", "limits", "words"),
    [
        ("raise SystemExit(3)", {}, "status 3"),
        ("raise ValueError('a strange graph')", {}, "a strange graph"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {}, "SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", {}, "out of memory"),
        ("import signal; signal.pause()", {"timeout": 0.5}, "more than 0.5 s"),
    ],
)
async def test_an_end_without_a_result_blames_nobody_and_says_how_it_ended(
    tmp_path: Path, code: str, limits: dict[str, Any], words: str
) -> None:
    result, _ = await run(launcher(tmp_path, code, **limits))
    assert isinstance(result, ConversionFailure)
    assert result.crashed
    assert not result.by_version
    assert words in result.reason


async def test_more_memory_than_its_limit_is_the_versions_fault(tmp_path: Path) -> None:
    code = "held = bytearray(300 << 20)\nimport signal; signal.pause()"
    result, _ = await run(launcher(tmp_path, code, memory=100 << 20))
    assert isinstance(result, ConversionFailure)
    assert result.by_version
    assert "100 MB" in result.reason


async def test_a_conversion_that_is_not_wanted_ends_with_all_its_children(tmp_path: Path) -> None:
    begun = asyncio.Event()
    pids: list[int] = []

    def note(progress: ConversionProgress) -> None:
        pids.append(int(progress.message))
        if len(pids) == 2:
            begun.set()

    word = 'print(\'{"kind": "progress", "phase": "Converting", "message": "%d"}\' %'
    code = (
        "import os, signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-I', '-c', 'import signal; signal.pause()'])\n"
        f"{word} os.getpid(), flush=True)\n{word} child.pid, flush=True)\nsignal.pause()\n"
    )
    task = asyncio.create_task(launcher(tmp_path, code).run(REQUEST, note))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)  # a child that lived on would hold its output open
    assert process_group.resident_bytes(pids[0]) == 0
    assert list((tmp_path / "work").iterdir()) == []


async def test_what_a_killed_controller_left_running_is_ended_at_the_next_start(
    tmp_path: Path,
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", "import signal; signal.pause()", start_new_session=True
    )
    scratch = tmp_path / "work" / "conversion-x"
    scratch.mkdir(parents=True)
    (scratch / "pid").write_text(process_group.record(process.pid))
    launcher(tmp_path, "").clean()
    assert await process.wait() == -9
    assert not scratch.exists()


async def test_a_process_that_only_has_the_same_number_is_left_alone(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", "import sys; sys.stdin.read()", stdin=-1, start_new_session=True
    )
    scratch = tmp_path / "work" / "conversion-x"
    scratch.mkdir(parents=True)
    (scratch / "pid").write_text(f"{process.pid} 12345")
    launcher(tmp_path, "").clean()
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() == 0


async def test_extra_packages_come_first_on_the_path(tmp_path: Path) -> None:
    code = f"import os\nassert os.environ['PYTHONPATH'].startswith({str(tmp_path)!r})\n"
    made = launcher(tmp_path, code + end())
    assert await made.run(REQUEST, lambda _: None, python_path=(tmp_path,)) == PUBLISHED

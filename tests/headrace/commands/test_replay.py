import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from own_ports import own_ports
from scripted_server import Headers, Raw, answer, positive, serving
from typer.testing import CliRunner, Result

from headrace.cli import app
from headrace.commands.replay import in_a_line
from headrace.replay.tally import Tally

pytestmark = pytest.mark.slow


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "a", "label": "positive"}\n{"text": "b", "label": "negative"}\n')
    return file


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["replay", *words], env={"COLUMNS": "200"})


async def replayed(*words: str, stop: asyncio.Event | None = None) -> tuple[int, bytes, bytes]:
    """The program itself, ended by Ctrl-C once ``stop`` is set."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "headrace", "replay", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "200"},
    )
    if stop is not None:
        await stop.wait()
        process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err


async def test_ctrl_c_ends_with_the_summary(texts: Path) -> None:
    enough = asyncio.Event()
    asked = 0

    async def counts(path: str, body: Any, headers: Headers) -> Raw:
        nonlocal asked
        asked += 1
        if asked == 5:
            enough.set()
        return await positive(path, body, headers)

    async with serving(counts) as server:
        words = (str(texts), "--endpoint=tone", "--rate=100", f"--url={server.url}", "--json")
        code, out, _ = await replayed(*words, stop=enough)
    summary = json.loads(out)
    assert code == 0
    assert summary["requests"] >= 5
    assert summary["statuses"] == {"200": summary["requests"]}
    assert summary["versions"] == {"3": summary["requests"]}
    assert summary["unfinished"] == 0


async def test_the_summary_tells_statuses_shares_latencies_and_feedback(texts: Path) -> None:
    async with serving(positive) as server:
        words = (str(texts), "--endpoint=tone", "--rate=500", f"--url={server.url}")
        code, out, _ = await replayed(*words, "--requests=4", "--feedback")
    shown = out.decode()
    assert code == 0
    assert "of 500 asked for" in shown
    assert "version 3" in shown
    assert "4 (100.00 %)" in shown
    assert "p99" in shown
    assert "50.0 % of 4 with a label" in shown
    assert "202: 4" in shown


async def test_a_replay_that_got_no_answer_at_all_fails_with_the_gateways_sentence(
    texts: Path,
) -> None:
    async def refuses(path: str, body: Any, headers: Headers) -> Raw:
        return answer(404, {"error": {"message": "there is no endpoint tone"}})

    async with serving(refuses) as server:
        words = (str(texts), "--endpoint=tone", "--rate=500", f"--url={server.url}")
        code, _, err = await replayed(*words, "--requests=2")
    assert code == 10
    assert b"404: there is no endpoint tone" in err


def test_a_gateway_that_is_not_there_is_a_sentence_at_once(texts: Path) -> None:
    (port,) = own_ports(1)
    url = f"--url=http://127.0.0.1:{port}"
    result = run(str(texts), "--endpoint=tone", "--rate=5", url)
    assert result.exit_code == 9
    assert str(port) in result.stderr


def test_feedback_without_any_label_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("a\n")
    result = run(str(file), "--endpoint=tone", "--rate=5", "--feedback")
    assert result.exit_code == 10
    assert "--label-field" in result.stderr


@pytest.mark.parametrize("time", ["soon", "0s", "-1", "nan", "9999999d"])
def test_a_duration_that_is_none_is_a_usage_error(texts: Path, time: str) -> None:
    assert run(str(texts), "--endpoint=tone", "--rate=5", f"--duration={time}").exit_code == 2


def test_how_it_goes_is_one_line() -> None:
    tally = Tally(sent=50)
    tally.statuses.update({"200": 38, "503": 2})
    tally.versions.update({"3": 36, "4": 2})
    tally.latencies.add(0.02)
    assert in_a_line(tally, 5.0) == (
        "50 sent, 10.0/s, 2 failed, p99 20 ms, version 3 94.7 %, version 4 5.3 %"
    )
    assert in_a_line(Tally(), 0.0) == "0 sent, 0.0/s, 0 failed"

"""Code that hangs, crashes, eats memory or lies: it harms nobody but those who ask it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from gateway_world import loop_turns
from own_code import archive_of

from contracts import telemetry_off
from contracts.backoff import Backoff
from preprocess.edits import Form
from preprocess.model_code.messages import Answers, Done, Task
from preprocess.model_code.process import CodeLimits, CodeProcess, Failure, ModelCodeError

# Generous where nothing is meant to fail: these tests share their machine.
LIMITS = CodeLimits(
    call_seconds=60.0,
    start_seconds=240.0,
    steady_seconds=1e6,
    pauses=Backoff(300.0, 300.0),
)
QUICK = replace(LIMITS, pauses=Backoff(0.0, 30.0))
UPPER = """
    class Preprocessor:
        def preprocess(self, texts, state):
            state.observe("length", sum(map(len, texts)))
            state.data["count"] = len(texts)
            return [text.upper() for text in texts]

        def postprocess(self, answers, state):
            state.observe("count", state.data["count"])
            return [{"no": answer["yes"], "yes": answer["no"]} for answer in answers]
"""
BY_WORD = """
    import os, sys, time
    kept = []

    class Preprocessor:
        def preprocess(self, texts, state):
            word = texts[0]
            if word == "hang":
                while True:
                    pass
            if word == "sleep":
                time.sleep(1000)
            if word == "crash":
                os._exit(3)
            if word == "leave":
                print("good bye", flush=True)
                sys.exit(4)
            if word == "eat":
                while True:
                    kept.append(bytearray(10_000_000))
            if word == "deep":
                state.data["a"] = nested = []
                for _ in range(100_000):
                    nested.append([])
                    nested = nested[0]
            if word == "much":
                state.data["a"] = "x" * 1_000_000
            if word == "nest":
                body = bytes.fromhex("81a86f6273657276656481a161") + bytes([0x91]) * 50_000
                for number in range(3, 20):
                    try:
                        os.write(number, len(body).to_bytes(4, "little") + body)
                    except OSError:
                        pass
            if word == "raise":
                raise ValueError("no such word")
            if word == "short":
                return []
            if word == "numbers":
                return [7]
            if word == "lie":
                for number in range(3, 20):
                    try:
                        os.write(number, b"x" * 100)
                    except OSError:
                        pass
            return None
"""


@asynccontextmanager
async def running(
    source: str, folder: Path, limits: CodeLimits = LIMITS
) -> AsyncIterator[tuple[CodeProcess, list[Failure]]]:
    """The code in its process, and what was told of it."""
    told: list[Failure] = []
    process = CodeProcess(archive_of(source), folder, limits, told.append, name="m")
    process.start()
    try:
        async with asyncio.timeout(300):
            yield process, told
    finally:
        await process.close()
    assert os.listdir(folder) == []  # noqa: PTH208


async def ask(process: CodeProcess, *texts: str, seconds: float = 300.0) -> Done:
    task = Task(0, "e", "r", list(texts), left=10)
    return await process.call(task, monotonic() + seconds)


async def failure_of(process: CodeProcess, *texts: str) -> ModelCodeError:
    with pytest.raises(ModelCodeError) as caught:
        await ask(process, *texts)
    return caught.value


async def test_texts_answers_and_what_was_observed_come_back(tmp_path: Path) -> None:
    async with running(UPPER, tmp_path) as (process, told):
        done = await ask(process, "a", "bc")
        assert (done.texts, done.observed) == (["A", "BC"], {"length": [3.0]})
        form = Form(2, ["no", "yes"], probabilities=True)
        values = np.array([[0.25, 0.75], [1, 0]], "<f4")
        task = Task(
            0, "e", "r", ["a", "bc"], labels=form.labels, data=done.data, left=10,
            answers=Answers(form, values.tobytes(), 2),
        )  # fmt: skip
        changed = await process.call(task, monotonic() + 120)
        assert changed.values == values[:, ::-1].tobytes()
        assert changed.observed == {"count": [2.0]}
        assert process.running
        assert not process.lacks("postprocess")
    assert (told, process.starts) == ([], 1)


async def test_many_calls_are_each_answered_with_their_own(tmp_path: Path) -> None:
    async with running(UPPER, tmp_path) as (process, _):
        found = await asyncio.gather(*(ask(process, f"t{number}") for number in range(50)))
    assert [done.texts for done in found] == [[f"T{number}"] for number in range(50)]


@pytest.mark.parametrize(
    ("word", "failure", "sentence"),
    [
        ("hang", Failure.TIMEOUT, "took more than 1 s"),
        ("sleep", Failure.TIMEOUT, "took more than 1 s"),
        ("crash", Failure.CRASHED, "ended with status 3"),
        ("leave", Failure.CRASHED, "ended with status 4; its last line was: good bye"),
        ("eat", Failure.MEMORY, "MemoryError"),
        ("lie", Failure.CRASHED, "wrote what is no answer"),
        ("nest", Failure.CRASHED, "wrote what is no answer"),
    ],
)
async def test_what_ends_a_worker_fails_one_call_and_the_next_one_is_answered(
    tmp_path: Path, word: str, failure: Failure, sentence: str
) -> None:
    limits = QUICK
    if failure is Failure.TIMEOUT:
        limits = replace(QUICK, call_seconds=1.0)
    async with running(BY_WORD, tmp_path, limits) as (process, told):
        while await tried(process) is None:
            assert failure is Failure.TIMEOUT
        error = await failure_of(process, word)
        assert (error.failure, sentence in str(error)) == (failure, True), error
        while (done := await tried(process)) is None:
            assert told[0] is failure
        assert done.texts == ["well"]
        assert process.starts >= 2


async def tried(process: CodeProcess) -> Done | None:
    """An answer; None where the machine was too slow for the time limit of these tests."""
    try:
        return await ask(process, "well")
    except ModelCodeError:
        return None


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("raise", r"ValueError: no such word \(headrace_preprocessor.py, line \d+\)"),
        ("deep", "RecursionError"),
        ("much", "state.data has 10000.. bytes"),
        ("short", "must return as many texts as it got: 1"),
        ("numbers", "must return strings"),
    ],
)
async def test_what_the_code_raises_is_said_and_the_worker_goes_on(
    tmp_path: Path, word: str, sentence: str
) -> None:
    async with running(BY_WORD, tmp_path) as (process, told):
        error = await failure_of(process, word)
        assert error.failure is Failure.RAISED
        with pytest.raises(ModelCodeError, match=sentence):
            raise error
        assert (await ask(process, "well")).texts == ["well"]
        assert (told, process.starts) == ([], 1)


async def test_a_worker_that_is_killed_is_started_anew(tmp_path: Path) -> None:
    async with running(UPPER, tmp_path, QUICK) as (process, told):
        await ask(process, "a")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        assert (await failure_of_or_answer(process)) in ("A", "crashed")
        assert (await ask(process, "a")).texts == ["A"]
        assert (told, process.starts) == ([Failure.CRASHED], 2)


async def failure_of_or_answer(process: CodeProcess) -> str:
    """What a call gets that may meet the end of a worker."""
    try:
        return (await ask(process, "a")).texts[0]
    except ModelCodeError as error:
        return error.failure.value


async def test_code_that_fails_again_and_again_is_paused_and_fails_at_once(tmp_path: Path) -> None:
    async with running(BY_WORD, tmp_path) as (process, told):
        await ask(process, "well")
        waiting = [asyncio.create_task(failure_of(process, word)) for word in ("crash", "well")]
        assert [(await each).failure for each in waiting] == [Failure.CRASHED] * 2
        error = await failure_of(process, "well")
        assert error.failure is Failure.PAUSED
        assert "ended with status 3" in str(error)
        assert "started again in" in str(error)
        assert process.problem in str(error)
        assert not process.running
    assert told == [Failure.CRASHED]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:", "SyntaxError"),
        ("class Preprocessor: pass", "has neither preprocess nor postprocess"),
        ("Other = 1", "has no attribute 'Preprocessor'"),
        ("import os; os._exit(7)", "ended with status 7"),
        ("class Preprocessor:\n    def __init__(self, what): pass", "TypeError"),
    ],
)
async def test_code_that_can_t_be_loaded_is_said(
    tmp_path: Path, source: str, sentence: str
) -> None:
    async with running(source, tmp_path) as (process, told):
        error = await failure_of(process, "a")
        assert sentence in str(error)
        assert told == [Failure.NOT_STARTED]


async def test_a_full_queue_refuses_and_a_deadline_ends_the_wait(tmp_path: Path) -> None:
    async with running(BY_WORD, tmp_path, replace(LIMITS, waiting=2)) as (process, _):
        await ask(process, "well")
        busy = [asyncio.create_task(ask(process, "sleep"))]
        await loop_turns()
        while process.waiting:
            await loop_turns()
        with pytest.raises(TimeoutError):
            await ask(process, "well", seconds=0.01)
        busy += [asyncio.create_task(ask(process, "well")) for _ in range(2)]
        await loop_turns()
        assert (await failure_of(process, "well")).failure is Failure.QUEUE_FULL
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
        assert process.waiting == 0


CLOSED = """
    import ctypes, os, socket, subprocess, threading

    def outcome(act):
        try:
            act()
        except OSError as error:
            return type(error).__name__
        return "done"

    def thread():
        started = threading.Thread(target=lambda: None)
        started.start()
        started.join()

    class Preprocessor:
        def preprocess(self, texts, state):
            secret, parent, own = texts
            return [
                ",".join([
                    outcome(lambda: open(secret).read()),
                    outcome(lambda: open(f"/proc/{parent}/environ").read()),
                    outcome(lambda: open("/etc/hostname").read()),
                    outcome(lambda: open(own, "w").write("x")),
                ]),
                ",".join([
                    outcome(lambda: os.kill(int(parent), 0)),
                    outcome(lambda: socket.socket()),
                    outcome(lambda: os.fork()),
                    outcome(lambda: subprocess.run(["/bin/true"])),
                    outcome(lambda: os.chmod(secret, 0o777)),
                ]),
                ",".join([outcome(thread), " ".join(sorted(os.environ))]),
            ]
"""


async def test_code_reaches_no_file_no_network_and_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    secret, code = tmp_path / "keys.json", tmp_path / "code"
    secret.write_text("secret", encoding="utf-8")
    async with running(CLOSED, code) as (process, _):
        done = await ask(process, str(secret), str(os.getpid()), str(code / "made"))
    files, reached, own = done.texts
    assert files == ",".join(["PermissionError"] * 4)
    assert reached == ",".join(["PermissionError"] * 5)
    thread, names = own.split(",")
    assert thread == "done"
    threads = {"MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert set(names.split()) == {"LANG", "PATH", *threads, *telemetry_off.VARIABLES}


async def test_its_own_files_and_libraries_can_be_read(tmp_path: Path) -> None:
    source = """
        import json, zoneinfo
        from pathlib import Path
        import numpy, words

        class Preprocessor:
            def preprocess(self, texts, state):
                found = json.loads((Path(__file__).parent / "table.json").read_text())
                return [words.turned(found[text]) for text in texts]
    """
    archive = archive_of(
        source, **{"table.json": '{"a": "bc"}', "words.py": "def turned(w): return w[::-1]"}
    )
    process = CodeProcess(archive, tmp_path, LIMITS, lambda _: None, name="m")
    process.start()
    try:
        assert (await ask(process, "a")).texts == ["cb"]
    finally:
        await process.close()

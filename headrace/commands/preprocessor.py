"""``headrace preprocessor test``: runs users' own code on a file of requests, as a gateway would.

In a worker process with a gateway's limits, for any code: what hangs, crashes or eats
memory there is told here. No stack is needed, and no model: answers to change come from the file.
"""

import asyncio
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import msgspec
import numpy as np
import typer

from contracts.backoff import Backoff
from headrace.commands.output import console, print_json, print_line, strip_controls, table_of
from headrace.errors import RefusedError, RequestFailedError
from headrace.invocation import is_structured
from headrace.program import App, do_nothing
from headrace.replay import texts as replayed
from preprocess.edits import Form, shown
from preprocess.hooks import MOST_VALUES, Observed
from preprocess.model_code.archive import CLASS, FOLDER, MODULE, ArchiveError, pack
from preprocess.model_code.messages import Answers, Task
from preprocess.model_code.process import CodeLimits, CodeProcess, Failure, ModelCodeError

_SHOWN = 20  # requests, unless JSON is asked for
_SLOWEST = 0.95
_TRIES = 3  # of a call that took too long: a busy machine halts any process for a while

app = App(help="Preprocessing and postprocessing of your own.", callback=do_nothing)


class PreprocessorRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request of a ``.jsonl`` file. ``answers`` are the model's, for ``postprocess``.

    Each is ``{label: number}`` or a list of numbers.
    """

    texts: list[str]
    pairs: list[str] | None = None
    answers: list[dict[str, float] | list[float]] | None = None


@dataclass(slots=True)
class PreprocessorResult:
    """What came of one request. ``seconds`` are of both calls, if there were two."""

    texts: list[str]
    made: list[str] | None = None
    pairs: list[str] | None = None
    answers: list[Any] | None = None
    observed: Observed = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""


@app.declare("test")
def run_file(
    code: Annotated[
        str,
        typer.Argument(help="Folder with headrace_preprocessor.py, or module:Class."),
    ],
    requests: Annotated[
        Path,
        typer.Argument(help="File of texts, as for replay, or of requests (.jsonl)."),
    ],
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Longest time of one call, of three tries.")
    ] = 0.5,
    megabytes: Annotated[int, typer.Option(min=256, help="Address space of the process.")] = 1024,
    closed_off: Annotated[
        bool,
        typer.Option(help="Refuse to run if the kernel can't close off files and network."),
    ] = True,
) -> None:
    """Runs it on a file of requests, and shows results, observed values and times."""
    limits = CodeLimits(
        call_seconds=seconds,
        memory_bytes=megabytes * 1_000_000,
        pauses=Backoff(0.25, 1.0),
        closed_off=closed_off,
    )
    try_out(code, requests, limits, as_json=is_structured())


def try_out(code: str, requests: Path, limits: CodeLimits, *, as_json: bool) -> None:
    """Runs the code on each request of the file, in their order, and shows what came of them.

    Args:
        code: a folder with ``headrace_preprocessor.py``, or one that holds it in ``code``, or what
            an entry point names, ``module:Class``.
        requests: texts, one a request, in any format of ``headrace replay``; or objects with
            ``texts``, ``pairs`` and ``answers``, one a line of a ``.jsonl`` file.
        limits: of the worker.
        as_json: for scripts.

    Raises:
        RequestFailedError: code or requests can't be read.
        RefusedError: a request failed.
    """
    archive, asked = _archive(code), list(_requests(requests))
    results = asyncio.run(_run(archive, asked, limits))
    failed = [result for result in results if result.error]
    if as_json:
        print_json({"requests": [asdict(each) for each in results], **_summary(results)})
    else:
        _show(results)
    if failed:
        count = f"{len(failed)} of {len(results)} requests"
        raise RefusedError(f"{count} failed; the first one: {failed[0].error}")


def _archive(code: str) -> bytes:
    folder = Path(code)
    module, _, name = code.partition(":")
    try:
        if folder.is_dir():
            own = folder if (folder / f"{MODULE}.py").is_file() else folder / FOLDER
            if not (own / f"{MODULE}.py").is_file():
                raise RequestFailedError(f"{folder} holds no {MODULE}.py, nor does {own}.")
            return pack(own)
        if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            raise RequestFailedError(f"{code} is neither a folder nor module:Class.")
        with tempfile.TemporaryDirectory() as made:
            source = f"from {module} import {name} as {CLASS}\n"
            (Path(made) / f"{MODULE}.py").write_text(source, encoding="utf-8")
            return pack(Path(made))
    except ArchiveError as error:
        raise RequestFailedError(f"{code} can't be packed: {error}.") from error


def _requests(path: Path) -> Iterator[PreprocessorRequest]:
    if path.suffix.lower() != ".jsonl":
        for each in replayed.read(path):
            yield PreprocessorRequest([each.text])
        return
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestFailedError(f"{path} can't be read: {error}.") from error
    decoder = msgspec.json.Decoder(PreprocessorRequest | str)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            request = decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise RequestFailedError(f"{path}, line {number}: {error}.") from error
        yield PreprocessorRequest([request]) if isinstance(request, str) else request


async def _run(
    archive: bytes, asked: Sequence[PreprocessorRequest], limits: CodeLimits
) -> list[PreprocessorResult]:
    with tempfile.TemporaryDirectory() as folder:
        process = CodeProcess(archive, Path(folder), limits, lambda _: None, name="test")
        process.start()
        try:
            results, tries = [], _TRIES
            for request in asked:
                result, failure = await _answer(process, request, limits, tries)
                results.append(result)
                tries = 1 if failure is Failure.TIMEOUT else tries  # it was the code
            return results
        finally:
            await process.close()


async def _answer(
    process: CodeProcess, request: PreprocessorRequest, limits: CodeLimits, tries: int
) -> tuple[PreprocessorResult, Failure | None]:
    result, failure = await _try_once(process, request, limits)
    for _ in range(1, tries):
        if failure is not Failure.TIMEOUT:
            return result, failure
        result, failure = await _try_once(process, request, limits)
    if tries > 1 and failure is Failure.TIMEOUT:
        result.error += f" So it was in each of {tries} tries."
    return result, failure


async def _try_once(
    process: CodeProcess, request: PreprocessorRequest, limits: CodeLimits
) -> tuple[PreprocessorResult, Failure | None]:
    result, failure = PreprocessorResult(request.texts), None
    began = monotonic()
    longest = limits.start_seconds + limits.call_seconds + limits.pauses.most
    task = Task(
        number=0,
        endpoint="test",
        request_id="test",
        texts=request.texts,
        pairs=request.pairs,
        left=MOST_VALUES,
    )
    try:
        if not process.running:
            # One that a request before has ended is started again, and is no failure of this one.
            wait = process.restarted if process.starts else process.started
            await wait(monotonic() + longest)
            began = monotonic()
        done = await process.call(task, began + longest)
        result.made, result.pairs, result.observed = done.texts, done.pairs, done.observed
        if request.answers is not None:
            form, values = _values(request.answers)
            answers = Answers(form, values.tobytes(), values.shape[1])
            after = msgspec.structs.replace(
                task, data=done.data, labels=form.labels, answers=answers
            )
            changed = await process.call(after, began + longest)
            if changed.values is not None:
                values = np.frombuffer(changed.values, "<f4").reshape(values.shape)
            result.answers = shown(form, values)
            for name, seen in changed.observed.items():
                result.observed.setdefault(name, []).extend(seen)
    except (ModelCodeError, TimeoutError) as error:
        result.error = str(error) or "the worker was not back in time."
        if isinstance(error, ModelCodeError):
            failure = error.failure
            if failure is Failure.NOT_STARTED:
                raise RequestFailedError(str(error)) from error
    result.seconds = monotonic() - began
    return result, failure


def _values(answers: Sequence[dict[str, float] | list[float]]) -> tuple[Form, Any]:
    labels = list(answers[0]) if answers and isinstance(answers[0], dict) else []
    try:
        rows = [
            [each[label] for label in labels] if isinstance(each, dict) else each
            for each in answers
        ]
        values = np.array(rows, "<f4").reshape(len(rows), -1)
    except (KeyError, ValueError) as error:
        raise RequestFailedError(
            "The answers of a request have the same labels each, or are as long each."
        ) from error
    return Form(len(rows), labels, probabilities=False), values


def _show(results: Sequence[PreprocessorResult]) -> None:
    for result in results[:_SHOWN]:
        for at, text in enumerate(result.texts):
            print_line(strip_controls(text))
            if result.made is not None and result.made[at] != text:
                print_line(f"  becomes   {strip_controls(result.made[at])}")
            if result.answers is not None:
                print_line(f"  answered  {json.dumps(result.answers[at], ensure_ascii=False)}")
        if result.observed:
            print_line(f"  observed  {json.dumps(result.observed, ensure_ascii=False)}", "dim")
        if result.error:
            print_line(f"  {result.error}", "red")
        print_line(f"  took      {1000 * result.seconds:.2f} ms", "dim")
    if len(results) > _SHOWN:
        print_line(f"... and {len(results) - _SHOWN} requests more (--json shows all)")
    summary = _summary(results)
    table = table_of("statistic", "values", "what was observed")
    for name, told in summary["observed"].items():
        table.add_row(strip_controls(name), str(told.pop("values")), json.dumps(told))
    if summary["observed"]:
        console.print(table, markup=False)
    times = summary["milliseconds"]
    print_line(
        f"{len(results)} requests, {summary['failed']} failed; one took {times['median']:.2f} ms "
        f"(median), {times['p95']:.2f} ms (95 of 100), {times['longest']:.2f} ms at most"
    )


def _summary(results: Sequence[PreprocessorResult]) -> dict[str, Any]:
    times = sorted(1000 * result.seconds for result in results) or [0.0]
    observed: dict[str, list[float | str]] = {}
    for result in results:
        for name, values in result.observed.items():
            observed.setdefault(name, []).extend(values)
    return {
        "failed": sum(1 for result in results if result.error),
        "milliseconds": {
            "median": statistics.median(times),
            "p95": times[min(len(times) - 1, int(_SLOWEST * len(times)))],
            "longest": times[-1],
        },
        "observed": {name: _summarise(values) for name, values in sorted(observed.items())},
    }


def _summarise(values: Sequence[float | str]) -> dict[str, Any]:
    words = Counter(value for value in values if isinstance(value, str))
    numbers = sorted(value for value in values if not isinstance(value, str))
    told: dict[str, Any] = {"values": len(values)}
    if numbers:
        told |= {
            "least": numbers[0],
            "median": statistics.median(numbers),
            "largest": numbers[-1],
        }
    if words:
        told["most frequent"] = dict(words.most_common(5))
    return told

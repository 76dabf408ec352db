"""``headrace backfill``: the vectors of a file's texts, made with the gateway's idle capacity."""

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from headrace.backfill import files
from headrace.backfill.files import TextColumns
from headrace.backfill.run import Backfill, BackfillPlan, Parts
from headrace.commands.output import print_json, print_line
from headrace.errors import RefusedError, RequestFailedError
from headrace.home import gateway_url
from headrace.invocation import is_structured
from headrace.options import HOME, ApiKey, Endpoint, Gateway, Home, find_place, make_absolute
from headrace.program import App

_TOLD_EVERY_SECONDS = 30.0  # where progress goes to a file or a pipe

app = App()


@app.declare()
def backfill(
    name: Endpoint,
    source: Annotated[
        str, typer.Option("--input", help="Ids and texts: .jsonl, .parquet, or - for JSON lines.")
    ],
    target: Annotated[
        str, typer.Option("--output", help="Ids and vectors: .jsonl or .parquet; a file or a URL.")
    ],
    space: Annotated[
        str | None,
        typer.Option(help="Vector space, or next; by default the one that answers now."),
    ] = None,
    id_field: Annotated[str, typer.Option(help="Column of ids.")] = "id",
    text_field: Annotated[str, typer.Option(help="Column of texts.")] = "text",
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Requests at once.")] = 8,
    texts: Annotated[int, typer.Option(min=1, max=2048, help="Texts of a request.")] = 32,
    home: Home = HOME,
    url: Gateway = None,
    key: ApiKey = None,
) -> None:
    """Makes the vectors of a file's texts with idle capacity; again the same line, it goes on."""
    form = files.format_of(target)
    output = make_absolute(Path(target.rpartition("/")[2] if "://" in target else target))
    parts = Parts(output.with_name(f"{output.name}.parts"), form)
    plan = BackfillPlan(gateway_url(find_place(home), url), name, space, key, concurrency, texts)
    if output.exists() and parts.read() is None:
        raise RefusedError(f"{output} is there already.")
    with parts.hold():
        columns = TextColumns(id_field, text_field)
        path = _fetch(source, parts.folder)
        found = files.survey(path, columns)
        began = time.monotonic()
        with _progress(found.rows) as advance:
            made = Backfill(plan, path, columns, found, parts)
            made.advance = advance
            least = asyncio.run(made.run(output))
        if "://" in target:
            _deliver(output, target)
        parts.remove()
    seconds = time.monotonic() - began
    summary = {
        "rows": found.rows,
        "seconds": round(seconds, 3),
        "space": made.space,
        "output": target,
        "retries": made.retries,
        "leastCosine": least,
    }
    if is_structured():
        print_json(summary)
        return
    print_line(
        f"{found.rows:,} vectors of space {made.space} in {target}, {seconds:.0f} s. A sample "
        f"agrees with the gateway (similarity {least:.6f} at least)."
    )


def _fetch(source: str, folder: Path) -> Path:
    """The input as a file that can be read again; what is none becomes one in the folder, once."""
    if source != "-" and "://" not in source:
        return make_absolute(Path(source))
    path = folder / f"input{'.jsonl' if source == '-' else files.format_of(source)}"
    if not path.exists():
        aside = path.with_name(f"writing-{path.name}")
        with aside.open("wb") as copy:
            if source == "-":
                shutil.copyfileobj(sys.stdin.buffer, copy)
            else:
                with _open(source, "rb") as found:
                    shutil.copyfileobj(found, copy)
        aside.replace(path)
    return path


def _deliver(output: Path, url: str) -> None:
    with output.open("rb") as whole, _open(url, "wb") as copy:
        shutil.copyfileobj(whole, copy)
    output.unlink()


@contextmanager
def _open(url: str, mode: str) -> Iterator[Any]:
    import fsspec  # noqa: PLC0415 - an extra

    try:
        with fsspec.open(url, mode) as file:
            yield file
    except (OSError, ValueError) as error:
        raise RequestFailedError(f"{url}: {error}.") from error


@contextmanager
def _progress(rows: int) -> Iterator[Callable[[int, bool], None]]:
    """Shows what is done, the rate and the time left: a bar on a terminal, else lines."""
    console = Console(stderr=True)
    bar = Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,} of {task.total:,}, {task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    began = told = time.monotonic()
    with bar:
        task = bar.add_task("", total=rows, rate=0.0)
        done = made = 0

        def advance(more: int, were_done: bool) -> None:  # noqa: FBT001 - a callback
            nonlocal done, made, told
            done += more
            made += 0 if were_done else more
            now = time.monotonic()
            rate = made / max(now - began, 1e-3)
            bar.update(task, advance=more, rate=rate)
            if not console.is_terminal and now - told > _TOLD_EVERY_SECONDS:
                told = now
                left = (rows - done) / max(rate, 1e-3)
                console.print(f"{done:,} of {rows:,}, {rate:,.0f}/s, {left:,.0f} s left")

        yield advance

"""``headrace backfill``: the vectors of a file's texts, made with the gateway's idle capacity."""

import asyncio
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from contracts.backfills import BackfillProgress, list_backfills, note_backfill
from contracts.endpoint import ModelEndpoint
from contracts.rollout import CutoverAt
from headrace import home as homes
from headrace.backfill import files
from headrace.backfill.files import TextColumns
from headrace.backfill.run import Backfill, BackfillPlan, Parts
from headrace.backfill.vectors import KindName, gives_several
from headrace.commands.output import print_json, print_line
from headrace.commands.rollout import carry_out, cutover_of, require_accepted
from headrace.endpoints import edits
from headrace.errors import (
    HeadraceError,
    RefusedError,
    RequestFailedError,
    UndeliveredError,
)
from headrace.home import gateway_url
from headrace.invocation import is_structured
from headrace.options import HOME, ApiKey, Endpoint, Gateway, Home, find_place, make_absolute
from headrace.program import App

Kind = Annotated[
    KindName | None, typer.Option(help="Kind of vectors; needed of hybrid models, which give all.")
]
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
    kind: Kind = None,
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
    base = gateway_url(find_place(home), url)
    plan = BackfillPlan(base, name, space, key, concurrency, texts, kind=kind)
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
            shown = _name_of(target, output, kind)
            notes = _Notes(home, name, shown, found.rows)
            made.note = notes.note
            least = asyncio.run(made.run(output))
        if "://" in target:
            _deliver(output, target)
        parts.remove()
    notes.note(found.rows, made.space)
    seconds = time.monotonic() - began
    summary: dict[str, Any] = {
        "rows": found.rows,
        "seconds": round(seconds, 3),
        "space": made.space,
        "output": target,
        "retries": made.retries,
        "leastCosine": least,
    }
    refusal: HeadraceError | None = None
    try:
        if space is not None:
            summary["next"] = _cut_over(home, name, made.space, f"{found.rows} texts in {shown}")
    except HeadraceError as error:
        refusal = error
    if is_structured():
        print_json(summary)
    else:
        print_line(
            f"{found.rows:,} vectors of space {made.space} in {target}, {seconds:.0f} s. A sample "
            f"agrees with the gateway (similarity {least:.6f} at least)."
        )
        if summary.get("next"):
            print_line(summary["next"])
    if refusal is not None:
        raise refusal


@dataclass(slots=True)
class _Notes:
    """Shows on the endpoint how far its output is, if this user may write there."""

    home: Path
    endpoint: str
    output: str
    rows: int
    told: bool = False  # that it is not shown

    def note(self, done: int, space: str) -> None:
        progress = BackfillProgress(
            output=self.output, space=space, done=done, rows=self.rows, at=time.time()
        )

        def change(stored: ModelEndpoint) -> ModelEndpoint:
            notes = note_backfill(stored.metadata.annotations, progress)
            metadata = stored.metadata.model_copy(update={"annotations": notes})
            return stored.model_copy(update={"metadata": metadata})

        try:
            edits.edit(homes.site(find_place(self.home)).store, self.endpoint, change)
        except HeadraceError as error:
            if not self.told:
                sys.stderr.write(f"The endpoint does not show how far it is: {error}\n")
            self.told = True


def _name_of(target: str, output: Path, kind: KindName | None) -> str:
    """The output as others may read it: of which machine, or a URL without who signs in there."""
    if "://" in target:
        scheme, _, rest = target.partition("://")
        host, slash, path = rest.partition("/")
        target = f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
    else:
        target = f"{socket.gethostname()}:{output}"
    shown = "".join(each if each.isprintable() else "?" for each in target)[-200:]
    return shown if kind is None else f"{shown} ({kind})"


def _cut_over(home: Path, name: str, space: str, reason: str) -> str:
    """Cuts over if the endpoint asks for it at the end of a backfill; what was done, or is next.

    Raises:
        RefusedError: the space is not the next one, or has not passed its checks.
        UndeliveredError: no controller took it.
    """
    by_hand = f"headrace space cutover {name}"
    try:
        endpoint = edits.find_existing(homes.site(find_place(home)).store, name)
    except HeadraceError:
        return f"The endpoint can't be read here. If this is its next space, next is: {by_hand}"
    status, state = endpoint.status, endpoint.status.rollout
    cuts_over = endpoint.spec.rollout.embedding.cutover is CutoverAt.BACKFILL
    stable = None if status.stable is None else status.stable.space
    if space in {stable, *(each.ref.space for each in status.kept)}:
        return ""
    if state is None or state.promoted_at is not None or state.candidate.space != space:
        if cuts_over:
            raise RefusedError(f"{name} is not cut over: {space} is not its next space any more.")
        return ""
    if not cuts_over or gives_several(str(status.task)):  # other kinds may follow
        return f"When its index is whole: {by_hand}"
    for each in list_backfills(endpoint.metadata.annotations):
        if each.space == space and each.done < each.rows:
            left = f"{each.output} has {each.done:,} of {each.rows:,} texts"
            return f"Not cut over yet, as {left}. If that is over: {by_hand}"
    try:
        decision = cutover_of(endpoint, reason)
        _, outcome, said = carry_out(decision, home)
        require_accepted(decision, outcome, said)
    except (RefusedError, UndeliveredError) as error:
        raise type(error)(f"{error} The vectors are whole; next is: {by_hand}") from error
    return f"Cut over: {said}."


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

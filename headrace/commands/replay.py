"""``headrace replay``: sends a file's texts at a pace, shows how it goes, sums it up."""

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from headrace.commands.output import console, print_json
from headrace.errors import NotRunningError, RequestFailedError
from headrace.home import gateway_url
from headrace.invocation import is_structured
from headrace.options import HOME, ApiKey, Gateway, Home, find_place, make_absolute, names
from headrace.options import duration as read_duration
from headrace.program import App
from headrace.replay import texts as files
from headrace.replay.sender import Plan, Replay
from headrace.replay.tally import PERCENTILES, Tally
from headrace.replay.texts import Columns

_REFRESH_SECONDS = 0.5
_CONNECT_SECONDS = 10.0
_FAILURES_SHOWN = 5

app = App()


@app.declare()
def replay(
    file: Annotated[Path, typer.Argument(help="Texts: .txt, .csv, .tsv or .jsonl, also with .gz.")],
    endpoint: Annotated[str, typer.Option(help="Name of the endpoint.", autocompletion=names)],
    rate: Annotated[float, typer.Option(min=0.001, max=100_000, help="Requests a second.")],
    duration: Annotated[
        float | None,
        typer.Option(
            parser=read_duration, metavar="TIME", help="E.g. 30s or 5m; else until Ctrl-C."
        ),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Stop after this number of requests.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=10_000, help="Most requests on their way at once.")
    ] = 256,
    callers: Annotated[
        int, typer.Option(min=0, help="Number of callers to make up; 0: callers are not named.")
    ] = 0,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="Tell the true labels to POST /feedback.")
    ] = False,
    text_field: Annotated[
        str | None, typer.Option(help="Column of the text.", rich_help_panel="Columns")
    ] = None,
    label_field: Annotated[
        str | None, typer.Option(help="Column of the true label.", rich_help_panel="Columns")
    ] = None,
    key_field: Annotated[
        str | None,
        typer.Option(
            help="Column of the caller, sent as x-headrace-key.", rich_help_panel="Columns"
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(parser=read_duration, metavar="TIME", help="Of one request.")
    ] = 30.0,
    home: Home = HOME,
    url: Gateway = None,
    key: ApiKey = None,
) -> None:
    """Sends a file's texts to an endpoint at an even pace, again and again, and sums it up."""
    plan = Plan(
        url="",
        endpoint=endpoint,
        rate=rate,
        seconds=duration,
        requests=requests,
        concurrency=concurrency,
        callers=callers,
        feedback=feedback,
        api_key=key,
        timeout_seconds=timeout,
    )
    file = make_absolute(file)
    texts = files.read(file, Columns(text=text_field, label=label_field, key=key_field))
    if plan.feedback and not any(text.label for text in texts):
        raise RequestFailedError(f"{file} has no labels to give feedback with: see --label-field.")
    tally, seconds = asyncio.run(_run(replace(plan, url=gateway_url(find_place(home), url)), texts))
    summary = tally.summary(seconds, plan.rate)
    if is_structured():
        print_json(summary)
    else:
        console.print(_picture(summary), markup=False)
    if tally.failures and not tally.versions:
        raise RequestFailedError(f"No request was answered: {next(iter(tally.failures))}")


async def _run(plan: Plan, texts: tuple[files.ReplayText, ...]) -> tuple[Tally, float]:
    await _reach(plan.url)
    replay, stop = Replay(plan, texts), asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        # The first Ctrl-C ends the sending; a second one ends the program, as usual.
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    watching = asyncio.create_task(_watch(replay, plan))
    try:
        seconds = await replay.run(stop)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return replay.tally, seconds


async def _reach(url: str) -> None:
    """Raises NotRunningError if nobody listens: better now than as thousands of failures."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError) as error:
        raise NotRunningError(
            f"No gateway answers at {url}. Start one with headrace up."
        ) from error
    writer.close()


async def _watch(replay: Replay, plan: Plan) -> None:
    """Shows how it goes until it is cancelled; nothing without a terminal."""
    bar = Progress(
        TimeElapsedColumn(),
        BarColumn(bar_width=24),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
    )
    total = plan.requests if plan.seconds is None else plan.seconds
    with bar:
        task = bar.add_task("", total=total)
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            _show(bar, task, replay, plan)


def _show(bar: Progress, task: TaskID, replay: Replay, plan: Plan) -> None:
    elapsed = asyncio.get_running_loop().time() - replay.began
    tally = replay.tally
    done = tally.sent if plan.seconds is None else elapsed
    bar.update(task, completed=done, description=in_a_line(tally, elapsed))
    bar.refresh()


def in_a_line(tally: Tally, seconds: float) -> str:
    """How a replay goes."""
    rate = tally.sent / seconds if seconds else 0.0
    failed = sum(tally.statuses.values()) - tally.statuses["200"]
    words = [f"{tally.sent:,} sent", f"{rate:.1f}/s", f"{failed:,} failed"]
    p99 = tally.latencies.quantile(99)
    if p99 is not None:
        words.append(f"p99 {p99 * 1000:.0f} ms")
    answered = sum(tally.versions.values())
    words += [
        f"version {version} {100 * count / answered:.1f} %"
        for version, count in sorted(tally.versions.items())
    ]
    return ", ".join(words)


def _picture(summary: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    rate, latency = summary["rate"], summary["latencySeconds"]
    table.add_row(
        "requests",
        f"{summary['requests']:,} in {summary['seconds']:.1f} s, {rate['sent']:.1f} a second of "
        f"{rate['asked']:g} asked for",
    )
    for name, why in (
        ("skipped", "their turn passed while all connections were busy"),
        ("unfinished", "on their way at the end"),
    ):
        if summary[name]:
            table.add_row(name, f"{summary[name]:,} ({why})")
    table.add_row("status", _counts(summary["statuses"]))
    shares = summary["shares"]
    versions = {
        f"version {name}": f"{count:,} ({100 * shares[name]:.2f} %)"
        for name, count in summary["versions"].items()
    }
    for name, told in versions.items():
        table.add_row(name, told)
    if latency["max"] is not None:
        marks = [*(f"p{percent}" for percent in PERCENTILES), "max"]
        table.add_row(
            "latency, ms", ", ".join(f"{mark} {latency[mark] * 1000:.1f}" for mark in marks)
        )
    if summary["labelled"]:
        share = 100 * summary["right"] / summary["labelled"]
        table.add_row("right", f"{share:.1f} % of {summary['labelled']:,} with a label")
    if summary["feedback"]:
        table.add_row("feedback", _counts(summary["feedback"]))
    for sentence, count in list(summary["failures"].items())[:_FAILURES_SHOWN]:
        table.add_row("failed", f"{count:,} x {sentence}")
    return table


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in counts.items()) or "none"

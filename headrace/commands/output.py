"""How the commands print: JSON for scripts, rich text for people."""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from headrace import invocation
from headrace.invocation import OutputFormat

REFRESH_SECONDS = 0.5
PIPED_SECONDS = 5.0  # a picture tells the time that is left: each second another one

console = Console()


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Writes one document on standard output, untouched by terminal width or colour.

    JSON, or YAML if ``-o yaml`` asks for that.
    """
    if invocation.current().form is OutputFormat.YAML:
        from yaml import safe_dump  # noqa: PLC0415 - only if it is asked for

        plain = json.loads(json.dumps(value))  # enumerations are text to JSON, and not to YAML
        sys.stdout.write(safe_dump(plain, sort_keys=False, allow_unicode=True, width=100))
    else:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def strip_controls(text: str) -> str:
    """A stranger's line without what could steer a terminal."""
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)


def print_line(text: str, style: str = "") -> None:
    """Writes a text as it is: without markup, and never broken at the terminal's width."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def table_of(*headings: str) -> Table:
    """An empty table without lines, whose cells go on below if they are too wide."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def display(
    draw: Callable[[], RenderableType], *, watch: bool, piped_seconds: float = PIPED_SECONDS
) -> None:
    """Draws once, or again and again until Ctrl-C.

    On a terminal each picture takes the place of the one before. Into a file or a pipe, where
    nothing can be replaced, pictures that differ follow one another, with an empty line between.
    """
    if not watch:
        console.print(draw())
        return
    with contextlib.suppress(KeyboardInterrupt):
        if console.is_terminal:
            _replace(draw)
        else:
            _follow(draw, piped_seconds)


def _replace(draw: Callable[[], RenderableType]) -> None:
    with Live(draw(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(REFRESH_SECONDS)
            live.update(draw(), refresh=True)


def _follow(draw: Callable[[], RenderableType], every_seconds: float) -> None:
    shown = None
    while True:
        with console.capture() as captured:
            console.print(draw())
        if captured.get() != shown:
            sys.stdout.write(captured.get() if shown is None else f"\n{captured.get()}")
            sys.stdout.flush()
            shown = captured.get()
        time.sleep(every_seconds)

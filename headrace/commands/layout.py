"""How rows and sentences are set on a terminal, whatever its width.

A row is one line of short cells. A sentence gets the whole width below the row that it belongs to,
never a narrow column. What is one figure to its reader (``191 of 192``, ``99.5 %``, ``version 7``)
stays on one line. Pure: text and width in, lines out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

GLUE = "\u00a0"
_SENTENCE_INDENT = 4
_GAP = "  "
_WITHIN_A_FIGURE = re.compile(
    r"(?<=\d) (?=%|of \d|points?\b|times\b|s\b)|(?<=\d of) (?=\d)|(?<=\bversion) (?=\d)"
)
_SPACE = re.compile(r"[ \t\r\n]+")


def wrap(text: str, width: int, *, first: int = 0, rest: int = 0) -> list[str]:
    """The lines of a text.

    Args:
        text: words; a ``GLUE`` between two keeps them on one line, as figures stay by themselves.
        width: of a line in cells, indentation included.
        first: indentation of the first line.
        rest: indentation of the others.
    """
    lines: list[str] = []
    line, used = " " * first, first
    is_empty = True
    for word in _SPACE.split(_WITHIN_A_FIGURE.sub(GLUE, text.strip())):
        size = cell_len(word)
        fits = used + (not is_empty) + size <= width or (not is_empty and rest + size <= width)
        for piece in [word] if fits else _cut(word, max(1, width - max(first, rest))):
            size = cell_len(piece)
            if not is_empty and used + 1 + size > width:
                lines.append(line)
                line, used, is_empty = " " * rest, rest, True
            space = "" if is_empty else " "
            line, used, is_empty = f"{line}{space}{piece}", used + len(space) + size, False
    return [*(line.replace(GLUE, " ") for line in lines), line.replace(GLUE, " ")]


def _cut(word: str, room: int) -> Iterator[str]:
    for part in word.split(GLUE):
        yield from chop_cells(part, room) or [""]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence at full width; ``rest`` indents the lines after its first, by default as that."""

    text: str
    indent: int = 0
    style: str = ""
    rest: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rest = self.indent if self.rest is None else self.rest
        for line in wrap(self.text, options.max_width, first=self.indent, rest=rest):
            yield Text(line, style=self.style, no_wrap=True)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Short pieces one after the other, as many as a line takes; none is broken."""

    pieces: tuple[Text, ...]
    between: str
    rest: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text(no_wrap=True)
        for number, piece in enumerate(self.pieces):
            is_last = number == len(self.pieces) - 1
            after = "" if is_last else self.between
            if line and line.cell_len + piece.cell_len + len(after.rstrip()) > options.max_width:
                line.rstrip()
                yield line
                line = Text(" " * self.rest, no_wrap=True)
            line.append_text(piece).append(after, style="dim")
        yield line


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of short cells, and the sentences below it.

    ``style`` is that of its last cell, where the eye goes.
    """

    cells: tuple[str, ...]
    below: tuple[Sentence, ...] = ()
    style: str = ""


def sentences(*texts: str, style: str = "") -> tuple[Sentence, ...]:
    """Those that are not empty, indented as they stand below a row."""
    return tuple(Sentence(text, _SENTENCE_INDENT, style) for text in texts if text)


def rows(headings: Sequence[str], entries: Sequence[TableRow]) -> "TableRows":
    """Rows whose cells stand below each other; without headings if ``headings`` is empty."""
    return TableRows(TableRow(tuple(headings)) if headings else None, tuple(entries))


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows below each other; see ``rows``, which makes them.

    A cell that leaves no room for the others has a line of its own, and does not push the columns
    of other rows apart.
    """

    heading: TableRow | None
    entries: tuple[TableRow, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.entries if self.heading is None else (self.heading, *self.entries)
        widths = _widths(table, options.max_width)
        for entry in table:
            yield from _set(entry, widths, options.max_width, is_heading=entry is self.heading)
            yield from entry.below


def _widths(table: Sequence[TableRow], width: int) -> list[int]:
    """The width of each column: of its widest cell, over as many rows as fit on one line.

    Of a row that fits but for its first cell, which then has a line of its own, the others count.
    """
    whole = sorted(table, key=lambda row: sum(map(cell_len, row.cells[:-1])))
    apart: list[TableRow] = []
    while len(whole) > 1 and not _fit(_find_widths(whole, apart), width):
        row = whole.pop()
        if _fit(_find_widths(whole[:1], [*apart, row]), width):
            apart.append(row)
    return _find_widths(whole, apart)


def _find_widths(whole: Sequence[TableRow], apart: Sequence[TableRow]) -> list[int]:
    rows = [*(row.cells for row in whole), *(("", *row.cells[1:]) for row in apart)]
    columns = max((len(cells) for cells in rows), default=0)
    return [
        max((cell_len(cells[at]) for cells in rows if at < len(cells)), default=0)
        for at in range(columns)
    ]


def _fit(widths: Sequence[int], width: int) -> bool:
    return sum(widths) + len(_GAP) * (len(widths) - 1) <= width


def _set(entry: TableRow, widths: Sequence[int], width: int, *, is_heading: bool) -> Iterator[Text]:
    line = _line(entry, widths, is_heading=is_heading)
    if line.cell_len <= width:
        yield line
        return
    first, *others = entry.cells
    line = _line(TableRow(("", *others), style=entry.style), widths, is_heading=is_heading)
    if others and line.cell_len <= width:
        for text in wrap(first, width, rest=_SENTENCE_INDENT):
            yield Text(text, no_wrap=True)
        yield line
        return
    for text in wrap(_GAP.join(entry.cells), width, rest=_SENTENCE_INDENT):
        yield Text(text, no_wrap=True)


def _line(entry: TableRow, widths: Sequence[int], *, is_heading: bool) -> Text:
    line = Text(no_wrap=True, style="bold" if is_heading else "")
    last = len(entry.cells) - 1
    for at, cell in enumerate(entry.cells):
        line.append(cell, style=entry.style if at == last else "")
        if at != last:
            line.append(" " * max(0, widths[at] - cell_len(cell)) + _GAP)
    line.rstrip()
    return line

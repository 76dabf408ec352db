"""The fenced snippets of the documents, and the commands in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)(```+)([^\n`]*)\n(.*?\n)?\1\2 *$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!-- (run by|not run:|file:) (.+) -->")


@dataclass(frozen=True)
class Snippet:
    """A fenced part of a page.

    Attributes:
        page: path in the repository.
        line: of the fence, from 1.
        kind: of the comment before it: ``run by``, ``not run:``, ``file:`` or nothing.
        said: what follows in the comment.
    """

    page: str
    line: int
    language: str
    text: str
    kind: str
    said: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets(page: str, content: str) -> list[Snippet]:
    """The snippets of a page, in their order."""
    found = []
    for fence in _FENCE.finditer(content):
        above = content[: fence.start()].rstrip("\n").rpartition("\n")[2]
        comment = _COMMENT.fullmatch(above.strip())
        indent = len(fence[1])
        lines = [line[indent:] for line in (fence[4] or "").splitlines()]
        found.append(
            Snippet(
                page=page,
                line=content.count("\n", 0, fence.start()) + 1,
                language=fence[3].strip(),
                text="".join(f"{line}\n" for line in lines),
                kind=comment[1] if comment else "",
                said=comment[2] if comment else "",
            )
        )
    return found


def of(path: Path) -> list[Snippet]:
    """The snippets of a file of the repository."""
    return snippets(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def steps(snippet: Snippet) -> list[tuple[str, str]]:
    """What is run of a snippet, and what it has to print; of a console each command by itself."""
    if snippet.language != "console":
        return [(snippet.text, "")]
    found: list[tuple[str, str]] = []
    for line in snippet.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            command, shown = found.pop()
            found.append((command, f"{shown}{line}\n"))
    return found

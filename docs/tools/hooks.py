"""What MkDocs is told beside ``mkdocs.yml``: generated pages, and links that leave ``docs/``.

Pages of ``docs/`` are read on a forge too, so they link to files of the repository by relative
paths. On the site these files are below ``repository/``: Markdown as pages, the rest as they are. A
link to a folder goes to its ``README.md``, or to its first file. A file that nobody links to is not
on the site.

Forges read CommonMark, in which a list may follow a paragraph at once and what belongs to an item
is indented by the width of its marker. Python-Markdown wants an empty line and four spaces.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
REFERENCE = ROOT / "build" / "reference"  # made by docs/tools/reference.py
OUTSIDE = "repository"
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_ITEM = re.compile(r"(?:-|\d+\.) (?=\S)")
_FENCE = re.compile(r" *(```+)")
_FENCED = re.compile(r"^ *(```+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)


def target(page: str, link: str) -> str | None:
    """The file of the repository that a link of a page means; None where it is no such file.

    Args:
        page: the page's own path in the repository, as ``docs/install.md``.
        link: as it is written, without the part after ``#``.
    """
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if (ROOT / path).is_dir():
        names = sorted(each.name for each in (ROOT / path).iterdir() if each.is_file())
        path = posixpath.join(path, "README.md" if "README.md" in names else next(iter(names), ""))
    return path if (ROOT / path).is_file() else None


def place(path: str) -> str:
    """Where a file of the repository lies on the site."""
    inside = path.removeprefix("docs/")
    return inside if inside != path else f"{OUTSIDE}/{path}"


def in_repository(uri: str) -> str:
    """Which file of the repository a page of the site is."""
    return uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else f"docs/{uri}"


def rewritten(markdown: str, page: str) -> str:
    """A page's text with its links as they are on the site; code is left alone."""

    def one(found: re.Match[str]) -> str:
        path = target(page, found[2])
        if path is None:
            return found[0]
        here = posixpath.dirname(place(page)) or "."
        return f"{found[1]}{posixpath.relpath(place(path), here)}{found[3]}"

    pieces, end = [], 0
    for code in _FENCED.finditer(markdown):
        pieces += [_LINK.sub(one, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, _LINK.sub(one, markdown[end:])])


def respaced(markdown: str) -> str:
    """A page's text with the spaces that Python-Markdown wants around and in lists."""
    lines: list[str] = []
    width, code, before = 0, "", ""  # of the marker of the list that is open; the fence that is
    loose = False  # whether the item that is open has several paragraphs
    for line in markdown.split("\n"):
        marker, fence = _ITEM.match(line), _FENCE.match(line)
        if code:
            code = "" if fence and fence[1] == code else code
        elif marker:
            if before and (loose or not width):
                lines.append("")
            width, loose = len(marker[0]), False
        elif fence:
            code = fence[1]
            width = width if line.startswith(" ") else 0
        elif line and not line.startswith(" ") and not before:
            width = 0
        loose = loose or bool(width and line and not marker and not before)
        spaces = len(line) - len(line.lstrip(" "))
        deep = spaces // width if width else 0
        lines.append(" " * (4 * deep - width * deep) + line if deep else line)
        before = line.strip()
    return "\n".join(lines)


def linked(pages: list[str]) -> list[str]:
    """The files outside of ``docs/`` that pages link to, and so on through linked Markdown."""
    found: set[str] = set()
    waiting = list(pages)
    while waiting:
        page = waiting.pop()
        text = (ROOT / page).read_text(encoding="utf-8")
        for link in _LINK.finditer(_FENCED.sub("", text)):
            path = target(page, link[2])
            if path is not None and not path.startswith("docs/") and path not in found:
                found.add(path)
                waiting += [path] if path.endswith(".md") else []
    return sorted(found)


def boost(uri: str) -> float:
    """How much the words of a page count in a search: who searches wants to know what to do."""
    if uri == "glossary.md":
        return 4.0
    return 0.3 if uri.startswith(("decisions/", f"{OUTSIDE}/")) else 1.0


def on_files(files: Any, config: Any) -> Any:
    """Adds the reference and what pages link to beside ``docs/``."""
    from mkdocs.structure.files import File

    pages = [f"docs/{file.src_uri}" for file in files if file.is_documentation_page()]
    made = sorted(REFERENCE.glob("*.md"))
    if not made:
        raise FileNotFoundError(f"{REFERENCE} is empty: run docs/tools/reference.py first.")
    for path in made:
        files.append(File.generated(config, f"reference/{path.name}", abs_src_path=str(path)))
    for name in linked(pages):
        files.append(File.generated(config, place(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Puts links and spaces right, and says how early a search is to find the page."""
    page.meta["search"] = {"boost": boost(page.file.src_uri)}
    return respaced(rewritten(markdown, in_repository(page.file.src_uri)))

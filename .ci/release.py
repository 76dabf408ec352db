"""What a release needs from the repository, without a network.

* ``python -P .ci/release.py check TAG``: whether the tag is the version of the project and of the
  chart, and the changelog has it with a date;
* ``python -P .ci/release.py notes TAG URL``: the changelog's part about it, its links below URL;
* ``python -P .ci/release.py chart REGISTRY FOLDER URL``: the chart with images of that registry, as
  of the repository at URL, into FOLDER.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
_DATED = re.compile(r"^## (?P<version>\S+) \((?P<date>\d{4}-\d{2}-\d{2})\)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://|#)([^)]+)\)")


class ReleaseError(Exception):
    """The repository is not ready for this release; the message says why."""


def check(tag: str, root: Path = ROOT) -> None:
    """Raises ``ReleaseError`` unless the tag, the project, the chart and the changelog agree."""
    version = tag.removeprefix("v")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = (root / "charts" / "headrace" / "Chart.yaml").read_text(encoding="utf-8")
    told = {
        "pyproject.toml": project["version"],
        "Chart.yaml (version)": _field(chart, "version"),
        "Chart.yaml (appVersion)": _field(chart, "appVersion"),
    }
    wrong = [f"{where} says {found}" for where, found in told.items() if found != version]
    if tag != f"v{version}" or wrong:
        raise ReleaseError(f"The tag is {tag}, a v and the version: {'; '.join(wrong)}.")
    section(version, (root / "CHANGELOG.md").read_text(encoding="utf-8"))


def section(version: str, changelog: str) -> str:
    """The changelog's text about a version, without its heading.

    Raises:
        ReleaseError: there is none, or it has no date yet.
    """
    headings = list(re.finditer(r"^## .*$", changelog, re.MULTILINE))
    for place, heading in enumerate(headings):
        dated = _DATED.match(heading.group())
        if dated is None or dated["version"] != version:
            continue
        end = headings[place + 1].start() if place + 1 < len(headings) else len(changelog)
        return changelog[heading.end() : end].strip() + "\n"
    raise ReleaseError(f"CHANGELOG.md has no heading '## {version} (YYYY-MM-DD)'.")


def notes(tag: str, url: str, changelog: str) -> str:
    """The notes of a release: its part of the changelog, with links that work elsewhere."""
    text = section(tag.removeprefix("v"), changelog)
    return _LINK.sub(lambda link: f"]({url.rstrip('/')}/blob/{tag}/{link[1]})", text)


def chart(registry: str, folder: Path, url: str, root: Path = ROOT) -> Path:
    """A copy of the chart whose images come from ``registry`` unless a value says otherwise.

    Its ``Chart.yaml`` names the repository, and to Artifact Hub the images, which that scans.
    """
    made = folder / "headrace"
    shutil.copytree(root / "charts" / "headrace", made)
    text = (made / "values.yaml").read_text(encoding="utf-8")
    named = {*re.findall(r'"repository": "(headrace-[a-z]+)"', text), "headrace-triton"}
    version = _field((made / "Chart.yaml").read_text(encoding="utf-8"), "version")
    images = "".join(
        f"    - name: {name}\n      image: {registry}/{name}:{version}\n" for name in sorted(named)
    )
    _fill_in(
        made / "values.yaml",
        r'^(images:\n(?:  .*\n)*?  registry: )""$',
        rf'\g<1>"{registry}"',
    )
    _fill_in(
        made / "Chart.yaml",
        "^annotations:\n",
        f"home: {url}\nsources: [{url}]\nannotations:\n  artifacthub.io/images: |\n{images}",
    )
    return made


def _fill_in(file: Path, pattern: str, text: str) -> None:
    found = file.read_text(encoding="utf-8")
    changed, count = re.subn(pattern, text, found, flags=re.MULTILINE)
    if count != 1:
        raise ReleaseError(f"{file.name} has {count} places like {pattern} to fill in, not one.")
    file.write_text(changed, encoding="utf-8")


def _field(text: str, name: str) -> str:
    found = re.search(rf"^{name}: \"?([^\"\n]+)\"?$", text, re.MULTILINE)
    return found[1] if found else ""


def main(arguments: list[str]) -> int:
    """Does what the first word says; returns the exit status."""
    try:
        match arguments:
            case ["check", tag]:
                check(tag)
            case ["notes", tag, url]:
                changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
                sys.stdout.write(notes(tag, url, changelog))
            case ["chart", registry, folder, url]:
                sys.stdout.write(f"{chart(registry, Path(folder), url)}\n")
            case _:
                sys.stderr.write(str(__doc__))
                return 2
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``headrace stats unk-words``: which words became UNK, the most frequent first."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from contracts.windows import EndpointWindow, UnkWordCounts
from headrace import home as homes
from headrace.commands.output import console, print_json, strip_controls
from headrace.endpoints import edits
from headrace.errors import NotRunningError
from headrace.home import Where
from headrace.invocation import is_structured
from measures.frequent import ranked_words, sum_sketches
from service.kafka import StreamError
from stats.reading.record_log import windows_since


def show_words(
    where: Where, kafka: str | None, endpoint: str, begin: float, *, top: int | None
) -> None:
    """Lists them by version."""
    as_json = is_structured()
    asked = edits.find_existing(homes.site(where).store, endpoint).spec.unk_words
    try:
        windows = windows_since(homes.kafka_of(where, kafka), endpoint, begin)
    except StreamError as error:
        raise NotRunningError(f"No windows can be read: {error}.") from error
    if not asked.enabled and not as_json:
        console.print(
            f"{endpoint} does not keep such words. To keep them from now on, set "
            "spec.unkWords.enabled to true (headrace get, headrace apply).",
            highlight=False,
        )
    tell(endpoint, by_version(windows, begin), top or asked.top, as_json=as_json)


def by_version(windows: Iterable[EndpointWindow], begin: float) -> dict[str, UnkWordCounts]:
    """Version -> its words in all arms, in windows that start at ``begin`` or later, unix seconds.

    Versions without a word are left out.
    """
    found: dict[str, list[UnkWordCounts]] = {}
    for window in windows:
        if window.start < begin:
            continue
        for aggregate in window.aggregates:
            if aggregate.unk_words.seen:
                found.setdefault(aggregate.version, []).append(aggregate.unk_words)
    return {version: sum_sketches(sketches) for version, sketches in sorted(found.items())}


def tell(endpoint: str, found: Mapping[str, UnkWordCounts], top: int, *, as_json: bool) -> None:
    """Prints what was found."""
    if as_json:
        print_json(_document(endpoint, found, top))
        return
    if not found:
        console.print(f"No word of {endpoint} became UNK in this time.", highlight=False)
    for version, sketch in found.items():
        console.print(_table(version, sketch, top))
        if sketch.below:
            console.print(
                f"Each count may be too small by up to {sketch.below}; none is too large.",
                highlight=False,
            )


def _table(version: str, sketch: UnkWordCounts, top: int) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(f"version {version}", overflow="fold")
    table.add_column("times", justify="right")
    table.add_column("share", justify="right")
    for word, count in ranked_words(sketch.counts)[:top]:
        table.add_row(escape(strip_controls(word)), str(count), f"{count / sketch.seen:.1%}")
    table.add_row("all words", str(sketch.seen), "", style="dim")
    return table


def _document(endpoint: str, found: Mapping[str, UnkWordCounts], top: int) -> dict[str, Any]:
    return {
        "endpoint": endpoint,
        "versions": [
            {
                "version": version,
                "seen": sketch.seen,
                "too_small_by_at_most": sketch.below,
                "words": [
                    {"word": word, "count": count}
                    for word, count in ranked_words(sketch.counts)[:top]
                ],
            }
            for version, sketch in found.items()
        ],
    }

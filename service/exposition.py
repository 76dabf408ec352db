"""Metrics as text, for processes with tens of thousands of series.

``prometheus_client`` looks at every label of every sample each time: a gateway that was asked for
1,000 endpoints took 0.9 s for its 158,000 lines, and 1.5 s for OpenMetrics, which Prometheus asks
for. Here it is 0.06 s (``bench.exposition`` of d00a56c0, two cores of an Intel Xeon). Families of
``service.families`` are written from their rows, byte by byte as the library has them, and all
others by the library itself.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from service.families import (
    FamilyCollector,
    Histogram,
    HistogramFamily,
    Labels,
    NumberFamily,
    edge_names,
)

_PIECE = 500  # lines: a fifth of a millisecond
_SHORT = 1_000_000  # numbers below it have no exponent
_END = "# EOF\n"

_Order = list[tuple[str, int]]  # names of labels in order, and where each one's value is


def text(families: Iterable[Family], *, openmetrics: bool = False) -> bytes:
    """All in Prometheus' text format 0.0.4, or as OpenMetrics 1.0, which has exemplars."""
    return b"".join(pieces(families, openmetrics=openmetrics))


def pieces(families: Iterable[Family], *, openmetrics: bool = False) -> Iterator[bytes]:
    """The same in pieces of some 500 lines: an event loop has other work between them."""
    for family in families:
        lines: list[str] = []
        for more in _lines(family, openmetrics):
            lines += more
            if len(lines) >= _PIECE:
                yield "".join(lines).encode()
                lines.clear()
        yield "".join(lines).encode()
    if openmetrics:
        yield _END.encode()


def _lines(family: Family, openmetrics: bool) -> Iterator[list[str]]:  # noqa: FBT001
    if isinstance(family, NumberFamily):
        yield _head(family, openmetrics)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        order = _order(family)
        for labels, value in family.rows:
            yield [f"{name}{_add_braces(_format_labels(order, labels))} {floatToGoString(value)}\n"]
    elif isinstance(family, HistogramFamily):
        yield _head(family, openmetrics)
        order = _order(family)
        for row in family.rows:
            lines = _histogram(family.name, order, row)
            if openmetrics:
                for place, exemplar in family.exemplars.get(row[0], {}).items():
                    lines[place] = f"{lines[place][:-1]} # {_exemplar(exemplar)}\n"
            yield lines
    else:
        collector = FamilyCollector(lambda: [family])
        write = generate_openmetrics if openmetrics else generate_latest
        yield [write(collector).decode().removesuffix(_END)]


def _head(family: Family, openmetrics: bool) -> list[str]:  # noqa: FBT001
    suffix = "_total" if family.type == "counter" and not openmetrics else ""
    told = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        told = told.replace('"', r"\"")
    name = f"{family.name}{suffix}"
    return [f"# HELP {name} {told}\n", f"# TYPE {name} {family.type}\n"]


def _order(family: NumberFamily | HistogramFamily) -> _Order:
    return sorted((name, place) for place, name in enumerate(family.metric.labels))


def _histogram(name: str, order: _Order, row: Histogram) -> list[str]:
    labels, upper, counts, total = row
    ahead = _format_labels([each for each in order if each[0] < "le"], labels)
    behind = _format_labels([each for each in order if each[0] > "le"], labels)
    before = f'{name}_bucket{{{ahead}{"," if ahead else ""}le="'
    after = f'"{"," if behind else ""}{behind}}} '
    below = list(accumulate(counts))
    edges = edge_names(tuple(upper))
    if below[-1] < _SHORT:
        lines = [
            f"{before}{le}{after}{number}.0\n" for le, number in zip(edges, below, strict=True)
        ]
    else:
        named = zip(edges, map(floatToGoString, below), strict=True)
        lines = [f"{before}{le}{after}{number}\n" for le, number in named]
    if not upper or upper[0] >= 0:  # else the sum may fall, and is no counter
        braced = _add_braces(_format_labels(order, labels))
        lines.append(f"{name}_count{braced} {floatToGoString(below[-1])}\n")
        lines.append(f"{name}_sum{braced} {floatToGoString(total)}\n")
    return lines


def _format_labels(order: _Order, values: Labels) -> str:
    return ",".join([f'{name}="{_escape(values[place])}"' for name, place in order])


def _add_braces(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _exemplar(exemplar: Exemplar) -> str:
    labels = ",".join(
        f'{name}="{_escape(value)}"' for name, value in sorted(exemplar.labels.items())
    )
    at = "" if exemplar.timestamp is None else f" {exemplar.timestamp}"
    return f"{{{labels}}} {floatToGoString(exemplar.value)}{at}"

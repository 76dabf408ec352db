"""What is written here are the bytes that ``prometheus_client`` writes of the same families."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Exemplar

from contracts.metrics import Metric, MetricKind
from service import exposition
from service.families import FamilyCollector, histograms, numbers

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['say "x"', "back\\slash", "two\nlines", "\\n", "", 'le="1"', "{}", "é"]
)
_values = st.integers(0, 2**53) | st.floats(allow_nan=False)
_helps = st.sampled_from(["Plain.", 'Of "texts" and \\ and\nmore.'])
_labels = st.lists(st.sampled_from(["endpoint", "arm", "z", "ll"]), unique=True).map(tuple)


@st.composite
def number_families(draw: st.DrawFn) -> Family:
    kind = draw(st.sampled_from([MetricKind.COUNTER, MetricKind.GAUGE]))
    name = "n_total" if kind is MetricKind.COUNTER else "n"
    metric = Metric(name, kind, draw(_helps), draw(_labels))
    values = st.tuples(*(_texts for _ in metric.labels))
    rows = draw(st.dictionaries(values, _values, max_size=4))
    if kind is MetricKind.COUNTER:
        rows = {labels: abs(value) for labels, value in rows.items()}
    return numbers(metric, rows.items())


@st.composite
def histogram_families(draw: st.DrawFn) -> Family:
    metric = Metric("h", MetricKind.HISTOGRAM, draw(_helps), draw(_labels))
    values = st.tuples(*(_texts for _ in metric.labels))
    rows, exemplars = [], {}
    for labels in draw(st.lists(values, unique=True, max_size=3)):
        edges = draw(st.lists(st.integers(-2, 20), unique=True, max_size=4))
        upper = [edge / 4 for edge in sorted(edges)]
        buckets = len(upper) + 1
        counts = draw(st.lists(st.integers(0, 10**7), min_size=buckets, max_size=buckets))
        rows.append((labels, upper, counts, draw(st.floats(0, 1e9))))
        traced = draw(st.booleans())
        if upper and traced:
            exemplars[labels] = {0: Exemplar({"trace_id": "ab", "a": '"'}, upper[0], 12.5)}
    return histograms(metric, rows, exemplars)


_families = st.tuples(
    number_families(), histogram_families(), st.just(GaugeMetricFamily("official", "Its.", 3))
)


@given(_families)
def test_the_plain_format_is_the_library_s_own(families: tuple[Family, ...]) -> None:
    assert exposition.text(families) == generate_latest(FamilyCollector(lambda: families))


@given(_families)
def test_openmetrics_is_the_library_s_own(families: tuple[Family, ...]) -> None:
    official = generate_openmetrics(FamilyCollector(lambda: families))
    assert exposition.text(families, openmetrics=True) == official


def test_samples_that_would_not_be_told_are_refused() -> None:
    family = numbers(Metric("n_total", MetricKind.COUNTER, "Numbers."), [((), 1)])
    with pytest.raises(TypeError, match="samples of n follow from its rows"):
        family.samples += family.samples


@pytest.mark.parametrize("openmetrics", [False, True])
def test_pieces_are_short_whatever_there_is_to_tell(openmetrics: bool) -> None:
    counter = Metric("n_total", MetricKind.COUNTER, "Numbers.", ("endpoint",))
    histogram = Metric("h_seconds", MetricKind.HISTOGRAM, "Times.", ("endpoint",), (0.1, 1.0, 10.0))
    families = [
        numbers(counter, (((f"e{number}",), number) for number in range(2000))),
        histograms(
            histogram,
            (((f"e{number}",), histogram.buckets, [1, 2, 3, 4], 9.5) for number in range(2000)),
        ),
    ]
    pieces = list(exposition.pieces(families, openmetrics=openmetrics))
    assert max(piece.count(b"\n") for piece in pieces) <= 510
    assert b"".join(pieces) == exposition.text(families, openmetrics=openmetrics)
    assert b'h_seconds_bucket{endpoint="e1999",le="+Inf"} 10.0\n' in b"".join(pieces)
    assert b'n_total{endpoint="e1999"} 1999.0\n' in b"".join(pieces)

"""Service levels: what is recorded of each endpoint, and how fast its promise is used up.

Multiwindow, multi-burn-rate alerts as in Google's Site Reliability Workbook, chapter 5: an alert
begins when a long window has used up so much of the 30 days' budget that it matters, and ends soon
after, because it asks for a short window as well. The promise is ``spec.slo``, which gateways
expose beside their counters: everything here holds while Kafka, the controller and MLflow are away.

A request of an endpoint is an attempt for callers on the stable version, or a refusal with 5xx. A
candidate's failures are no callers': another version answers them, and the rollout deals with them.

Rates are recorded over five minutes once a minute. Longer windows are means of these, which costs
Prometheus a hundredth of a rate over days. ``sum_over_time(...) * 60`` counts requests.
"""

from typing import Final

from contracts import gateway_metrics as g
from contracts.statistics import LatencyStage
from dashboards.thresholds import selector

KEYS: Final = "cluster, namespace, endpoint"
WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
LONG_WINDOWS: Final = ("6h", "1d", "3d")  # recorded less often
INTERVAL_SECONDS: Final = 60  # of the records of rates
MOST: Final = 0.9  # of a promise so low that a burn rate can't be reached, that many failures count

REQUESTS: Final = "endpoint:headrace_slo_requests:rate5m"
ERRORS: Final = "endpoint:headrace_slo_errors:rate5m"
ANSWERS: Final = "endpoint:headrace_slo_answers:rate5m"
SLOW: Final = "endpoint:headrace_slo_slow:rate5m"
AVAILABILITY: Final = "endpoint:headrace_slo_availability:objective"
LATENCY: Final = "endpoint:headrace_slo_latency:objective"

_ON = f"on ({KEYS})"
_TOTAL = f'stage="{LatencyStage.TOTAL}"'
_PROMISED = selector(g.SLO_LATENCY.name)


def _rate(metric: str, where: str) -> str:
    return f"rate({selector(metric, where)}[5m])"


def _requests(status: str = "") -> str:
    """Requests a second: attempts for callers with these statuses, and refusals that are ours."""
    attempts = _rate(g.ATTEMPTS.name, f'arm=~"stable|control"{status}')
    return f"sum by ({KEYS}) ({attempts} or {_rate(g.REFUSALS.name, _OURS)})"


_OURS = 'status=~"5.."'

# Record -> expression; once a minute.
RATES: Final = {
    AVAILABILITY: f"max by ({KEYS}) ({selector(g.SLO_AVAILABILITY.name)})",
    LATENCY: f"max by ({KEYS}) ({_PROMISED})",
    REQUESTS: _requests(),
    ERRORS: _requests(f",{_OURS}"),
    ANSWERS: f"sum by ({KEYS}) ({_rate(g.STAGE_SECONDS.count, _TOTAL)} and {_ON} {_PROMISED})",
    SLOW: (
        f"clamp_min({selector(ANSWERS)} - sum by ({KEYS}) "
        f"({_rate(g.STAGE_SECONDS.bucket, _TOTAL)} and on ({KEYS}, le) {_PROMISED}), 0)"
    ),
}


# Part, whole and promise of each kind.
_OF = {"errors": (ERRORS, REQUESTS, AVAILABILITY), "slow": (SLOW, ANSWERS, LATENCY)}


def record(name: str, window: str) -> str:
    """Name of the record of a window's share of errors, or of slow answers."""
    return f"endpoint:headrace_slo_{name}:ratio_rate{window}"


def _mean(rate: str, window: str) -> str:
    return selector(rate) if window == "5m" else f"avg_over_time({selector(rate)}[{window}])"


def shares(windows: tuple[str, ...]) -> dict[str, str]:
    """The records of these windows: name -> expression."""
    return {
        record(name, window): f"{_mean(part, window)} / ({_mean(whole, window)} > 0)"
        for name, (part, whole, _) in _OF.items()
        for window in windows
    }


SHARES: Final = shares(tuple(window for window in WINDOWS if window not in LONG_WINDOWS))
LONG_SHARES: Final = shares(LONG_WINDOWS)


def count_requests(rate: str, window: str) -> str:
    """How many requests a record of a rate stands for, within a window."""
    return f"sum_over_time({selector(rate)}[{window}]) * {INTERVAL_SECONDS}"


def _burns(name: str, long: str, short: str, rate: str) -> str:
    """Both windows use up the promise this many times faster than it may be."""
    part, whole, promise = _OF[name]
    line = f"clamp_max({rate} * (1 - {selector(promise)}), {MOST})"
    return (
        f"{selector(record(name, long))} > {_ON} {line}"
        f" and {_ON} {selector(record(name, short))} > {_ON} {line}"
        f" and {_ON} {count_requests(whole, long)} >= @minimumRequests@"
        f" and {_ON} {count_requests(part, long)} >= @minimumFailures@"
    )


def _burns_fast(name: str) -> str:
    """2 % of the budget within an hour, or 5 % within six."""
    return f"{_burns(name, '1h', '5m', '@fastBurn@')} or {_burns(name, '6h', '30m', '@burn@')}"


def _burns_lastingly(name: str) -> str:
    """10 % of the budget within a day, or within three."""
    day = _burns(name, "1d", "2h", "@slowBurn@")
    return f"{day} or {_burns(name, '3d', '6h', '@lastingBurn@')}"


ERRORS_FAST: Final = _burns_fast("errors")
ERRORS_LASTING: Final = _burns_lastingly("errors")
SLOW_FAST: Final = _burns_fast("slow")
SLOW_LASTING: Final = _burns_lastingly("slow")

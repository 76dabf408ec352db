"""What a race found, as the tables of ``docs/performance.md``. Pure."""

import math
from collections.abc import Callable, Sequence

from bench.peers import shares
from bench.peers.entrants import (
    ALONE,
    BARE,
    ENSEMBLE,
    FASTAPI,
    HEADRACE,
    SIXTY,
    SUBJECTS,
    UNBATCHED,
)
from bench.peers.findings import Finding, Results, middle
from bench.peers.plan import CALLERS, MANY, SHARES, TIMES, Engine, Load

_NOTHING = "-"
_PICTURE = (
    "![The {engine} engine: requests a second and their p99 by callers, and answers within the "
    "deadline by what is offered](images/peers-{engine}.svg)"
)
_ENSEMBLES = (ENSEMBLE, UNBATCHED)
_BUSY = 64  # callers at which peers are set beside each other
_BATCHING = ("BentoML", "LitServe", "mosec", "MLServer", "Infinity")


def tables(results: Results, versions: dict[str, str]) -> dict[str, str]:
    """Marker's name -> table."""
    made = {"peers-who": _who(results, versions), "peers-goals": _goals(results)}
    for engine in Engine:
        raced = any(each.engine is engine for each in results.findings)
        made[f"peers-{engine}-picture"] = _PICTURE.format(engine=engine) if raced else "Not run."
        one = [Load(1, callers) for callers in CALLERS]
        many = [Load(MANY, callers) for callers in CALLERS]
        opened = [Load(times=times) for times in TIMES]
        made[f"peers-{engine}-one"] = _table(results, engine, one, _rate_and_latency(1))
        made[f"peers-{engine}-many"] = _table(results, engine, many, _rate_and_latency(MANY))
        made[f"peers-{engine}-open"] = _table(results, engine, opened, _goodput)
    return made


def shares_table(results: Results) -> dict[str, str]:
    """Marker's name -> table of whose processor time a request takes, and of the engine alone."""
    heads = ["a request", "req/s", "p50; p99, ms", "core's time a request", *shares.UNDER_TEST,
             "no one of these", "engine computes", "other core: generator, Kafka"]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for engine in Engine:
        for load in SHARES[engine]:
            for subject in SUBJECTS:
                found = results.find(subject.name, engine, load)
                if found is not None:
                    name = f"{subject.name}, {engine} engine, {load.name}"
                    lines.append(f"| {name} | " + " | ".join(_shares(found)) + " |")
    alone = ["| rows a run | rows/s | microseconds a row |", "|---|---|---|"]
    for size, rates in results.alone.items():
        alone.append(f"| {size} | {_spread(rates)} | {_number(1e6 / middle(rates))} |")
    return {
        "peers-shares": "\n".join(lines),
        "peers-alone": "\n".join(alone),
        "peers-shares-goals": _goals(results, all_of_them=False),
    }


def _shares(found: Finding) -> list[str]:
    """The cells of a load: medians of its rounds, microseconds a request."""
    rate = middle(found.values("per_second"))
    taken = [each.processor for each in found.rounds]

    def cell(role: str) -> str:
        microseconds = middle([each.get(role, 0.0) for each in taken])
        return _number(microseconds) if microseconds > 0 else _NOTHING

    rest = [
        1e6 / each.per_second - shares.under_test(each.processor)
        for each in found.rounds
        if each.per_second > 0
    ]
    return [
        _number(rate),
        f"{_number(middle(found.values('p50')))}; {_number(middle(found.values('p99')))}",
        _number(1e6 / rate) if rate > 0 else _NOTHING,
        *(cell(role) for role in shares.UNDER_TEST),
        _number(middle(rest)),
        cell(shares.COMPUTES),
        ", ".join(cell(role) for role in (shares.GENERATOR, shares.KAFKA)),
    ]


def _who(results: Results, versions: dict[str, str]) -> str:
    """Who took part, as what, and how like the original they answered."""
    lines = [
        "| who | version | set to | cosine, mean / least | ten nearest |",
        "|---|---|---|---|---|",
    ]
    answers = {each.subject: each for each in results.answers}
    for subject in SUBJECTS:
        found = answers.get(subject.name)
        cosine, overlap = _NOTHING, _NOTHING
        if found is not None:
            cosine = f"{found.mean_cosine:.4f} / {found.least_cosine:.4f}"
            overlap = f"{100 * found.overlap:.1f} %"
        version = versions.get(subject.name, _NOTHING)
        lines.append(f"| {subject.name} | {version} | {subject.tuned} | {cosine} | {overlap} |")
    lines += [
        f"\n{each.subject} on the {each.engine} engine was out from round {each.round + 1} on: "
        f"{_plain(each.reason)}"
        for each in results.failures
    ]
    return "\n".join(lines)


_Cell = Callable[[Results, Finding], str]


def _table(results: Results, engine: Engine, loads: Sequence[Load], cell: _Cell) -> str:
    heads = [f"{each.times:g} times" if each.open else _callers(each.callers) for each in loads]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(loads) + 1) + "|"]
    failures = {each.subject: each for each in results.failures if each.engine is engine}
    for subject in SUBJECTS:
        if engine not in subject.engines:
            continue
        found = [results.find(subject.name, engine, load) for load in loads]
        failure = failures.get(subject.name)
        if failure is not None and not any(found):
            lines.append(
                f"| {subject.name} | {_reason(failure.reason)} |" + " |" * (len(loads) - 1)
            )
            continue
        cells = [_NOTHING if each is None else cell(results, each) for each in found]
        lines.append(f"| {subject.name} | " + " | ".join(cells) + " |")
    if engine is Engine.REAL and loads[0] == Load(1, CALLERS[0]) and results.alone:
        lines.append(
            f"| {ALONE}, one row a run | {_spread(results.alone['1'])} |" + " |" * (len(loads) - 1)
        )
    return "\n".join(lines)


def _rate_and_latency(texts: int) -> _Cell:
    def cell(_: Results, finding: Finding) -> str:
        rates = [texts * each for each in finding.values("per_second")]
        shown = f"{_spread(rates)}; {_number(middle(finding.values('p99')))} ms"
        failed = sum(each.failed for each in finding.rounds)
        refused = middle(finding.values("refused_per_second"))
        if refused > 0:
            shown += f"; {_number(refused)} refused/s"
        return shown if not failed else f"{shown}; **{failed} failed**"

    return cell


def _goodput(results: Results, finding: Finding) -> str:
    """Answers in time a second, and their share of the peak of the same round."""
    peaks = _peaks(results, finding.subject, finding.engine)
    shares = _ratios(finding.values("in_time_per_second"), peaks)
    shown = f"{_spread(finding.values('in_time_per_second'))}; {middle(shares):.2f}"
    failed = sum(each.failed for each in finding.rounds)
    return shown if not failed else f"{shown}; {failed} failed"


def _peaks(results: Results, who: str, engine: Engine) -> list[float]:
    """The most requests a second of any closed load with one text, by round."""
    found = [results.find(who, engine, Load(1, each)) for each in CALLERS]
    rates = [each.values("per_second") for each in found if each is not None]
    return [max(of_round) for of_round in zip(*rates, strict=False)]


def _goals(results: Results, *, all_of_them: bool = True) -> str:
    """What the issue asks of one run on these cores, as ratios within a round."""
    real, simulated = Engine.REAL, Engine.SIMULATED

    def values(who: str, engine: Engine, load: Load, name: str) -> list[float]:
        found = results.find(who, engine, load)
        return [] if found is None else found.values(name)

    def peak(who: str, engine: Engine) -> list[float]:
        return _peaks(results, who, engine)

    def ours(engine: Engine, load: Load, name: str, other: str) -> list[float]:
        return _ratios(values(HEADRACE, engine, load, name), values(other, engine, load, name))

    busy = Load(1, _BUSY)
    many = [
        [MANY * rate for rate in rates]
        for callers in CALLERS
        if (rates := values(HEADRACE, simulated, Load(MANY, callers), "per_second"))
    ]
    flood = values(HEADRACE, simulated, Load(times=TIMES[-1]), "in_time_per_second")
    rows: list[tuple[str, str, list[float]]] = [
        *(
            (
                f"one text a request, simulated accelerator, peak to {who}'s",
                goal,
                _ratios(peak(HEADRACE, simulated), peak(who, simulated)),
            )
            for who, goal in (
                (ENSEMBLE, "≥ 6"), (UNBATCHED, "≥ 6"), (SIXTY, "≥ 1.2"), (BARE, "≥ 0.30")
            )
        ),
        *(
            (
                f"p99 there, {CALLERS[-1]} callers, to {who}'s",
                "≤ 0.4",
                ours(simulated, Load(1, CALLERS[-1]), "p99", who),
            )
            for who in _ENSEMBLES
        ),
        (
            f"real engine, {_BUSY} callers, to the engine alone, one row a run",
            "≥ 0.90",
            _ratios(values(HEADRACE, real, busy, "per_second"), results.alone.get("1", [])),
        ),
        *(
            (f"p99 there, to {who}'s", "≤ 1.0", ours(real, busy, "p99", who)) for who in _ENSEMBLES
        ),
        ("2 callers, median, to FastAPI's", "≤ 1.05", ours(real, Load(1, 2), "p50", FASTAPI)),
        *(
            (f"real engine, {_BUSY} callers, to {who}", "≥ 3, or 1.2 where it pads nothing",
             ours(real, busy, "per_second", who))
            for who in _BATCHING
        ),
        (
            f"goodput at {TIMES[-1]:g} times the peak, to the peak, simulated accelerator",
            "≥ 0.95 in every round",
            _ratios(flood, peak(HEADRACE, simulated)),
        ),
        (
            f"{MANY} texts a request, texts/s, to one text a request",
            "≥ 4",
            _ratios([max(each) for each in zip(*many, strict=False)], peak(HEADRACE, simulated)),
        ),
    ]  # fmt: skip
    lines = ["| what | goal | found |", "|---|---|---|"]
    lines += [
        f"| {what} | {goal} | {_ratio(found)} |"
        for what, goal, found in rows
        if found or all_of_them
    ]
    return "\n".join(lines)


def _ratios(of: Sequence[float], to: Sequence[float]) -> list[float]:
    """Round by round; NaN where there is nothing to divide by."""
    return [a / b if b > 0 else math.nan for a, b in zip(of, to, strict=False)]


def _ratio(values: list[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "not run"
    return f"{middle(known):.2f} ({min(known):.2f} to {max(known):.2f})"


def _spread(values: list[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "none"
    if len(known) == 1:
        return _number(known[0])
    return f"{_number(middle(known))} ({_number(min(known))} to {_number(max(known))})"


def _reason(reason: str) -> str:
    return f"not run: {_plain(reason)}"


def _plain(reason: str) -> str:
    """The end of it, as one cell."""
    return reason.replace("|", "/").replace("<", "&lt;")[-200:]


def _callers(count: int) -> str:
    return "1 caller" if count == 1 else f"{count} callers"


def _number(value: float) -> str:
    if math.isnan(value):
        return "none"
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"

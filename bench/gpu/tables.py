"""What runs on GPUs found, as the tables of ``docs/performance.md``: a column for each run. Pure.

What a run did not measure is left empty, and a run that was not made has no column.
"""

from collections.abc import Callable, Sequence
from statistics import median

from bench.gpu import caller, loads
from bench.gpu.found import ENSEMBLE, LARGE, Caller, Load, Run
from bench.peers.asking import MANY

_NOTHING = "-"
_BYTES = (loads.BASE64, loads.BINARY, loads.GRPC)
_MOST = 8

Cell = Callable[[Run], str]


def tables(runs: Sequence[Run]) -> dict[str, str]:
    """Marker's name -> table."""
    made = {
        "gpu-device": _devices(runs),
        "gpu-goals": _goals(runs),
        "gpu-callers": _callers(runs),
        "gpu-loads": _loads(runs),
        "gpu-alone": _alone(runs),
    }
    cpus = [f"**{run.label}: on the CPU, not on a GPU.**" for run in runs if run.gpu is None]
    return {name: "\n\n".join([*cpus, text]) for name, text in made.items()}


def _devices(runs: Sequence[Run]) -> str:
    def gpu(run: Run) -> str:
        if run.gpu is None:
            return "none"
        return "{name}, {memory}, driver {driver}, CUDA {cuda}".format(**run.gpu)

    def cores(run: Run) -> str:
        return f"{run.machine.get('processor')}, {len(run.machine.get('cores', []))} cores"

    def missing(run: Run) -> str:
        return "; ".join(f"{part.step}: {part.failed}" for part in run.parts if part.failed) or "-"

    rows: list[tuple[str, Cell]] = [
        ("GPU", gpu),
        ("processor", cores),
        ("commit", lambda run: run.commit),
        ("Python", lambda run: str(run.machine.get("python", _NOTHING))),
        ("gateways", lambda run: str(run.machine.get("gateways", _NOTHING))),
        ("what ended early", missing),
    ]
    return _table(["what"], runs, [([name], cell) for name, cell in rows])


def _goals(runs: Sequence[Run]) -> str:
    """The goals, and what each run reached."""
    rows: list[tuple[list[str], Cell]] = [
        (
            ["one caller, 16 tokens, HTTP: p50 / p99", "< 1.0 / 1.5 ms"],
            lambda run: _times(run, caller.HTTP, 16),
        ),
        (
            ["one caller, 128 tokens, HTTP: p50 / p99", "< 1.2 / 1.8 ms"],
            lambda run: _times(run, caller.HTTP, 128),
        ),
        (
            ["16 ids straight to Triton: p50 / p99", "p50 < 0.55 ms"],
            lambda run: _times(run, caller.ENGINE, 16),
        ),
        (["1 gateway, one text a request", "7,000 texts/s"], lambda run: _rate(run, 1, 1)),
        (["8 gateways, one text a request", "45,000 texts/s"], lambda run: _rate(run, _MOST, 1)),
        (
            ["8 gateways, 16 texts a request, JSON", "65,000 texts/s"],
            lambda run: _rate(run, _MOST, MANY),
        ),
        (
            ["8 gateways, 16 texts a request, vectors as bytes", "120,000 texts/s"],
            lambda run: _best(run, _MOST),
        ),
        (["the same to the ensemble's, on the same cores", "10 times"], _to_ensemble),
        (["8 gateways to 8 times one, one text a request", "0.85"], _growth),
        (
            ["BERT-base's size, 8 gateways, 16 texts: GPU busy with texts, no padding", "90 %"],
            _useful,
        ),
        (["answers to the fp32 original's: mean / least cosine", "0.99999"], _cosine),
    ]
    return _table(["what", "goal"], runs, rows)


def _callers(runs: Sequence[Run]) -> str:
    """One caller by every way."""
    keys = dict.fromkeys(
        (each.engine, each.way, each.tokens) for run in runs for each in run.callers
    )

    def cell(key: tuple[str, str, int]) -> Cell:
        return lambda run: _of_callers(
            [each for each in run.callers if (each.engine, each.way, each.tokens) == key]
        )

    rows = [
        ([engine, way, str(tokens)], cell((engine, way, tokens))) for engine, way, tokens in keys
    ]
    return _table(["engine", "way", "tokens"], runs, rows)


def _loads(runs: Sequence[Run]) -> str:
    """Texts a second of gateways and ensemble."""
    every = {each.key: each for run in runs for each in run.loads}
    order = sorted(every, key=lambda key: (key[0], key[2], key[3], key[1]))

    def cell(key: tuple[str, int, int, str]) -> Cell:
        return lambda run: _shown([each for each in run.loads if each.key == key])

    rows = [([key[0], str(key[1]), str(key[2]), key[3]], cell(key)) for key in order]
    return _table(["engine", "gateways", "texts a request", "form"], runs, rows)


def _alone(runs: Sequence[Run]) -> str:
    """The engine by itself: its shortest run, and the one of most texts a second."""
    keys = dict.fromkeys((each.engine, each.mode) for run in runs for each in run.alone)

    def cell(key: tuple[str, str]) -> Cell:
        def shown(run: Run) -> str:
            found = [each for each in run.alone if (each.engine, each.mode) == key]
            if not found:
                return _NOTHING
            lone = min(found, key=lambda each: each.tokens)
            best = max(found, key=lambda each: each.rows_per_second)
            return (
                f"{lone.milliseconds:,.2f} ms; {best.rows_per_second:,.0f} texts/s of "
                f"{best.rows:,} rows, {best.tokens_per_second / 1e6:,.2f} million tokens/s"
            )

        return shown

    rows = [([*key], cell(key)) for key in sorted(keys)]
    return _table(["engine", "mode"], runs, rows)


def _times(run: Run, way: str, tokens: int) -> str:
    engine = run.engine
    return _of_callers(
        [
            each
            for each in run.callers
            if (each.engine, each.way, each.tokens) == (engine, way, tokens)
        ]
    )


def _of_callers(found: Sequence[Caller]) -> str:
    if not found:
        return _NOTHING
    p50, p99 = (median(getattr(each, name) for each in found) for name in ("p50", "p99"))
    return f"{p50:.2f} / {p99:.2f} ms"


def _find(run: Run, engine: str, gateways: int, texts: int, *forms: str) -> Load | None:
    """The load of a run that has these; of several forms the one with most texts a second."""
    found = [
        each
        for each in run.loads
        if (each.engine, each.gateways, each.texts) == (engine, gateways, texts)
        and (not forms or each.form in forms)
    ]
    return max(found, key=lambda each: each.texts_per_second, default=None)


def _rate(run: Run, gateways: int, texts: int) -> str:
    found = _find(run, run.engine, gateways, texts, loads.JSON)
    return _NOTHING if found is None else _shown([found])


def _best(run: Run, gateways: int) -> str:
    found = _find(run, run.engine, gateways, MANY, *_BYTES)
    return _NOTHING if found is None else f"{_shown([found])} ({found.form})"


def _to_ensemble(run: Run) -> str:
    ours = _find(run, run.engine, _MOST, MANY)
    its = _find(run, ENSEMBLE, _MOST, MANY)
    if ours is None or its is None:
        return _NOTHING
    return f"{ours.texts_per_second / its.texts_per_second:.1f} times ({ours.form})"


def _growth(run: Run) -> str:
    one, most = (_find(run, run.engine, count, 1, loads.JSON) for count in (1, _MOST))
    if one is None or most is None:
        return _NOTHING
    return f"{most.texts_per_second / one.texts_per_second / _MOST:.2f}"


def _useful(run: Run) -> str:
    found = _find(run, LARGE, _MOST, MANY)
    shares = [each.useful for each in found.rounds if each.useful is not None] if found else []
    return f"{100 * median(shares):.0f} %" if shares else _NOTHING


def _cosine(run: Run) -> str:
    for each in run.likeness:
        if each.engine == run.engine:
            return f"{each.mean_cosine:.6f} / {each.least_cosine:.6f}"
    return _NOTHING


def _shown(found: Sequence[Load]) -> str:
    """Texts a second with their spread, and what failed."""
    if not found:
        return _NOTHING
    rounds = found[0].rounds
    values = sorted(each.texts_per_second for each in rounds)
    shown = f"{found[0].texts_per_second:,.0f} texts/s"
    if len(values) > 1:
        shown += f" ({values[0]:,.0f} to {values[-1]:,.0f})"
    failed = sum(each.failed for each in rounds)
    return shown if not failed else f"{shown}; **{failed} failed**"


def _table(
    head: Sequence[str], runs: Sequence[Run], rows: Sequence[tuple[Sequence[str], Cell]]
) -> str:
    """Rows with what names them first, then a cell of each run; goals stay last."""
    names, last = ([*head], []) if head[-1] != "goal" else ([*head[:-1]], [head[-1]])
    titles = [*names, *(run.label for run in runs), *last]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for told, cell in rows:
        begin, end = told[: len(names)], told[len(names) :]
        lines.append("| " + " | ".join([*begin, *(cell(run) for run in runs), *end]) + " |")
    return "\n".join(lines)

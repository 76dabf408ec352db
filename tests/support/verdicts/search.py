"""``python -P -m verdicts.search``: looks for traffic in which the judge errs.

A composition is a few of the things that services do (``INGREDIENTS``), drawn at random, around
identical versions or a harmful one. Half of them are new, the others change one thing in one of the
worst so far. Each is simulated a few times, and again, by other seeds, if a rollout went wrong: an
identical version was rolled back, or a harmful one was promoted. The worst are told by the second
draws only, which chance did not choose.

Every composition is appended to a file, from which the next run goes on: what is drawn follows from
the seed and from that file, and the time only says how much of it is.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from verdicts import late_labels, whole
from verdicts.findings import Finding, interval, share, table
from verdicts.shared_engine import Engine
from verdicts.traffic import Harm
from verdicts.worlds import Stream, Traffic, World

FOUND = Path(__file__).with_name("found_worlds.json")  # the worst, simulated at each release
KEPT = 20
FIRST, AGAIN = 8, 24  # rollouts
_Windows = tuple[int, int]  # after which a rollout expires, and of the bake
_SHORT: _Windows = (480, 90)  # of the first draws, besides what their steps take at least
_WHOLE: _Windows = (1440, whole.BAKE_WINDOWS)
_MOST_INGREDIENTS = 5
_HARMFUL = 0.3  # of the compositions

Rng = np.random.Generator
_USUAL = World("", (Stream(1000.0),))


@dataclass(frozen=True)
class Composition:
    """Traffic, and what the candidate does in it.

    Attributes:
        ingredients: names, in the order in which they were added.
        world: of which the name is theirs; None: only labels are told.
        harm: what the candidate does; a cold start is none. None: it is as stable.
        labels: of which ``quality`` is judged by itself; None: no labels come.
    """

    ingredients: tuple[str, ...] = ()
    world: World | None = _USUAL
    harm: Harm | None = None
    labels: late_labels.World | None = None

    @property
    def is_harmful(self) -> bool:
        """Whether the version should go back."""
        if self.labels is not None:
            return self.labels.candidate_wrong is not None
        return self.harm is not None and np.isinf(self.harm.fades)

    def to_json(self) -> dict[str, Any]:
        """As ``of_json`` reads it: what is as usual is left out."""
        return {
            "ingredients": list(self.ingredients),
            **{
                name: _told(part)
                for name in ("world", "harm", "labels")
                if (part := getattr(self, name)) is not None
            },
        }

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Self:
        """What ``to_json`` told."""
        world = None
        if "world" in data:
            streams = tuple(Stream(**stream) for stream in data["world"]["streams"])
            engine = Engine(**data["world"]["engine"]) if "engine" in data["world"] else None
            world = World(**data["world"] | {"streams": streams, "engine": engine})
        labels = late_labels.World(**data["labels"]) if "labels" in data else None
        harm = Harm(**data["harm"]) if "harm" in data else None
        return cls(tuple(data["ingredients"]), world, harm, labels)


def _told(part: Any) -> dict[str, Any]:
    usual = {field.name: field.default for field in fields(part)}
    told = {name: value for name, value in asdict(part).items() if value != usual[name]}
    if isinstance(part, World):
        told["streams"] = [_told(stream) for stream in part.streams]
    return told


@dataclass(frozen=True)
class Tried:
    """How the rollouts of a composition ended.

    Attributes:
        composition: what was simulated.
        first: how many of ``FIRST`` went wrong.
        wrong: how many of ``of`` did, by other seeds.
        of: 0 if nothing went wrong at first.
        causes: checks that rolled identical versions back, with how often.
        expired: how many of all had not been promoted in the end.
    """

    composition: Composition
    first: int
    wrong: int
    of: int
    causes: dict[str, int]
    expired: int

    @property
    def least(self) -> float:
        """The lower end of the interval of the share that goes wrong."""
        return interval(self.wrong, self.of)[0] if self.of else 0.0

    def to_json(self) -> dict[str, Any]:
        """As ``of_json`` reads it."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return parts | {"composition": self.composition.to_json()}

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Self:
        """What ``to_json`` told."""
        return cls(**data | {"composition": Composition.of_json(data["composition"])})


def _any_of(rng: Rng, *values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _between(rng: Rng, low: float, high: float) -> float:
    """Log-uniform, to two digits."""
    return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.2g}")


def _more(world: World, stream: Stream) -> World:
    return replace(world, streams=(*world.streams, stream))


def _of_one(world: World, rng: Rng, change: Callable[[Stream], Stream]) -> World:
    """With one of its streams changed."""
    at = int(rng.integers(len(world.streams)))
    streams = list(world.streams)
    streams[at] = change(streams[at])
    return replace(world, streams=tuple(streams))


def _tenant(rng: Rng) -> Stream:
    """One caller, or a few, that send much."""
    callers = _any_of(rng, 1, 1, 3)
    positive = _between(rng, 0.1, 0.95)
    return Stream(_between(rng, 50, 800), callers, cap=80, positive=positive)


def _others(rng: Rng) -> Stream:
    """A part of the traffic that is unlike the rest."""
    return Stream(
        _between(rng, 50, 500),
        _any_of(rng, 0, 20, 100),
        positive=_between(rng, 0.1, 0.9),
        errors=_between(rng, 0.001, 0.1),
        copied=_between(rng, 0.1, 1.0),
        lasting=_any_of(rng, 0.0, 1.0),
    )


def _sessions(stream: Stream, rng: Rng) -> Stream:
    lives, each = _between(rng, 1, 60), _between(rng, 1, 30)
    callers = max(1, round(stream.requests / each))
    one_label = _any_of(rng, True, False)
    return replace(stream, callers=callers, tail=0.0, lives=lives, one_label=one_label)


def _batches(stream: Stream, rng: Rng) -> Stream:
    texts = _any_of(rng, 4, 16)
    requests = max(10.0, stream.requests / texts)
    return replace(stream, requests=requests, texts=texts, alike=_between(rng, 0.1, 0.6))


def _cached(rng: Rng) -> Stream:
    return Stream(
        _between(rng, 100, 1000),
        0,
        positive=_between(rng, 0.1, 0.9),
        kept=_between(rng, 30, 600),
        different=_between(rng, 1000, 50_000),
    )


def _unnamed(stream: Stream) -> Stream:
    return replace(stream, callers=0, lives=0.0, one_label=False, slow_callers=0.0, rotates=0.0)


def _named(world: World, rng: Rng, **habits: Any) -> World:
    """With these habits of a stream whose callers have names."""

    def changed(stream: Stream) -> Stream:
        return replace(stream, **habits) if stream.callers else stream

    return _of_one(world, rng, changed)


INGREDIENTS: dict[str, Callable[[World, Rng], World]] = {
    "a tenant": lambda world, rng: _more(world, _tenant(rng)),
    "other traffic, selected otherwise for shadow": lambda world, rng: _more(world, _others(rng)),
    "a job begins": lambda world, rng: _more(world, replace(_tenant(rng), begins_late=True)),
    "a deploy": lambda world, rng: _more(
        world, replace(_tenant(rng), begins_late=True, before=_between(rng, 0.1, 0.9))
    ),
    "poison begins": lambda world, rng: _more(
        world, replace(_tenant(rng), begins_late=True, errors=_between(rng, 0.05, 0.5))
    ),
    "a tenant becomes slow": lambda world, rng: _more(world, replace(_tenant(rng), slows=True)),
    "sessions": lambda world, rng: _of_one(world, rng, lambda of: _sessions(of, rng)),
    "batches of texts": lambda world, rng: _of_one(world, rng, lambda of: _batches(of, rng)),
    "a cache": lambda world, rng: _more(world, _cached(rng)),
    "retries": lambda world, rng: _of_one(
        world,
        rng,
        lambda of: replace(of, tries=_any_of(rng, 2, 4), errors=_between(rng, 0.002, 0.03)),
    ),
    "nobody named": lambda world, rng: _of_one(world, rng, _unnamed),
    "few callers": lambda world, rng: _named(world, rng, callers=_any_of(rng, 3, 10, 30)),
    "few requests": lambda world, rng: replace(
        world, streams=tuple(replace(of, requests=of.requests / 5) for of in world.streams)
    ),
    "slow callers": lambda world, rng: _named(world, rng, slow_callers=_between(rng, 0.02, 0.4)),
    "callers' times scatter": lambda world, rng: _named(
        world, rng, own_times=_between(rng, 0.1, 0.4)
    ),
    "names change": lambda world, rng: _named(world, rng, rotates=_between(rng, 0.1, 1.0)),
    "a rhythm of the day": lambda world, rng: replace(world, daily=_between(rng, 0.2, 0.7)),
    "a ramp": lambda world, rng: replace(world, ramp=_between(rng, 0.3, 2.0)),
    "the arm's load": lambda world, rng: replace(world, load=_between(rng, 0.05, 0.5)),
    "a neighbour": lambda world, rng: replace(world, neighbour=_between(rng, 0.05, 0.3)),
    "the queues of an engine": lambda world, rng: replace(
        world, engine=Engine(_any_of(rng, 1000.0, 3000.0, 8000.0), _any_of(rng, 500.0, 2000.0))
    ),
    "stalls": lambda world, rng: replace(world, stalls=_between(rng, 0.0003, 0.004)),
    "long steps": lambda world, _: replace(world, shortest=180),
}
BATCHES = "batches of texts"  # no fault is drawn of these
COLD, HARM, DELAYS = "a cold start", "a fault", "labels that come late"


def compose(rng: Rng, parent: Composition | None = None) -> Composition:
    """A new composition, or one that differs in one ingredient from its parent."""
    kind = rng.random()
    if parent is not None and parent.labels is not None:
        return _labelled(rng, parent.labels)
    if parent is None and kind < 0.08:
        return _labelled(rng)
    found = parent or _versions(rng)
    if parent is not None and kind < 0.3:  # with other numbers of all
        harm = found.harm
        found = Composition((), harm=harm)
        names: Sequence[str] = [name for name in parent.ingredients if name in INGREDIENTS]
        if len(names) > 1:
            names = np.delete(names, int(rng.integers(len(names)))).tolist()
    else:
        room = _MOST_INGREDIENTS - len(found.ingredients)
        count = 1 if parent is not None else int(rng.integers(1, 5))
        names = [_any_of(rng, *INGREDIENTS) for _ in range(min(count, max(room, 1)))]
    for name in names:
        if found.world is not None and (found.harm is None or name != BATCHES):
            world = INGREDIENTS[name](found.world, rng)
            found = replace(found, world=world, ingredients=(*found.ingredients, name))
    named = replace(found.world, name=", ".join(found.ingredients)) if found.world else None
    return replace(found, world=named)


def _versions(rng: Rng) -> Composition:
    kind = rng.random()
    if kind < _HARMFUL:
        return Composition(harm=_fault(rng))
    if kind > 0.9:
        slower, fades = _between(rng, 1.2, 3.0), _between(rng, 20, 90)
        return Composition(harm=Harm(COLD, slower=slower, in_shadow=False, fades=fades))
    return Composition()


def _fault(rng: Rng) -> Harm:
    """One well beyond the lines."""
    in_shadow = _any_of(rng, True, False)
    kind = _any_of(rng, "fails", "flips", "slower")
    if kind == "fails":
        return Harm(HARM, fails=_between(rng, 0.03, 0.2), in_shadow=in_shadow)
    if kind == "flips":
        return Harm(HARM, flips=_between(rng, 0.2, 0.6), in_shadow=in_shadow)
    return Harm(HARM, slower=_between(rng, 1.5, 3.0), in_shadow=in_shadow)


def _labelled(rng: Rng, parent: late_labels.World | None = None) -> Composition:
    """Labels with delays, of a step or of a step and the bake."""
    drawn = {
        "wrong_after": _between(rng, 10, 10_000),
        "right_after": _between(rng, 10, 10_000),
        "share": _any_of(rng, 0.05, 0.25, 0.5),
        "labels": _between(rng, 200, 7200),
        "wrong": _between(rng, 0.02, 0.4),
        "named": _any_of(rng, True, False),
        "strict": _any_of(rng, None, None, _between(rng, 0.3, 0.9)),
        "promoted_after": _any_of(rng, None, 1.0),
        "hours": _any_of(rng, 2.0, 4.0),
    }
    names = list(drawn)
    kept = {} if parent is None else asdict(parent)
    for name in names if parent is None else [_any_of(rng, *names)]:
        kept[name] = drawn[name]
    if kept["strict"] is not None:
        kept["named"] = True
    labels = late_labels.World(**kept | {"name": DELAYS})
    return Composition((DELAYS,), None, labels=labels)


def simulate(
    composition: Composition, rollouts: int, seed: Sequence[int], windows: _Windows = _WHOLE
) -> tuple[int, Counter[str], int]:
    """How many go wrong, by what, and how many expire."""
    if composition.labels is not None:
        of = composition.labels
        first = 1000 * seed[-1]
        ends = [late_labels.rolled_out(of, first + number) for number in range(rollouts)]
        failed = sum(end.failed for end in ends)
        wrong = rollouts - failed if composition.is_harmful else failed
        return wrong, Counter({"quality": failed}), 0
    world, rng = composition.world, np.random.default_rng(list(seed))
    assert world is not None
    ended = whole.walked(
        Traffic.of(world, rollouts, rng),
        rollouts,
        rng,
        composition.harm,
        shortest=world.shortest,
        longest=windows[0] + 3 * world.shortest,
        bake=windows[1],
    )
    causes = Counter(name for end in ended for name in end.causes)
    expired = sum(end.is_back and not end.causes for end in ended)
    if composition.is_harmful:
        return sum(end.is_promoted for end in ended), causes, expired
    return sum(bool(end.causes) for end in ended), causes, expired


Simulated = Callable[[Composition, int, Sequence[int], _Windows], tuple[int, Counter[str], int]]


def tried(
    composition: Composition, seed: int, number: int, simulated: Simulated = simulate
) -> Tried:
    """The first draws, and if one went wrong the second ones."""
    first, causes, expired = simulated(composition, FIRST, (seed, number, 0), _SHORT)
    if not first:
        return Tried(composition, 0, 0, 0, dict(causes), expired)
    seeds = (seed, number, 1)
    wrong, causes, more = simulated(composition, AGAIN, seeds, _WHOLE)
    return Tried(composition, first, wrong, AGAIN, dict(causes), expired + more)


def rank(all_tried: Sequence[Tried]) -> list[Tried]:
    """The worst of them, one of those with the same ingredients and fault only."""
    found: dict[tuple[Any, ...], Tried] = {}
    for each in sorted(all_tried, key=lambda each: (-each.least, -each.first)):
        of = each.composition
        if each.wrong or each.first:
            found.setdefault((frozenset(of.ingredients), of.is_harmful), each)
    return list(found.values())[:KEPT]


def go_on(seed: int, file: Path, simulated: Simulated = simulate) -> Iterator[Tried]:
    """Composition after composition, each appended to the file before it is told."""
    done = read(file)
    while True:
        number = len(done)
        rng = np.random.default_rng([seed, number])
        worst = rank(done)
        is_new = not worst or rng.random() < 0.5
        parent = None if is_new else worst[int(rng.integers(len(worst)))].composition
        found = tried(compose(rng, parent), seed, number, simulated)
        done.append(found)
        with file.open("a") as lines:
            lines.write(json.dumps(found.to_json()) + "\n")
        yield found


def read(file: Path) -> list[Tried]:
    """What was tried before; a line that was not written to its end is dropped."""
    if not file.exists():
        return []
    text = file.read_text()
    whole_lines = text[: text.rfind("\n") + 1]
    if whole_lines != text:
        file.write_text(whole_lines)
    return [Tried.of_json(json.loads(line)) for line in whole_lines.splitlines()]


def found_worlds() -> list[Composition]:
    """Those that are simulated at each release."""
    return [Composition.of_json(each) for each in json.loads(FOUND.read_text())]


def again(rollouts: int) -> list[Finding]:
    """How the found worlds end today."""
    found = []
    for number, composition in enumerate(found_worlds()):
        wrong, causes, expired = simulate(composition, rollouts, (36, number))
        what = f"{number + 1}: {describe(composition)}"
        of = np.arange(rollouts)
        found.append(share(what, "wrong", of < wrong, 0.05))
        found += [share(what, f"by {name}", of < count) for name, count in sorted(causes.items())]
        found.append(share(what, "expired", of < expired))
    return found


def describe(composition: Composition) -> str:
    """Its ingredients, and the version."""
    version = "identical versions"
    if composition.harm is not None:
        version = composition.harm.name
    return f"{', '.join(composition.ingredients)}; {version}"


def _row(each: Tried) -> list[Finding]:
    what, wrong = describe(each.composition), np.arange(max(each.of, 1)) < each.wrong
    causes = ", ".join(f"{name} {count}" for name, count in sorted(each.causes.items()))
    return [share(f"{what} ({causes})", "wrong", wrong)]


def main(words: Sequence[str] | None = None) -> int:
    """Searches for so long, and prints the worst of all that the file has."""
    parser = argparse.ArgumentParser(prog="python -P -m verdicts.search", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long it goes on")
    parser.add_argument("--file", type=Path, default=Path("build/worlds.jsonl"))
    parser.add_argument("--keep", action="store_true", help=f"writes the worst to {FOUND.name}")
    read_words = parser.parse_args(words)
    file: Path = read_words.file
    file.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + read_words.seconds
    for found in go_on(read_words.seed, file):
        if found.first:
            print(f"{found.wrong} of {found.of}: {describe(found.composition)}", flush=True)
        if time.monotonic() >= until:
            break
    done = read(file)
    worst = rank(done)
    print(f"\n{len(done)} compositions, {sum(bool(each.first) for each in done)} with an error\n")
    print(table([one for each in worst for one in _row(each)]))
    if read_words.keep:
        told = [each.composition.to_json() for each in worst]
        FOUND.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

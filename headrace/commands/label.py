"""``headrace label``: which pairs of answers to label, and what their labels show.

Headrace keeps no texts, so pairs are brought in a file: what two versions answered to the same
texts, all that were compared and not those that disagree alone. Nothing is sent anywhere. Pairs are
handed out in the order of their ranks (``measures.labelled_pairs``), and labels count in that order
up to the first pair that has none: whoever picked pairs to label could not move the verdict.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from headrace.commands.output import console, print_json
from headrace.errors import RefusedError
from measures.labelled_pairs import Labels, bounds, is_not_worse, rank

_Line = TypeVar("_Line")


class Pair(msgspec.Struct, frozen=True):
    """One text and both versions' answers to it. Of a request of several texts: one of them."""

    id: str
    stable: str
    candidate: str
    text: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What a person says of a pair: the right label, null where it can't be told."""

    id: str
    label: str | None


class Shown(msgspec.Struct, frozen=True):
    """What the labels show, of all pairs that were compared.

    Attributes:
        pairs: compared.
        disagree: of these.
        labels: that count.
        candidate_right: of these labels.
        stable_right: of these labels.
        lower: the candidate's accuracy less stable's is at least this, with 95 %.
        upper: and at most this.
        not_worse: whether it is shown that it is less than ``margin`` less accurate.
        margin: a difference of accuracy.
    """

    pairs: int
    disagree: int
    labels: int
    candidate_right: int
    stable_right: int
    lower: float
    upper: float
    not_worse: bool
    margin: float


def following(pairs: Path, answers: Path, *, count: int, as_json: bool) -> None:
    """Shows the next pairs to label, without telling which version said what.

    Raises:
        RefusedError: a file can't be read.
    """
    known = {answer.id for answer in _read(answers, Answer)}
    found = [pair for pair in ordered(_read(pairs, Pair)) if pair.id not in known][:count]
    if as_json:
        print_json(
            [
                {"id": one.id, "text": one.text, "answers": sorted((one.stable, one.candidate))}
                for one in found
            ]
        )
        return
    for one in found:
        said = " or ".join(sorted((one.stable, one.candidate)))
        console.print(f"{one.id}: {said}\n  {one.text}", markup=False, highlight=False)
    if not found:
        console.print("All pairs that disagree have a label.")


def verdict(pairs: Path, answers: Path, *, margin: float, as_json: bool) -> None:
    """Shows what the labels say so far; it may be asked at any time, as often as one likes.

    Raises:
        RefusedError: a file can't be read.
    """
    found = shown(_read(pairs, Pair), _read(answers, Answer), margin)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    console.print(
        f"{found.disagree} of {found.pairs} pairs disagree; of {found.labels} labels the candidate "
        f"is right at {found.candidate_right} and stable at {found.stable_right}.\n"
        f"The candidate's accuracy is {_points(found.lower)} to {_points(found.upper)} points "
        "against stable's, with 95 % at every look.",
        highlight=False,
    )
    points = f"{100 * margin:g} points"
    said = "It is shown" if found.not_worse else "It is not shown yet"
    console.print(f"{said} that it is not worse by {points}.", highlight=False)


def ordered(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs that disagree, in the order in which they are to be labelled."""
    different = (pair for pair in pairs if pair.stable != pair.candidate)
    return sorted(different, key=lambda pair: (rank("", pair.id, 0), pair.id))


def shown(pairs: Sequence[Pair], answers: Sequence[Answer], margin: float) -> Shown:
    """What the labels show; the last answer of a pair counts.

    Raises:
        RefusedError: two pairs have one id.
    """
    if len({pair.id for pair in pairs}) < len(pairs):
        raise RefusedError("Pairs need an id each: some have the same one.")
    told = {answer.id: answer.label for answer in answers}
    order = ordered(pairs)
    labelled = next((n for n, pair in enumerate(order) if pair.id not in told), len(order))
    counted = order[:labelled]
    candidate = sum(told[pair.id] == pair.candidate for pair in counted)
    stable = sum(told[pair.id] == pair.stable for pair in counted)
    labels = Labels(
        *(np.array(float(n)) for n in (candidate, stable, labelled - candidate - stable))
    )
    every, disagree = np.array(float(len(pairs))), np.array(float(len(order)))
    found = bounds(labels, every, disagree)
    return Shown(
        pairs=len(pairs),
        disagree=len(order),
        labels=labelled,
        candidate_right=candidate,
        stable_right=stable,
        lower=float(found.lower),
        upper=float(found.upper),
        not_worse=bool(is_not_worse(labels, every, disagree, margin)),
        margin=margin,
    )


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _read(path: Path, kind: type[_Line]) -> list[_Line]:
    """JSON lines; none of a file of answers that is not there yet."""
    if kind is Answer and not path.exists():
        return []
    decoder = msgspec.json.Decoder(kind)
    found = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise RefusedError(f"{path} can't be read: {error}.") from error
    for number, line in enumerate(lines, start=1):
        try:
            found += [decoder.decode(line)] if line.strip() else []
        except msgspec.DecodeError as error:
            raise RefusedError(f"{path}, line {number}: {error}.") from error
    return found

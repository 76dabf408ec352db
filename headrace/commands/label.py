"""``headrace label``: which pairs of answers to label, and what their labels show.

Pairs come in a file, all that were compared and not only those that disagree, and then nothing is
sent anywhere; or they were kept in a rollout's shadow (``label_rollout.py``). They are handed out
in an order of their ids (``contracts.pairs``), and labels count in that order up to the first pair
that has none: a person who picked pairs to label could not move the verdict.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self, TypeVar

import msgspec
import numpy as np
import typer

from contracts.pairs import place
from headrace.commands.output import console, print_json, strip_controls
from headrace.errors import RefusedError
from headrace.invocation import is_structured
from headrace.options import HOME, Home, Kafka, find_place, names
from headrace.program import App
from measures.labelled_pairs import Labels, bounds, is_not_worse

if TYPE_CHECKING:
    from headrace.commands.label_rollout import RolloutPairs

_Line = TypeVar("_Line")

app = App(
    help="Label pairs of answers that disagree, and see whether a version is less accurate.",
)

Pairs = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE",
        help="An endpoint, for the pairs of its rollout's shadow; or a file of JSON lines "
        '{"id", "stable", "candidate", "text"}, with all pairs compared.',
    ),
]
Answers = Annotated[
    Path,
    typer.Option(
        help='Of a file of pairs: JSON lines {"id", "label"}; label null: it can\'t be told.'
    ),
]
Topic = Annotated[
    str | None, typer.Option(help="Kafka's topic of kept pairs; by default headrace.pairs.")
]


class ComparedPair(msgspec.Struct, frozen=True):
    """One text and both versions' answers to it. Of a request of several texts: one of them."""

    id: str
    stable: str
    candidate: str
    text: str = ""


class PairLabel(msgspec.Struct, frozen=True):
    """What a person says of a pair: the right label, null if it can't be told."""

    id: str
    label: str | None


@dataclass(frozen=True)
class LabelFile:
    """Pairs that were compared, and what people said of them.

    Attributes:
        compared: texts.
        disagree: of these.
        pairs: that disagree, all or a uniform sample, in the order of labelling.
        answers: labels, in the order in which they came; the last one of a pair counts.
        gaps: gateways of whose pairs some are missing.
    """

    compared: int
    disagree: int
    pairs: Sequence[ComparedPair]
    answers: Sequence[PairLabel]
    gaps: int = 0

    @classmethod
    def of(cls, pairs: Sequence[ComparedPair], answers: Sequence[PairLabel]) -> Self:
        """Of all pairs that were compared.

        Raises:
            RefusedError: two pairs have one id.
        """
        if len({pair.id for pair in pairs}) < len(pairs):
            raise RefusedError("Pairs need an id each: some have the same one.")
        different = order_pairs(pair for pair in pairs if pair.stable != pair.candidate)
        return cls(len(pairs), len(different), different, answers)


class LabelFindings(msgspec.Struct, frozen=True):
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


def of_files(pairs: Path, answers: Path) -> LabelFile:
    """Of two files; that of labels need not be there yet.

    Raises:
        RefusedError: a file can't be read, or two pairs have one id.
    """
    return LabelFile.of(_read(pairs, ComparedPair), labels_in(answers) if answers.exists() else [])


def labels_in(file: Path) -> list[PairLabel]:
    """The labels of a file; raises ``RefusedError`` if it can't be read."""
    return _read(file, PairLabel)


@app.declare("next")
def following(
    pairs: Pairs,
    answers: Answers = Path("answers.jsonl"),
    count: Annotated[int, typer.Option(min=1, help="Number of pairs to show.")] = 10,
    home: Home = HOME,
    kafka: Kafka = None,
    topic: Topic = None,
) -> None:
    """Shows the next pairs to label, in an order that looks at no answer."""
    kept = _load_labels(pairs, answers, home, kafka, topic)
    known = {answer.id for answer in kept.answers}
    found = [pair for pair in kept.pairs if pair.id not in known][:count]
    if is_structured():
        print_json(
            [
                {"id": one.id, "text": one.text, "answers": sorted((one.stable, one.candidate))}
                for one in found
            ]
        )
        return
    for one in found:
        said = " or ".join(sorted((one.stable, one.candidate)))
        lines = [f"{one.id}: {said}", *(f"  {line}" for line in one.text.splitlines())]
        console.print("\n".join(map(strip_controls, lines)), markup=False, highlight=False)
    if not found:
        console.print("All pairs that disagree have a label.")


@app.declare()
def answer(
    endpoint: Annotated[
        str, typer.Argument(metavar="NAME", help="The endpoint.", autocompletion=names)
    ],
    pair: Annotated[str | None, typer.Argument(metavar="[ID]", help="The pair.")] = None,
    label: Annotated[
        str | None,
        typer.Argument(metavar="[LABEL]", help="The right label, one of all there are."),
    ] = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="The right label of this pair can't be told.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(help='JSON lines {"id", "label"} in place of one; null: it can\'t be told.'),
    ] = None,
    home: Home = HOME,
    kafka: Kafka = None,
    topic: Topic = None,
) -> None:
    """Tells what is right, of pairs of an endpoint's rollout; the last answer on a pair counts."""
    if (file is None) == (pair is None):
        raise typer.BadParameter("name a pair, or a file of answers", param_hint="[ID]")
    if file is not None:
        answers = labels_in(file)
    else:
        if pair is None or (label is None) != unknown:
            raise typer.BadParameter("give a label, or --unknown", param_hint="[LABEL]")
        answers = [PairLabel(pair, label)]
    _of_rollout(endpoint, home, kafka, topic).answer(answers)


@app.declare()
def verdict(
    pairs: Pairs,
    answers: Answers = Path("answers.jsonl"),
    margin: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="Of accuracy: 0.02 is 2 points.")
    ] = 0.02,
    home: Home = HOME,
    kafka: Kafka = None,
    topic: Topic = None,
) -> None:
    """Tells what the labels show so far; ask as often as you like."""
    found = judge_labels(_load_labels(pairs, answers, home, kafka, topic), margin)
    if is_structured():
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


def _load_labels(
    pairs: str, answers: Path, home: Path, kafka: str | None, topic: str | None
) -> LabelFile:
    """Of a file, if that is what was named: no endpoint's name has a dot or a slash."""
    if "." in pairs or "/" in pairs or Path(pairs).is_file():
        return of_files(Path(pairs), answers)
    return _of_rollout(pairs, home, kafka, topic).read()


def _of_rollout(name: str, home: Path, kafka: str | None, topic: str | None) -> "RolloutPairs":
    # It imports Kafka, which pairs of a file do not need, and this file.
    from headrace.commands import label_rollout  # noqa: PLC0415

    return label_rollout.open_pairs(find_place(home), kafka, topic, name)


def order_pairs(pairs: Iterable[ComparedPair]) -> list[ComparedPair]:
    """Pairs in the order in which they are to be labelled."""
    return sorted(pairs, key=lambda pair: place(pair.id))


def judge_labels(kept: LabelFile, margin: float) -> LabelFindings:
    """What the labels show.

    Raises:
        RefusedError: some pairs are missing, so that those that are left are no uniform sample.
    """
    if kept.gaps:
        raise RefusedError(
            "Some pairs of this rollout are gone: their time is over or Kafka lost them. What "
            "is left shows nothing for certain. The pairs of the next rollout will."
        )
    told = {answer.id: answer.label for answer in kept.answers}
    order = kept.pairs
    labelled = next((n for n, pair in enumerate(order) if pair.id not in told), len(order))
    counted = order[:labelled]
    candidate = sum(told[pair.id] == pair.candidate for pair in counted)
    stable = sum(told[pair.id] == pair.stable for pair in counted)
    labels = Labels(
        *(np.array(float(n)) for n in (candidate, stable, labelled - candidate - stable))
    )
    every, disagree = np.array(float(kept.compared)), np.array(float(kept.disagree))
    found = bounds(labels, every, disagree)
    return LabelFindings(
        pairs=kept.compared,
        disagree=kept.disagree,
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

"""Words of ``headrace label``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import HOME, Home, Json, Kafka, names, where
from headrace.cli.program import App

if TYPE_CHECKING:
    from headrace.commands.label import LabelFile
    from headrace.commands.label_rollout import RolloutPairs

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


@app.declare("next")
def following(
    pairs: Pairs,
    answers: Answers = Path("answers.jsonl"),
    count: Annotated[int, typer.Option(min=1, help="So many.")] = 10,
    home: Home = HOME,
    kafka: Kafka = None,
    topic: Topic = None,
    json: Json = False,
) -> None:
    """Shows the next pairs to label, in an order that looks at no answer."""
    from headrace.commands import label as command

    command.following(_kept(pairs, answers, home, kafka, topic), count=count, as_json=json)


@app.declare()
def answer(
    endpoint: Annotated[
        str, typer.Argument(metavar="NAME", help="The endpoint.", autocompletion=names)
    ],
    pair: Annotated[str | None, typer.Argument(metavar="[ID]", help="The pair.")] = None,
    label: Annotated[
        str | None,
        typer.Argument(metavar="[LABEL]", help="What is right, of all labels there are."),
    ] = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="What is right of this pair can't be told.")
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
    from headrace.commands import label as command

    if (file is None) == (pair is None):
        raise typer.BadParameter("name a pair, or a file of answers", param_hint="[ID]")
    if file is not None:
        answers = command.labels_in(file)
    else:
        if pair is None or (label is None) != unknown:
            raise typer.BadParameter("give a label, or --unknown", param_hint="[LABEL]")
        answers = [command.Answer(pair, label)]
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
    json: Json = False,
) -> None:
    """Tells what the labels show so far; ask as often as you like."""
    from headrace.commands import label as command

    command.verdict(_kept(pairs, answers, home, kafka, topic), margin=margin, as_json=json)


def _kept(
    pairs: str, answers: Path, home: Path, kafka: str | None, topic: str | None
) -> "LabelFile":
    """Of a file, if that is what was named: no endpoint's name has a dot or a slash."""
    from headrace.commands import label as command

    if "." in pairs or "/" in pairs or Path(pairs).is_file():
        return command.of_files(Path(pairs), answers)
    return _of_rollout(pairs, home, kafka, topic).kept()


def _of_rollout(name: str, home: Path, kafka: str | None, topic: str | None) -> "RolloutPairs":
    from headrace.commands import label_rollout

    return label_rollout.opened(where(home), kafka, topic, name)

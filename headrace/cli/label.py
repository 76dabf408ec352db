"""Words of ``headrace label``."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import Json

app = typer.Typer(
    no_args_is_help=True,
    help="Label pairs of answers that disagree, and see whether a version is less accurate.",
)

Pairs = Annotated[
    Path,
    typer.Argument(help='JSON lines {"id", "stable", "candidate", "text"}: all pairs compared.'),
]
Answers = Annotated[
    Path, typer.Option(help='JSON lines {"id", "label"}; label null: it can\'t be told.')
]


@app.command("next")
def following(
    pairs: Pairs,
    answers: Answers = Path("answers.jsonl"),
    count: Annotated[int, typer.Option(min=1, help="So many.")] = 10,
    json: Json = False,
) -> None:
    """Shows the next pairs to label, in an order that looks at no answer."""
    from headrace.commands import label as command

    command.following(pairs, answers, count=count, as_json=json)


@app.command()
def verdict(
    pairs: Pairs,
    answers: Answers = Path("answers.jsonl"),
    margin: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="Of accuracy: 0.02 is 2 points.")
    ] = 0.02,
    json: Json = False,
) -> None:
    """Tells what the labels show so far; ask as often as you like."""
    from headrace.commands import label as command

    command.verdict(pairs, answers, margin=margin, as_json=json)

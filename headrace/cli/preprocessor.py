"""Words of ``headrace preprocessor``."""

from pathlib import Path
from typing import Annotated

import typer

from contracts.backoff import Backoff
from headrace.cli.options import Json
from headrace.cli.program import App

app = App(help="Preprocessing and postprocessing of your own.")


@app.declare("test")
def try_out(
    code: Annotated[
        str,
        typer.Argument(help="Folder with headrace_preprocessor.py, or module:Class."),
    ],
    requests: Annotated[
        Path,
        typer.Argument(help="File of texts, as for replay, or of requests (.jsonl)."),
    ],
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Longest time of one call, of three tries.")
    ] = 0.5,
    megabytes: Annotated[int, typer.Option(min=256, help="Address space of the process.")] = 1024,
    closed_off: Annotated[
        bool,
        typer.Option(help="Refuse to run where the kernel can't close off files and network."),
    ] = True,
    json: Json = False,
) -> None:
    """Runs it on a file of requests, and shows results, observed values and times."""
    from headrace.commands import preprocessor as command
    from preprocess.model_code.process import CodeLimits

    limits = CodeLimits(
        call_seconds=seconds,
        memory_bytes=megabytes * 1_000_000,
        pauses=Backoff(0.25, 1.0),
        closed_off=closed_off,
    )
    command.try_out(code, requests, limits, as_json=json)

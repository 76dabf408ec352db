"""``python -P -m headrace``: the command line, where the script ``headrace`` is not on PATH."""

from headrace.cli import app

app(prog_name="headrace")

"""``python -P -m headrace``: the command line, if the script ``headrace`` is not on PATH."""

from headrace.entry import headrace

headrace()

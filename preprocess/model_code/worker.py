"""``python -I -m preprocess.model_code.worker FOLDER MEMORY_BYTES``: runs a version's code.

It closes itself off, imports ``headrace_preprocessor`` from the folder, makes its ``Preprocessor``,
and then does one task after another: tasks on standard input, what came of them on standard output.
Whatever the code prints goes to standard error. It ends when its input does.
"""

import os
import sys

from preprocess.model_code import sandbox


def main(arguments: list[str]) -> int:
    """The process; returns its exit status."""
    folder, memory_bytes = arguments
    source = os.fdopen(os.dup(0), "rb")
    target = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sandbox.limit(int(memory_bytes))
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH120, PTH100
    closed = sandbox.close_off([folder, own, sys.prefix, sys.base_prefix, *sys.path])
    # Only now: numpy may start threads, and a filter holds for threads that are started after it.
    from preprocess.model_code.serving import serve  # noqa: PLC0415

    sys.path.insert(0, folder)
    return serve(source, target, closed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Where the programs begin."""

from headrace import interrupt


def headrace() -> None:
    """The program ``headrace``."""
    interrupt.guard_start()
    from headrace.cli import app  # noqa: PLC0415 - Ctrl-C is guarded from before

    app(prog_name="headrace")


def kubectl() -> None:
    """``kubectl headrace``: of a cluster, the namespace of the context unless one is named."""
    interrupt.guard_start()
    from headrace.cli import app  # noqa: PLC0415
    from headrace.program import PLUGIN  # noqa: PLC0415

    app(prog_name=PLUGIN)

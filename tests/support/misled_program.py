"""``python -P misled_program.py FILE MODULE FLAGS``: a program whose time of day is wrong.

It is ahead by as many seconds as FILE holds; by none while there is no such file.
"""

import runpy
import sys
import time
from pathlib import Path


def main(file: str, module: str, *flags: str) -> None:
    ahead, right = Path(file), time.time

    def of_day() -> float:
        try:
            return right() + float(ahead.read_text())
        except FileNotFoundError:
            return right()

    time.time = of_day  # before anything of the program is imported
    sys.argv = [module, *flags]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

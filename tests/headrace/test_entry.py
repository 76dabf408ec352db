"""The programs' first moment: Ctrl-C while they import is one line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Stands in for a package that takes long to import: it says so, and waits for a signal. A swallowed
# exception there must not keep the program from ending.
SLOW = """
import signal, sys
print("imports", flush=True)
try:
    signal.pause()
except BaseException:
    pass
signal.pause()
"""

# As a terminal starts it, whoever runs this test.
BEGIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from headrace.entry import {program}
{program}()
"""


@pytest.mark.parametrize("program", ["headrace", "kubectl"])
def test_ctrl_c_while_it_imports_is_one_line(program: str, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(SLOW, encoding="utf-8")
    (tmp_path / "run.py").write_text(BEGIN.format(program=program), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "run.py")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={"PATH": os.defpath},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "imports\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "Stopped.\n")

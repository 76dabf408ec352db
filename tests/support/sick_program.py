"""What lies in the place of Triton's program: it puts a ``SickTriton`` before the real one.

It gives the real Triton another port, starts the proxy at the port that it was told, and becomes
the real Triton: the process that the stack knows, kills and waits for. It imports nothing of ours,
as it stands in the way of every start.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

_GRPC, _REPOSITORY = "--grpc-port=", "--model-repository="
_PROXY = Path(__file__).with_name("sick_triton.py")


def become(program: str, words: list[str]) -> None:
    """Starts the proxy, and becomes Triton; ``words`` are Triton's flags."""
    told = json.loads(Path(program).with_name("sick.json").read_text(encoding="utf-8"))
    flags, environment = list(words), dict(os.environ)
    repository = next(each for each in words if each.startswith(_REPOSITORY))
    mine = told["tritons"].get(Path(repository.removeprefix(_REPOSITORY)).parent.name)
    if mine is not None:
        place = next(at for at, each in enumerate(words) if each.startswith(_GRPC))
        listen = words[place].removeprefix(_GRPC)
        flags[place] = f"{_GRPC}{mine['port']}"
        without = {key: environment[key] for key in environment if key != "LD_LIBRARY_PATH"}
        subprocess.Popen(
            [sys.executable, "-P", str(_PROXY), f"--listen={listen}", f"--triton={mine['port']}",
             f"--state={mine['ward']}", f"--parent={os.getpid()}"],
            env=without,
        )  # fmt: skip
    os.execve(told["real"], [told["real"], *flags], environment)

"""Pages of the documents, walked on a running stack: their commands as they stand there.

They are run in the order of the page, in a folder that has the repository's ``examples``,
``dashboards`` and ``.venv``. Only ports differ: in place of those of ``make up`` stand the stack's
own. What goes on until Ctrl-C (a replay without an end, ``--watch``) goes on until the page has
been walked, and then gets one.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from own_ports import own_ports
from page_snippets import ROOT, Snippet, of, steps
from running_stack import RunningStack

from headrace.stack.settings import Ports

SECONDS = 300.0  # for one command, on a busy machine
STOP_SECONDS = 60.0
_ADDRESS = re.compile(r"\b127\.0\.0\.1:(\d+)")


@dataclass
class Page:
    """A page that is walked: what it says, where, and what goes on until its end."""

    snippets: list[Snippet]
    stack: RunningStack
    folder: Path
    waiting: ExitStack
    others: dict[int, int] = field(default_factory=dict)

    def walk(self) -> str:
        """Does all that the page says; returns what was printed."""
        return "".join(self.take(each) for each in self.snippets)

    def take(self, snippet: Snippet) -> str:
        """Does what one snippet says; returns what was printed by what has ended."""
        if snippet.language == "python":
            program = self.folder / "snippet.py"
            program.write_text(self.here(snippet.text), encoding="utf-8")
            return self.run(f"{sys.executable} -P {program}", snippet)
        printed = ""
        for text, shown in steps(snippet):
            for command in commands(text):
                if is_endless(command):
                    self.waiting.enter_context(self.going_on(command))
                else:
                    said = self.run(command, snippet)
                    assert shown in {"", said}, snippet
                    printed += said
        return printed

    def here(self, text: str) -> str:
        """A text of the page with the stack's ports."""
        return _ADDRESS.sub(lambda found: f"127.0.0.1:{self.port(int(found[1]))}", text)

    def port(self, said: int) -> int:
        """What stands in place of a port of the page; of one that is no part's, a free one."""
        usual = {number: name.replace("_", "-") for name, number in Ports().by_name().items()}
        if said in usual:
            return self.stack.ports[usual[said]]
        if said not in self.others:
            (self.others[said],) = own_ports(1)
        return self.others[said]

    def run(self, command: str, snippet: Snippet) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(command)],
            cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{snippet}: {command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def going_on(self, command: str) -> Iterator[None]:
        """With a command that goes on until Ctrl-C; it must have said something by then."""
        output = self.output(command)
        with output.open("wb") as out:
            # A shell without job control starts what runs in its background deaf to Ctrl-C, and
            # these tests may run there.
            process = subprocess.Popen(
                ["env", "--default-signal=INT", "bash", "-c", f"exec {self.here(command)}"],
                cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            yield
            assert process.poll() is None, f"{command} ended:\n{output.read_text()}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            try:
                ended = process.wait(STOP_SECONDS)
            finally:
                process.kill()
        assert ended in {0, 130}, f"{command}: {ended}\n{output.read_text()}"

    def output(self, command: str) -> Path:
        """The file with what a command that goes on has said so far."""
        return self.folder / ("watch.out" if "--watch" in command else "replay.out")

    def environment(self) -> dict[str, str]:
        programs = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HEADRACE_HOME": str(self.stack.home),
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }


def commands(text: str) -> list[str]:
    """The commands of a shell snippet one by one where one of them goes on; else the whole."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line for line in lines if line.strip()] if any(map(is_endless, lines)) else [text]


def is_endless(command: str) -> bool:
    """Whether a command goes on until Ctrl-C."""
    words = command.partition(" #")[0].split()
    return "--watch" in words or ("replay" in words and "--duration" not in words)


@contextlib.contextmanager
def walked(path: str, test: str, stack: RunningStack, folder: Path) -> Iterator[Page]:
    """A page of the repository with what it says that ``test`` runs, and a folder to walk it in."""
    for name in ("examples", "dashboards", ".venv"):
        source = Path(sys.executable).parent.parent if name == ".venv" else ROOT / name
        if not (folder / name).exists():
            (folder / name).symlink_to(source)
    with ExitStack() as waiting:
        found = [each for each in of(ROOT / path) if (each.kind, each.said) == ("run by", test)]
        assert found, path
        page = Page(found, stack, folder, waiting)
        for each in of(ROOT / path):
            if each.kind == "file:":
                (folder / each.said).write_text(page.here(each.text), encoding="utf-8")
        yield page

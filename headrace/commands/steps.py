"""Shows the steps of a start-up as they happen, each with its time.

On a terminal a last line says what is being waited for; in a log file only whole lines appear.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.markup import escape
from rich.status import Status

_NAME_WIDTH = 14
_MOST_OF_A_LOG = 100  # characters


class Steps:
    """Prints one line for each step that ends; use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._waiting: dict[str, tuple[float, str]] = {}
        self._status: Status | None = None

    @contextmanager
    def live(self) -> Iterator[None]:
        """Shows the waiting line for as long as the block runs, on a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status("starting", spinner="dots") as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None

    def clear(self) -> None:
        """Takes the waiting line away: the start-up is over."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    @contextmanager
    def step(self, name: str, done: str = "") -> Iterator[None]:
        """Times a step; prints its line unless the block raises."""
        self.begin(name)
        try:
            yield
        except BaseException:
            self._waiting.pop(name, None)
            raise
        self.end(name, done)

    def begin(self, name: str) -> None:
        """A step begins; it may run beside others."""
        self._waiting[name] = (time.monotonic(), "")
        self._refresh()

    def note(self, name: str, text: str) -> None:
        """Says what a step that runs is at."""
        if name in self._waiting and self._waiting[name][1] != text:
            began = self._waiting[name][0]
            self._waiting[name] = (began, text)
            self._refresh()
            if self._status is None:
                self._line("…", name, text)

    def end(self, name: str, text: str = "", seconds: float | None = None) -> None:
        """A step has succeeded."""
        began, _ = self._waiting.pop(name, (time.monotonic(), ""))
        took = time.monotonic() - began if seconds is None else seconds
        self._line("[green]✓[/]", name, f"{took:5.1f} s  {text}".rstrip())
        self._refresh()

    # The supervisor's Observer.

    def note_start(self, service: str) -> None:
        """A service is started for the first time."""
        self.begin(service)

    def note_wait(self, service: str, seconds: float, said: str) -> None:
        """A service lives and is not ready."""
        last = f"; its log ends: {said[:_MOST_OF_A_LOG]}" if said else ""
        self.note(service, f"not ready after {seconds:.0f} s{last}")

    def note_ready(self, service: str, seconds: float) -> None:
        """A service answers."""
        self.end(service, "ready", seconds)

    def note_death(self, service: str, how: str, retry_seconds: float) -> None:
        """A service ended by itself."""
        self._line("[yellow]![/]", service, f"ended ({how}); starts again in {retry_seconds:.1f} s")

    def note_stop(self, service: str, seconds: float) -> None:
        """A service has ended as asked."""
        self._line("[dim]·[/]", service, f"{seconds:5.1f} s  stopped")

    def _line(self, sign: str, name: str, text: str) -> None:
        line = f"{sign} {escape(name):<{_NAME_WIDTH}} {escape(text)}"
        # Nobody may be able to read it: a closed pipe, a file on a full disk. The stack goes on.
        with suppress(OSError):
            self._console.print(line, highlight=False, soft_wrap=True)

    def _refresh(self) -> None:
        if self._status is None:
            return
        parts = [f"{name} ({text})" if text else name for name, (_, text) in self._waiting.items()]
        self._status.update(escape("waiting for " + ", ".join(parts)) if parts else "")

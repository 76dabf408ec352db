"""What a start-up shows to whoever watches it; ``headrace.commands.steps`` is the real one."""

from contextlib import AbstractContextManager
from typing import Protocol

from headrace.stack.supervisor import Observer


class View(Observer, Protocol):
    """Steps that begin, say what they are at, and end."""

    def step(self, name: str, done: str = "") -> AbstractContextManager[None]:
        """Times the block as one step; it counts as done unless the block raises."""
        ...

    def note(self, name: str, text: str) -> None:
        """Says what a step that runs is at."""
        ...

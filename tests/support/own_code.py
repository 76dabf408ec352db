"""Hooks as users write them, for tests of the gateway and of what runs them."""

import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from preprocess.hooks import State
from preprocess.model_code.archive import MODULE, pack


class Shouting:
    """Leaves the first word alone and observes how many there were."""

    def preprocess(self, texts: Sequence[str], state: State) -> Sequence[str] | None:
        for text in texts:
            state.observe("words", len(text.split()))
            state.observe("kind", "long" if len(text) > 5 else "short")
        return [text.split()[0] for text in texts]


class Turning:
    """Gives each label the score of the other one, and observes what was left for it."""

    def preprocess(self, texts: Sequence[str], state: State) -> Sequence[str] | None:
        state.observe("before", 1)
        state.data["words"] = [len(text.split()) for text in texts]
        return None

    def postprocess(self, answers: list[Any], state: State) -> list[Any] | None:
        for words in state.data["words"]:
            state.observe("after", words)
        state.observe("version", state.version)
        negative, positive = state.labels
        return [{negative: answer[positive], positive: answer[negative]} for answer in answers]


def archive_of(source: str, **files: str) -> bytes:
    """The code of a version: ``headrace_preprocessor.py`` with this source, and other files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {f"{MODULE}.py": source, **files}.items():
            Path(folder, name).write_text(textwrap.dedent(content), encoding="utf-8")
        return pack(Path(folder))

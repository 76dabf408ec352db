"""Hooks as users write them, for tests of the gateway and of what runs them."""

from collections.abc import Sequence
from typing import Any

from preprocess.hooks import State


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

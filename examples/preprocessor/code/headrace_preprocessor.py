"""What a version of the support desk's classifier brings: it is run around the model.

``preprocess`` leaves out signatures, which say nothing of how a customer feels. ``postprocess``
calls a text negative that asks for money back, whatever the model says.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_ASKING = tuple((Path(__file__).parent / "asking_back.txt").read_text("utf-8").split("\n"))


class Preprocessor:
    """Made once in the process that runs it."""

    def preprocess(self, texts: Sequence[str], state: Any) -> list[str]:  # noqa: ANN401
        """The texts up to their signatures."""
        kept = [text.split("\n-- \n")[0].strip() for text in texts]
        for text, rest in zip(texts, kept, strict=True):
            state.observe("signed", "yes" if len(rest) < len(text) else "no")
        state.data["asking"] = [
            any(words and words in text.lower() for words in _ASKING) for text in kept
        ]
        return kept

    def postprocess(self, answers: list[Any], state: Any) -> list[Any]:  # noqa: ANN401
        """The model's scores, or certainty where somebody asks for money back."""
        for answer, asking in zip(answers, state.data["asking"], strict=True):
            if asking:
                answer.update(dict.fromkeys(answer, 0.0), negative=1.0)
        return answers

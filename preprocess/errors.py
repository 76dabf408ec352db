"""What can be wrong with a text, a tokeniser file or an engine's answer, each with a sentence.

The gateway turns ``EngineOutputError`` into 502 and what a caller can ask wrongly into 422; the
registry turns ``TokenizerFileError`` into the reason of a rejection.
"""


class PreprocessError(Exception):
    """The root of this package's errors."""


class InvalidTextError(PreprocessError):
    """A text that no tokeniser can read.

    Attributes:
        index: position of the text in its request, from 0.
        pair: whether it is the second text of its pair.
    """

    def __init__(self, index: int, reason: str, *, pair: bool = False) -> None:
        super().__init__(f"{'pair' if pair else 'text'} {index} {reason}")
        self.index = index
        self.pair = pair


class InvalidRowError(PreprocessError):
    """A row of a table that the model can't read.

    Attributes:
        index: position of the row in its request, from 0.
        feature: the column at fault; empty where it is the row.
    """

    def __init__(self, index: int, reason: str, *, feature: str = "") -> None:
        place = f"row {index}, {feature[:80]!r}" if feature else f"row {index}"
        super().__init__(f"{place}: {reason}")
        self.index = index
        self.feature = feature


class ParameterError(PreprocessError):
    """A parameter of a request that its task can't be done with, by its place in the request."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")


class UnknownPromptError(PreprocessError):
    """The model's files have no prompt of this name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        held = f"there are {', '.join(known)}" if known else "its files name none"
        super().__init__(f"the model has no prompt {name[:80]!r}: {held}")


class MissingRangesError(PreprocessError):
    """Vectors are asked for in a precision that the package has no ranges for."""


class TokenizerFileError(PreprocessError):
    """``tokenizer.json`` can't be read, or does not go with the package's limits."""


class EngineOutputError(PreprocessError):
    """The engine's answer has another shape than the package promises, or holds NaN or infinity."""

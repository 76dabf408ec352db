"""Makes text of tokens as they come, and finds where a text ends that its caller wants to end.

It never cuts a character that several tokens make up, and never shows a part of a stop text.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

_BROKEN = "\N{REPLACEMENT CHARACTER}"  # what is not a whole character yet
# Tokens before the new ones that are decoded with them: what is put between tokens depends on them.
_BEFORE = 6


class Detokeniser:
    """The text after one prompt.

    Args:
        tokenizer: of the model.
        stops: texts that end it, of which none is empty; what begins with one is cut off.
        prompt: the tokens before it, on which it depends whether it begins with a space.
    """

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str] = (), prompt: Sequence[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._tokens = list(prompt[-_BEFORE:])
        self._told = len(self._tokens)  # tokens whose text is in ``_held`` or was given
        self._held = ""  # text that may be the beginning of a stop
        self.stopped = False

    def add(self, tokens: Sequence[int]) -> str:
        """The text that can be shown now; nothing after a stop."""
        if self.stopped:
            return ""
        self._tokens += tokens
        return self._show(self._decode(), at_end=False)

    def end(self) -> str:
        """What is left to be shown, as no token comes any more."""
        if self.stopped:
            return ""
        return self._show(self._decode(at_end=True), at_end=True)

    def _decode(self, *, at_end: bool = False) -> str:
        """The text of tokens that were not told yet, once its last character is whole."""
        start = max(0, self._told - _BEFORE)
        before = self._text(self._tokens[start : self._told])
        both = self._text(self._tokens[start:])
        if not at_end and both.endswith(_BROKEN):
            return ""
        self._told = len(self._tokens)
        # A character that was broken off before is whole now, and so is not what it was.
        return both[len(before) :]

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def _show(self, text: str, *, at_end: bool) -> str:
        text = self._held + text
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)]
        keep = 0 if at_end else self._beginning(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _beginning(self, text: str) -> int:
        """Characters at the end of a text with which one of the stops may begin."""
        for count in range(min(len(text), max(map(len, self._stops), default=0)), 0, -1):
            if any(stop.startswith(text[-count:]) for stop in self._stops):
                return count
        return 0

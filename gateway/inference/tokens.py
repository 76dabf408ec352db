"""Tokens of texts and texts of tokens, by the tokeniser of the version that would answer.

Nothing is predicted and no event is made of it. Admission counts such a request and bounds its
texts like any other; the tokeniser always runs in the threads of ``Encoding``.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from contracts.endpoint import Arm
from contracts.model import ModelRef
from gateway.admission.controller import AdmissionController
from gateway.calls import Call
from gateway.errors import InvalidInputError, TooLargeError
from gateway.inference.encoding import Encoding
from gateway.inference.serving import ServedEndpoints
from gateway.packages import ServedModel
from gateway.routing.routes import RouteTarget
from preprocess.errors import InvalidTextError, UnknownPromptError
from preprocess.expressions import is_panic
from preprocess.tokeniser_process import messages
from preprocess.tokeniser_process.serving import GIVES_UP
from preprocess.tokens import Token, texts_of, tokens_of

T = TypeVar("T")

# An answer has an object for each token, a dozen times as long as the token's text.
MOST_CHARACTERS = 262_144


def check_ids(ids: Sequence[Sequence[int]]) -> int:
    """How many ids there are of all texts; raises ``TooLargeError``."""
    count = sum(map(len, ids))
    if count > MOST_CHARACTERS:
        raise TooLargeError(
            f"The request has {count} token ids; at most {MOST_CHARACTERS} are read at once."
        )
    return count


class Tokenisers:
    """The tokenisers of what is served."""

    def __init__(
        self, endpoints: ServedEndpoints, admission: AdmissionController, encoding: Encoding
    ) -> None:
        self._endpoints = endpoints
        self._admission = admission
        self._encoding = encoding

    async def tokens(self, call: Call, *, special: bool) -> tuple[ModelRef, Arm, list[list[Token]]]:
        """The tokens of a call's texts, and the version whose they are.

        Raises:
            TooLargeError: too many texts, or too many characters together.
            InvalidInputError: a text that the tokeniser can't read, or an unknown prompt.
            GatewayError: whatever admission and routing refuse.
        """
        target = self._admitted(call)
        characters = call.characters()
        if characters > MOST_CHARACTERS:
            raise TooLargeError(
                f"The texts have {characters} characters; at most {MOST_CHARACTERS} are tokenised "
                "at once."
            )
        model = target.model
        if model.opened is None:
            question = messages.ReadTokens(call.texts, call.prompt_name, special=special)
            said = await self._encoding.ask_process(model, question, characters, call.deadline)
            found = said.tokens if isinstance(said, messages.TokenLists) else []
            return model.ref, target.arm, found

        def work() -> list[list[Token]]:
            texts = model.encoder.prompted(call.texts, call.prompt_name)
            return tokens_of(model.tokenizer, texts, special=special)

        return model.ref, target.arm, await self._done(call, model, characters, work)

    async def texts(
        self, call: Call, ids: Sequence[Sequence[int]], *, skip_special: bool
    ) -> tuple[ModelRef, Arm, list[str]]:
        """The texts of token ids, which are 0 or more and have 32 bits; those of the call are none.

        Raises:
            TooLargeError: too many ids.
            InvalidInputError: an id that the vocabulary does not have.
            GatewayError: whatever admission and routing refuse.
        """
        target = self._admitted(call)
        count = check_ids(ids)
        model = target.model
        if model.opened is None:
            asked = messages.ReadTexts([list(each) for each in ids], skip_special=skip_special)
            said = await self._encoding.ask_process(model, asked, count, call.deadline)
            return model.ref, target.arm, said.texts if isinstance(said, messages.Texts) else []

        def work() -> list[str]:
            return texts_of(model.tokenizer, ids, skip_special=skip_special)

        return model.ref, target.arm, await self._done(call, model, count, work)

    def _admitted(self, call: Call) -> RouteTarget:
        routes = self._endpoints.serving.table[call.endpoint]
        self._admission.check_body(call, routes.endpoint.spec.limits)
        key = call.sticky_key or call.request_id
        return routes.target_and_fallback(key, call.forced_version, call.space)[0]

    async def _done(
        self, call: Call, model: ServedModel, characters: int, work: Callable[[], T]
    ) -> T:
        return await self._encoding.in_thread(
            model, characters, call.deadline, lambda: refusing(work)
        )


def refusing(work: Callable[[], T]) -> T:
    """What a tokeniser's work gives.

    Raises:
        InvalidInputError: it can't be done with these texts or ids.
    """
    try:
        return work()
    except (InvalidTextError, UnknownPromptError) as error:
        raise InvalidInputError(f"{error}.") from error
    except BaseException as panic:
        if not is_panic(panic):
            raise
        raise InvalidInputError(GIVES_UP) from None

"""Sends the prompts of one package, each alone, to its replicas, and follows the tokens.

Requests that run at the same time are batched in Triton, step by step
(``triton/generation_model``). Here it is only decided where a prompt goes: to the replica with most
free rows. A batcher knows the
replicas. What goes wrong before the first token is tried again on another replica; after it, a
caller may have seen a part of the text, and what went wrong is told.
"""

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic

from gateway.batching.batcher import Batcher
from gateway.engine.fleet import Flight, Replica
from gateway.engine.protocol import (
    EngineBusyError,
    EngineError,
    EngineMissingModelError,
    EngineTimeoutError,
    EngineUnavailableError,
    Prompt,
    TokenChunk,
    TokenStream,
)
from gateway.errors import (
    RETRY_AFTER_SECONDS,
    GatewayError,
    ModelFailedError,
    ModelUnavailableError,
    OverloadedError,
    no_triton,
    too_late,
)

log = logging.getLogger(__name__)

_MOST_TRIES = 3
# A model's process that was killed leaves its streams open, and nothing more comes.
SILENT_SECONDS = 10.0
# Triton's own deadline is behind ours, so that ours tells why.
_MORE_SECONDS = 5.0


@dataclass(slots=True)
class PromptFlight:
    """A prompt on its way: the replica that has it, and the stream of its tokens."""

    replica: Replica
    flight: Flight
    stream: TokenStream


class PromptFlow:
    """The tokens of one prompt.

    Args:
        batcher: of the package.
        prompt: what to send.
        deadline: of the whole text, by the loop's clock, seconds.
        expected: engine seconds that it may take.
        silent_seconds: the most between two tokens.
    """

    def __init__(
        self,
        batcher: Batcher,
        prompt: Prompt,
        deadline: float,
        *,
        expected: float,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._batcher = batcher
        self._prompt = prompt
        self._deadline = deadline
        self._expected = expected
        self._silent = silent_seconds
        self._sent: PromptFlight | None = None

    async def first(self, until: float) -> TokenChunk:
        """Sends the prompt and gives the first tokens.

        Args:
            until: by the loop's clock, seconds.

        Raises:
            GatewayError: no replica gave any in time.
        """
        for _ in range(_MOST_TRIES):
            sent = self._send()
            try:
                return await self._read(sent, until)
            except (EngineUnavailableError, EngineMissingModelError) as lost:
                self.close()
                self._batcher.stop_sending(sent.replica, lost)
            except EngineError as error:
                self.close()
                raise self._told(error) from error
            except BaseException:
                self.close()
                raise
        raise no_triton()

    async def next(self) -> TokenChunk:
        """The next tokens; not to be called after an ending.

        Raises:
            GatewayError: the text broke off.
        """
        sent = self._sent
        if sent is None:
            raise RuntimeError("the prompt was not sent")
        until = min(self._deadline, monotonic() + self._silent)
        try:
            return await self._read(sent, until)
        except (EngineUnavailableError, EngineMissingModelError) as lost:
            self.close()
            self._batcher.stop_sending(sent.replica, lost)
            raise ModelUnavailableError("Triton went away in the middle of the text.") from lost
        except EngineTimeoutError as slow:
            self.close()
            if monotonic() >= self._deadline:
                raise too_late() from slow
            self._batcher.suspend(sent.replica, slow)
            raise ModelUnavailableError(
                f"No token came for {self._silent:g} s in the middle of the text."
            ) from slow
        except EngineError as error:
            self.close()
            raise self._told(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the stream, wherever it is. A second time does nothing."""
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.stream.close()
            sent.replica.batch_ended(sent.flight, monotonic())

    def _send(self) -> PromptFlight:
        serving = [replica for replica in self._batcher.replicas if replica.serves]
        if not serving:
            raise no_triton()
        free = [replica for replica in serving if replica.idle or replica.spare()]
        if not free:
            raise OverloadedError(
                "As many texts are written as this model takes at once.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        now = monotonic()
        replica = max(free, key=lambda each: (each.idle, -each.tokens))
        tokens = len(self._prompt.ids) + self._prompt.most
        left = max(0.0, self._deadline - now) + _MORE_SECONDS
        stream = replica.engine.generate(self._prompt, left)
        self._sent = PromptFlight(replica, replica.batch_sent(now, self._expected, tokens), stream)
        share = self._batcher.share  # bulk requests spare callers of texts too
        share.note_asked(now)
        if share.measures(now):
            share.note_work(now, self._expected, replica.address)
        return self._sent

    async def _read(self, sent: PromptFlight, until: float) -> TokenChunk:
        try:
            async with asyncio.timeout_at(until):
                return await sent.stream.next()
        except TimeoutError as late:
            raise EngineTimeoutError(f"{sent.replica.address}: no token in time") from late

    def _told(self, error: EngineError) -> GatewayError:
        if isinstance(error, EngineTimeoutError):
            return too_late()
        if isinstance(error, EngineBusyError):
            return OverloadedError(
                "More prompts wait at Triton than it takes.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        fields = {"model": self._prompt.model, "texts": 1, "reason": str(error)}
        log.warning("model failed", extra=fields)
        return ModelFailedError(f"The model failed on this prompt: {error}")

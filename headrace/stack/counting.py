"""Asks the running stack whether its traffic is counted, in words that people can act on.

The evaluate role compares what gateways published with what is in windows. That its process lives
says nothing, so that no answer of it is told as such.
"""

from typing import Any

import httpx
import msgspec

SECONDS = 2.0


class Told(msgspec.Struct, frozen=True):
    """What is known of the traffic.

    Attributes:
        state: of ``measures.counting.CountingState``; ``unknown`` where nobody answers.
        said: a sentence.
        since: unix seconds from when on it is so; 0 where that is not known.
        messages: of the event log that are in no window yet.
    """

    state: str
    said: str
    since: float = 0.0
    messages: int = 0

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return msgspec.structs.asdict(self)


def ask(stats_url: str) -> Told:
    """Asks the evaluate role, with a deadline; never raises."""
    try:
        answer = httpx.get(f"{stats_url}/counting.json", timeout=SECONDS, trust_env=False)
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=Told)
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        reason = str(error) or type(error).__name__
        said = f"the evaluate role does not say whether traffic is counted: {reason}"
        return Told("unknown", said)

"""Asks the running stack how it is: that its processes live says nothing.

Each part is asked at the page that its own probes use, all at once and with a deadline, so that one
that hangs holds nobody up. Whether the traffic is counted is the evaluate role's to say, which
compares what gateways published with what is in windows.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import httpx

SECONDS = 1.5
_COUNTING_SECONDS = 2.0
_MOST = 200  # characters of a reason


def ask(pages: Mapping[str, str], seconds: float = SECONDS) -> dict[str, str]:
    """What is wrong with each part, in a few words; empty if it says that it is well."""
    if not pages:
        return {}
    import httpx  # noqa: PLC0415 - an eighth of a second, for those who ask a stack that runs

    # One client for all: each would load the system's certificates again, at 30 ms of processor.
    with (
        httpx.Client(timeout=seconds, trust_env=False) as client,
        ThreadPoolExecutor(len(pages), thread_name_prefix="health") as threads,
    ):
        answers = threads.map(lambda url: _ask(client, url, seconds), pages.values())
        return dict(zip(pages, answers, strict=True))


def _ask(client: "httpx.Client", url: str, seconds: float) -> str:
    import httpx  # noqa: PLC0415

    try:
        answer = client.get(url)
    except httpx.TimeoutException:
        return f"does not answer within {seconds:g} s"
    except httpx.HTTPError as error:
        return f"does not answer: {error or type(error).__name__}"
    return of_page(answer.status_code, answer.text)


def of_page(status: int, text: str) -> str:
    """What a part's page says is wrong; empty if it says that all is well."""
    reason = _reason(text.strip())[:_MOST]
    if 200 <= status < 300:
        # Of a page that is no gateway's, the text says nothing but that all is well.
        return f"answers, but: {reason}" if _is_noted(text) else ""
    return f"is not ready: {reason}" if reason else f"is not ready: it answers {status}"


def _reason(text: str) -> str:
    notes = _notes(text)
    return text if notes is None else "; ".join(map(str, notes))


def _is_noted(text: str) -> bool:
    return bool(_notes(text))


def _notes(text: str) -> list[Any] | None:
    """What a gateway says of itself; nothing of a page that is no gateway's."""
    try:
        page = json.loads(text)
    except ValueError:
        return None
    notes = page.get("notes", []) if isinstance(page, dict) else []
    return notes if isinstance(notes, list) else []


class CountingHealth(msgspec.Struct, frozen=True):
    """Whether the traffic is counted.

    Attributes:
        state: of ``measures.counting.CountingState``; ``unknown`` if nobody answers.
        said: a sentence.
        since: unix seconds from when on it is so; 0 if that is not known.
        messages: of the event log that are in no window yet.
        missing_messages: that gateways numbered and are not in the log, since the exporter began.
        lost_events: that gateways lost before they were sent, as they say.
        silent_gateways: that fell silent in the last hour and did not say that they end.
        lost: these three as a sentence; empty if nothing was lost.
    """

    state: str
    said: str
    since: float = 0.0
    messages: int = 0
    missing_messages: int = 0
    lost_events: int = 0
    silent_gateways: int = 0
    lost: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return msgspec.structs.asdict(self)


def ask_counting(stats_url: str, seconds: float = _COUNTING_SECONDS) -> CountingHealth:
    """Asks the evaluate role, with a deadline; never raises."""
    import httpx  # noqa: PLC0415

    try:
        answer = httpx.get(f"{stats_url}/counting.json", timeout=seconds, trust_env=False)
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=CountingHealth)
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        reason = str(error) or type(error).__name__
        sentence = f"the evaluate role does not say whether traffic is counted: {reason}"
        return CountingHealth("unknown", sentence)

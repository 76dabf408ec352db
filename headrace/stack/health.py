"""Asks each part of the running stack how it is: that its process lives says nothing.

Each is asked at the page that its own probes use, all at once and with a deadline, so that one that
hangs holds nobody up.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx

SECONDS = 1.5
_MOST = 200  # characters of a reason


def ask(pages: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with each part, in a few words; empty where it says that it is well.

    Args:
        pages: name of a part -> URL that answers 200 where it is well, and else why not.
    """
    if not pages:
        return {}
    # One client for all: each would load the system's certificates anew, at 30 ms of processor.
    with (
        httpx.Client(timeout=SECONDS, trust_env=False) as client,
        ThreadPoolExecutor(len(pages), thread_name_prefix="health") as threads,
    ):
        answers = threads.map(lambda url: _ask(client, url), pages.values())
        return dict(zip(pages, answers, strict=True))


def _ask(client: httpx.Client, url: str) -> str:
    try:
        answer = client.get(url)
    except httpx.TimeoutException:
        return f"does not answer within {SECONDS:g} s"
    except httpx.HTTPError as error:
        return f"does not answer: {error or type(error).__name__}"
    if answer.is_success:
        return ""
    reason = _reason(answer.text.strip())[:_MOST]
    return f"is not ready: {reason}" if reason else f"is not ready: it answers {answer.status_code}"


def _reason(text: str) -> str:
    """The text of a page; of a gateway's, its notes."""
    try:
        said = json.loads(text)
    except ValueError:
        return text
    notes = said.get("notes") if isinstance(said, dict) else None
    return "; ".join(map(str, notes)) if notes else ""

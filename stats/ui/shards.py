"""The page's document when endpoints are divided among several evaluate processes.

The process that is asked has the owner of the chosen endpoint make the document, and puts into its
list what every other process says of its own endpoints. One that does not answer in time is left
out: of its endpoints the list then says what their objects say. It keeps nothing.
"""

import json
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from stats.evaluation.sharding import MOST_SHARDS, Shard, owner
from stats.ui.view import ViewRequest

log = logging.getLogger(__name__)

_SECONDS = 2.0  # for an answer of another shard
Document = dict[str, Any]
Ask = Callable[[int, str, dict[str, str]], bytes]


class Shards:
    """The processes, and how they are asked.

    Args:
        shard: this one.
        url: of any, with ``{shard}`` in place of its number.
        ask: in place of HTTP: shard, path and query to a body; raises ``httpx.HTTPError``.
    """

    def __init__(self, shard: Shard, url: str, *, ask: Ask | None = None) -> None:
        self._shard = shard
        self._url = url
        self._ask = ask or self._over_http
        self._client = httpx.Client(timeout=_SECONDS, trust_env=False)
        self._threads = ThreadPoolExecutor(min(self._shard.of, MOST_SHARDS))

    @property
    def others(self) -> list[int]:
        """Numbers of all but this one."""
        return [number for number in range(self._shard.of) if number != self._shard.number]

    def merge(self, asked: ViewRequest, own: bytes) -> bytes:
        """The document for ``asked``, of which this process has made ``own``."""
        answers = dict(self._answers(asked))
        answers[self._shard.number] = json.loads(own)
        document = answers[self._shard.number]
        chosen = (document["detail"] or {}).get("name", "")
        makers = answers.get(owner(chosen, self._shard.of), document)
        if (makers["detail"] or {}).get("name") == chosen:
            document = makers
        said = {number: _by_name(answer) for number, answer in answers.items()}
        document["endpoints"] = [
            said.get(owner(name, self._shard.of), {}).get(name, summary)
            for name, summary in _by_name(document).items()
        ]
        return json.dumps(document).encode()

    def _answers(self, asked: ViewRequest) -> Iterable[tuple[int, Document]]:
        query = {"endpoint": asked.endpoint, "span": asked.span, "alone": "1"}

        def answer(number: int) -> tuple[int, Document] | None:
            try:
                return number, json.loads(self._ask(number, "ui/view.json", query))
            except (httpx.HTTPError, ValueError) as error:
                log.info("a shard does not answer", extra={"shard": number, "reason": str(error)})
                return None

        return filter(None, self._threads.map(answer, self.others))

    def _over_http(self, number: int, path: str, query: dict[str, str]) -> bytes:
        url = f"{self._url.replace('{shard}', str(number)).rstrip('/')}/{path}"
        return self._client.get(url, params=query).raise_for_status().content


def _by_name(document: Document) -> dict[str, Any]:
    return {summary["name"]: summary for summary in document["endpoints"]}

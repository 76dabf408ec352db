"""Scrapes an evaluate process as Prometheus does, in a process of its own.

``python -P -m scale.scraping URL SECONDS`` prints one JSON after so long.
"""

import json
import re
import sys
import time
from typing import Any

import httpx

_EVERY_SECONDS = 15.0  # as the chart has Prometheus scrape
_OF_EVALUATE = "headrace_evaluate_"
_THROUGH = re.compile(rf"^{_OF_EVALUATE}known_through_timestamp_seconds (\S+)$", re.MULTILINE)


def scraped(url: str, seconds: float) -> dict[str, Any]:
    """The figures of scrapes for so long.

    ``behind_seconds`` is how old the newest event is, of the slowest partition, that is in what a
    scrape shows when it is asked for: all from a gateway's buffer to evaluate.
    """
    took: list[float] = []
    behind: list[float] = []
    text, until = "", time.monotonic() + seconds
    with httpx.Client(trust_env=False, timeout=60) as client:
        while time.monotonic() < until:
            asked, began = time.time(), time.monotonic()
            text = client.get(url).text
            took.append(time.monotonic() - began)
            through = _THROUGH.search(text)
            if through is not None:
                behind.append(asked - float(through[1]))
            time.sleep(max(0.0, _EVERY_SECONDS - took[-1]))
    return {
        "endpoints": len(_endpoints(text)),
        "series": sum(bool(line) and not line.startswith("#") for line in text.splitlines()),
        "overflow": sum(_values(text, f"{_OF_EVALUATE}overflow_total")),
        "limit_used": max(_values(text, f"{_OF_EVALUATE}limit_used_ratio"), default=None),
        "scrape_seconds_median": sorted(took)[len(took) // 2],
        "scrape_seconds_max": max(took),
        "behind_seconds_median": sorted(behind)[len(behind) // 2] if behind else None,
        "behind_seconds_max": max(behind, default=None),
    }


def _values(text: str, name: str) -> list[float]:
    return [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith((f"{name} ", f"{name}{{"))
    ]


def _endpoints(text: str) -> set[str]:
    return {
        line.partition('endpoint="')[2].partition('"')[0]
        for line in text.splitlines()
        if line.startswith("headrace_attempts_total{")
    }


def main() -> None:
    """Runs, and prints the figures as JSON."""
    url, seconds = sys.argv[1:]
    print(json.dumps(scraped(url, float(seconds))), flush=True)


if __name__ == "__main__":
    main()

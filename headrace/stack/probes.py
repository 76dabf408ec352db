"""Whether a service is ready, or stuck, each a quick question with a deadline of its own.

A probe answers yes or no; whatever goes wrong on the way is a no.
"""

import asyncio
import contextlib
import time
from pathlib import Path

import httpx

from headrace.stack.supervisor import Probe

_TIMEOUT_SECONDS = 2.0


def http_ok(url: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> Probe:
    """Ready when a GET of ``url`` answers 200."""
    return _answers(url, httpx.codes.OK, timeout_seconds)


def http_unwell(url: str) -> Probe:
    """Stuck when a GET of ``url`` answers 503; no answer says nothing."""
    return _answers(url, httpx.codes.SERVICE_UNAVAILABLE, _TIMEOUT_SECONDS)


def _answers(url: str, status: int, timeout_seconds: float) -> Probe:
    async def probe() -> bool:
        try:
            async with httpx.AsyncClient(timeout=timeout_seconds, trust_env=False) as client:
                return (await client.get(url)).status_code == status
        except httpx.HTTPError:
            return False

    return probe


def accepts(host: str, port: int) -> Probe:
    """Ready when something takes a TCP connection at ``host:port``."""

    async def probe() -> bool:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    return probe


def was_written(path: Path) -> Probe:
    """Ready when ``path`` was written after this probe was made."""
    made = time.time()

    async def probe() -> bool:
        try:
            return (await asyncio.to_thread(path.stat)).st_mtime >= made
        except FileNotFoundError:
            return False

    return probe


def has_grown(path: Path) -> Probe:
    """Ready when ``path``, a log, has grown since this probe was made.

    For a service that listens nowhere: it has come as far as its first log line.
    """
    made = _size(path)

    async def probe() -> bool:
        return await asyncio.to_thread(_size, path) > made

    return probe


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

"""Brings the dashboards into a Grafana by its HTTP API, for ``headrace up --grafana URL``.

A dashboard of an earlier start is replaced. It makes no data source: the Prometheus that scrapes
the stack is people's own, and each dashboard lets them choose it.
"""

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx

import dashboards

TOKEN = "HEADRACE_GRAFANA_TOKEN"  # which no part of the stack inherits
FOLDER = "headrace"
_FILES = Path(dashboards.__file__).parent / "generated"
_SECONDS = 10.0  # of silence
_MOST_SECONDS = 60.0  # for all answers
_THERE_ALREADY = (httpx.codes.CONFLICT, httpx.codes.PRECONDITION_FAILED)


async def bring_dashboards(url: str, token: str = "", *, seconds: float = _MOST_SECONDS) -> str:
    """Puts every dashboard into Grafana's folder ``headrace``; a sentence on how that went.

    Args:
        url: Grafana's, which may hold a name and a password.
        token: of a service account, in their place.
        seconds: that all of it may take.
    """
    parts = urlsplit(url)
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(headers=headers, timeout=_SECONDS) as client,
        ):
            asked = url.rstrip("/")
            named = {"uid": FOLDER, "title": "Headrace"}
            made = await client.post(f"{asked}/api/folders", json=named)
            if made.status_code not in _THERE_ALREADY:
                made.raise_for_status()
            for file in sorted(_FILES.glob("*.json")):
                document = {"dashboard": json.loads(file.read_bytes()), "overwrite": True}
                said = await client.post(
                    f"{asked}/api/dashboards/db", json={**document, "folderUid": FOLDER}
                )
                said.raise_for_status()
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        return (
            f"{plain} refuses dashboards ({status} {error.response.reason_phrase}): give a name "
            f"and a password in the URL, or a token in {TOKEN}, of one who may edit dashboards"
        )
    except (httpx.HTTPError, TimeoutError) as error:
        return f"{plain} does not answer, so that it has no dashboards: {str(error) or 'timed out'}"
    return f"{plain}/dashboards/f/{FOLDER}"

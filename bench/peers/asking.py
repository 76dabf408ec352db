"""Asks a server for vectors, and compares them with the original's."""

import http.client
import json
import time
from collections.abc import Sequence

import numpy as np

from bench import corpus
from bench.peers import comparison, model
from bench.peers.subjects import PATIENT_SECONDS, Running, Subject

MANY = 16  # texts of a request that has many
_BEGIN_SECONDS = 120.0
_SINGLE = 16  # judged texts that are asked for one by one as well


def ask(who: Subject, running: Running, texts: Sequence[str]) -> comparison.Vectors:
    """One request's vectors."""
    status, content = _post(running, json.dumps(who.body(texts)))
    if status != 200:
        raise RuntimeError(f"answered {status}: {content[:300]!r}")
    return who.read(json.loads(content))


def begin(who: Subject, running: Running) -> None:
    """Asks until the server answers: it may say that it is ready before its workers are."""
    ends = time.monotonic() + _BEGIN_SECONDS
    while True:
        try:
            ask(who, running, corpus.replay()[:1])
        except (OSError, RuntimeError):
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)
        else:
            return


def likeness_of(
    who: Subject, running: Running, prepared: model.PreparedModel
) -> comparison.Likeness:
    """How like the original's a server's vectors of the judged texts are."""
    texts = model.judged_texts()
    parts = [ask(who, running, texts[at : at + 1]) for at in range(_SINGLE)]
    parts += [ask(who, running, texts[at : at + MANY]) for at in range(_SINGLE, len(texts), MANY)]
    return comparison.compare(prepared.original, np.concatenate(parts))


def _post(running: Running, body: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENT_SECONDS)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", running.path, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()

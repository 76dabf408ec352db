"""Says in a sentence whether a part of Headrace does its work.

Readiness probes of the statistics run ``check.py fold BROKERS`` and ``check.py evaluate`` in their
own pods, and the liveness probe of Triton's container ``check.py triton``, so that what is wrong
stands in the pod's events; ``helm test`` runs ``check.py all NAME=URL...``. Ends with 0 where all
is well, else with 1. Needs Python alone, and never changes anything.
"""

import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable

SECONDS = 5.0
WAIT_SECONDS = 60.0
PAUSE_SECONDS = 2.0
# A worker that reads nothing for 15 s connects anew; this is longer than that takes.
STALLED_SECONDS = 40.0
# Of others: whoever refuses us is there.
FOREIGN = ("mlflow",)
FOLD = "http://127.0.0.1:9302/metrics"
EVALUATE = "http://127.0.0.1:9300"
LOADER = "http://127.0.0.1:9303"
TRITON = "http://127.0.0.1:8000"
# Whether a part is there is asked, not who it is: its certificate is made for other names.
ANY = ssl.create_default_context()
ANY.check_hostname = False
ANY.verify_mode = ssl.CERT_NONE


def ask(url: str) -> tuple[int, str]:
    """The status and body of an answer, 0 and the reason where there is none."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS, context=ANY) as reply:  # noqa: S310 - http by its caller
            return reply.status, reply.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", "replace")
    except OSError as error:
        return 0, str(getattr(error, "reason", error))


def sample(text: str, name: str) -> float | None:
    """The value of the first sample of a metric in Prometheus' text."""
    for line in text.splitlines():
        if line.startswith((f"{name} ", f"{name}{{")):
            return float(line.rpartition(" ")[2])
    return None


def fold(brokers: str, url: str = FOLD) -> str:
    """What is wrong with the fold worker of this pod; empty where nothing is.

    One that is not connected though Kafka takes connections is refused by it, or speaks TLS to what
    speaks none, or the other way round.
    """
    status, text = ask(url)
    if status != 200:
        return f"the fold worker does not answer: {text}"
    stalled = sample(text, "headrace_fold_stalled_seconds") or 0.0
    if sample(text, "headrace_fold_connected") == 1.0:
        if stalled <= STALLED_SECONDS:
            return ""
        return (
            "messages of events wait in Kafka, and the fold worker has read none of its own for "
            f"{stalled:.0f} s: it connects anew by itself; if it goes on, see the log of this pod"
        )
    refusals = [reachable("Kafka", f"tcp://{broker}") for broker in brokers.split(",")]
    if "" in refusals:
        return (
            "Kafka takes connections, and the fold worker can't use them: look at "
            "kafka.existingSecret, and at the log of this pod"
        )
    return f"{'; '.join(refusals)}. Look at kafka.bootstrapServers"


def evaluate(url: str = EVALUATE) -> str:
    """What is wrong with the evaluate role of this pod; empty where nothing is."""
    status, text = ask(f"{url}/readyz")
    if status == 200:
        return ""
    _, metrics = ask(f"{url}/metrics")
    if sample(metrics, "headrace_evaluate_connected") == 0.0:
        return (
            "the evaluate role is not connected to Kafka: look at kafka.bootstrapServers and "
            "kafka.existingSecret, and at the log of this pod"
        )
    return f"the evaluate role is not ready: {text.strip()}"


def triton(loader: str = LOADER, server: str = TRITON) -> str:
    """Why the Triton of this pod should be started anew; empty where it should not.

    The loader beside it runs a real inference on each stable model. A loader that is away says
    nothing of Triton, which goes on without it.
    """
    status, text = ask(f"{loader}/triton/livez")
    if status == 503:
        return text.strip()
    status, text = ask(f"{server}/v2/health/live")
    return "" if status == 200 else f"Triton does not say that it lives: {text[:300]}"


def reachable(name: str, url: str) -> str:
    """What is wrong with a part at ``http://...`` or ``tcp://host:port``, if anything is."""
    scheme, _, rest = url.partition("://")
    if scheme != "tcp":
        status, text = ask(url)
        if status == 200 or (name in FOREIGN and 0 < status < 500):
            return ""
        return f"{name} at {url} answers {status or 'nothing'}: {text[:300]}"
    host, _, port = rest.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
    except OSError as error:
        return f"{name} at {rest} does not take connections: {error}"
    return ""


def everything(
    parts: list[str],
    within_seconds: float = WAIT_SECONDS,
    wait: Callable[[float], None] = time.sleep,
) -> str:
    """What is wrong with parts, ``NAME=URL`` each, a line each; says what is well as it goes.

    Asks again for ``within_seconds``: after an install or upgrade a part may still be starting.
    """
    deadline = time.monotonic() + within_seconds
    while True:
        wrong = {}
        for part in parts:
            name, _, url = part.partition("=")
            if reason := reachable(name, url):
                wrong[part] = reason
            else:
                sys.stdout.write(f"{name} is well ({url})\n")
        parts = list(wrong)
        if not wrong or time.monotonic() >= deadline:
            return "\n".join(wrong.values())
        wait(PAUSE_SECONDS)


def main(arguments: list[str]) -> int:
    """The program; prints what is wrong."""
    match arguments:
        case ["fold", brokers]:
            reason = fold(brokers)
        case ["evaluate"]:
            reason = evaluate()
        case ["triton"]:
            reason = triton()
        case ["all", *parts] if parts:
            reason = everything(parts)
        case _:
            reason = "say fold BROKERS, evaluate, triton, or all NAME=URL..."
    if reason:
        sys.stdout.write(f"{reason}\n")
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A small HTTP server beside a service's own work: ``/metrics``, and pages for Kubernetes' probes.

Started once in a service's main, in threads of its own. Each page is asked for at each request and
must answer at once.
"""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

Fault = Callable[[], str]  # why a probe should fail; empty: it passes

METRICS = "/metrics"


class Pages(ThreadingHTTPServer):
    """The server. ``serve`` makes one."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], probes: Mapping[str, Fault]) -> None:
        super().__init__(address, _Handler)
        self.probes = probes

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


def serve(host: str, port: int, probes: Mapping[str, Fault]) -> Pages:
    """Answers in threads of its own until the process ends, or ``shutdown`` is called.

    Raises:
        OSError: nothing can listen there.
    """
    server = Pages((host, port), probes)
    threading.Thread(target=server.serve_forever, name="pages", daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0  # of a caller that does not finish its request

    def do_GET(self) -> None:
        """Answers a probe, or the metrics."""
        path = self.path.partition("?")[0]
        fault = cast("Pages", self.server).probes.get(path)
        if path == METRICS:
            self._say(200, CONTENT_TYPE_LATEST, generate_latest(REGISTRY))
        elif fault is None:
            self._say(404, "text/plain", b"not found\n")
        else:
            reason = fault()
            self._say(503 if reason else 200, "text/plain", f"{reason or 'ok'}\n".encode())

    def log_message(self, *args: object) -> None:
        """Probes are not worth a line."""

    def _say(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

"""Where a service listens that is told to listen everywhere."""

import socket
import urllib.request

import pytest

from service import listener
from service.pages import serve


@pytest.mark.parametrize("has_ipv6", [True, False])
def test_everywhere_is_ipv4_too_with_ipv6_or_without(
    monkeypatch: pytest.MonkeyPatch, has_ipv6: bool
) -> None:
    if has_ipv6 and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: has_ipv6)
    with listener.listen("::", 0) as found:
        assert (found.family == socket.AF_INET6) == has_ipv6
        socket.create_connection(("127.0.0.1", found.getsockname()[1]), timeout=10).close()


def test_probes_and_metrics_are_answered_on_the_addresses_of_both_kinds() -> None:
    pages = serve("::", 0, {"/readyz": lambda: ""})
    try:
        for host in ("127.0.0.1", *(["[::1]"] if socket.has_dualstack_ipv6() else [])):
            with urllib.request.urlopen(f"http://{host}:{pages.port}/readyz", timeout=60) as answer:
                assert answer.read() == b"ok\n"
    finally:
        pages.shutdown()
        pages.server_close()

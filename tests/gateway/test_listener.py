"""Where a gateway listens that is told to listen everywhere."""

import socket

import pytest

from gateway.main import open_listener


@pytest.mark.parametrize("has_ipv6", [True, False])
def test_everywhere_is_ipv4_too_with_ipv6_or_without(
    monkeypatch: pytest.MonkeyPatch, has_ipv6: bool
) -> None:
    if has_ipv6 and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: has_ipv6)
    with open_listener("::", 0, "--http-port") as listener:
        assert (listener.family == socket.AF_INET6) == has_ipv6
        socket.create_connection(("127.0.0.1", listener.getsockname()[1]), timeout=10).close()

"""Pairs of real numbers in place of complex ones, against torch's own complex numbers."""

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs the export environment")

from registry.convert.graph.complex_pairs import ComplexOperationError, as_pairs  # noqa: E402

pytestmark = pytest.mark.export


class Network(torch.nn.Module):
    """Holds complex numbers as code does: as a table that is not saved, and as an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.polar(torch.ones(6, 4), torch.randn(6, 4)), False)
        self.loose = torch.complex(torch.randn(4), torch.randn(4))

    def forward(self, found: Any, x: Any) -> Any:
        return found(self, x)


def of(x: Any) -> Any:
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))


OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda net, x: of(x) * net.table[:3],
    lambda net, x: net.table[:3] * of(x),
    lambda net, x: torch.mul(of(x), net.table[torch.tensor([2, 0, 5])]),
    lambda net, x: of(x)[..., :4].unsqueeze(-1) * net.loose[:, None],
    lambda net, x: of(x).unsqueeze(1).expand(2, 5, 3, 4).transpose(-1, -3),
    lambda net, x: torch.unsqueeze(of(x), 0).squeeze(0).conj() * 2.0,
    lambda _net, x: of(x) * x[..., :1],
    lambda _net, x: of(x).view(2, 12).reshape((2, 3, -1)).contiguous(),
    lambda net, x: torch.complex(net.loose.real, net.loose.imag) * of(x).to(torch.complex64),
    lambda _net, x: torch.polar(x.exp(), x),
    lambda net, x: net.table.view(1, net.table.shape[0], of(x).size(-1)),
    lambda net, x: of(x).mul(net.loose).to(x.device),
    lambda net, _x: net.loose.reshape(*(1,) * (net.table.ndim - 1), 4),
]


@pytest.mark.parametrize("at", range(len(OPERATIONS)))
def test_an_operation_gives_what_torch_gives(at: int) -> None:
    torch.manual_seed(at)
    network, x = Network(), torch.randn(2, 3, 8)

    def parts(network: Any, x: Any) -> Any:
        return torch.view_as_real(OPERATIONS[at](network, x))

    right = network(parts, x)
    with as_pairs(network):
        found = network(parts, x)
    torch.testing.assert_close(found, right)


def test_a_network_is_afterwards_as_it_was() -> None:
    network = Network()
    table, loose = network.table, network.loose
    with pytest.raises(ComplexOperationError, match="it computes exp of"), as_pairs(network):
        network(lambda net, _x: net.table.exp(), None)
    assert network.table is table
    assert network.loose is loose
    assert dict(network.named_buffers()).keys() == {"table"}
    assert torch.view_as_complex(torch.ones(1, 2)).is_complex()


@pytest.mark.parametrize(
    "operation",
    [
        lambda net, x: of(x) * 2j,
        lambda net, x: of(x).mul_(net.loose),
        lambda _net, x: of(x).to(torch.float32),
        lambda _net, x: of(x) + 1.0,
    ],
)
def test_an_operation_that_is_not_known_is_no_number(operation: Callable[[Any, Any], Any]) -> None:
    network, x = Network(), torch.randn(2, 3, 8)
    with pytest.raises((ComplexOperationError, TypeError)), as_pairs(network):
        network(operation, x)

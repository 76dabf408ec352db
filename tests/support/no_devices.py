"""A Triton of which nobody says what it computes with."""

from registry_fakes import FakeTriton

from contracts.loading import DeviceKind
from contracts.manifest import Manifest
from registry.loading.devices import Devices, Promise


class NoDevices(Devices):
    """Asks nothing, and leaves to Triton where a package runs."""

    def __init__(self) -> None:
        super().__init__(FakeTriton(), lambda _: {}, Promise.AUTO)

    async def look(self, *, now: bool = False) -> None:
        del now

    def kind_for(self, manifest: Manifest, backend: str) -> DeviceKind | None:
        del manifest, backend
        return None

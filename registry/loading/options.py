"""How one loader works, as its program was started. It reads no setting itself."""

from dataclasses import dataclass, field
from pathlib import Path

from contracts.ceilings import NO_CEILINGS, Ceilings
from contracts.model import DEFAULT_POOL
from registry.loading.room import WITHOUT_BOUNDS, Room
from registry.packages.triton_config import BACKEND_ONNXRUNTIME, BACKEND_PYTHON


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """How one loader works. ``backends`` are tried in their order.

    ``auto_instances``: copies of a model on CPUs whose endpoint names no number, 0 to choose them
    by measurement; on GPUs one each. ``ceilings``: the operator's. ``cores`` and ``memory_bytes``
    are what Triton may use. ``pool``: the one whose endpoints' versions it holds. ``room``: what
    its models may take. ``pyfunc``: packages that are Python of their users' own are
    loaded. ``idle_seconds``: what is idle for that time leaves, if the status says so, 0:
    nothing does; ``settle_seconds``: after the status says so. ``wake_address`` and ``wake_key``:
    where gateways ask for it again, and what they show there.
    """

    name: str
    triton_grpc: str
    ledger_file: Path
    backends: tuple[str, ...] = (BACKEND_ONNXRUNTIME, BACKEND_PYTHON)
    poll_seconds: float = 0.25
    heartbeat_seconds: float = 2.0
    unload_after_seconds: float = 600.0
    warmup_seconds: float = 1.5
    auto_instances: int = 0
    ceilings: Ceilings = NO_CEILINGS
    cores: int = 1
    memory_bytes: int = 1 << 40
    pool: str = DEFAULT_POOL
    room: Room = WITHOUT_BOUNDS
    pyfunc: bool = False
    idle_seconds: float = 0.0
    settle_seconds: float = 10.0
    wake_address: str = ""
    wake_key: str = field(default="", repr=False)

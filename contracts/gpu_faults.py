"""What GPUs, their driver and their libraries say when something is wrong: one table. Pure.

Each row has a pattern, what is at fault, what is done, and the public document that it is from.
Everybody who judges such words asks here: the loader at a refusal (``registry/loading/refusals``),
the prober, the probe of devices, gateways, and the models of ``triton/``, beside which this file is
laid under its own name. So it imports the standard library only and runs on Python 3.10.

It never decides from words that are not here: they may be a version's fault or anybody's.
"""

import re
from dataclasses import dataclass
from enum import Enum


class FaultOf(Enum):
    """Who or what is at fault."""

    DEVICE = "device"  # the GPU, its driver, or what a process holds of both
    MEMORY = "memory"  # other models may hold it
    VERSION = "version"
    ENVIRONMENT = "environment"  # driver, libraries or settings of the node


class Remedy(Enum):
    """What is done about it."""

    CORDON = "cordon"  # the process ends, and callers go elsewhere until someone repairs the node
    RESTART = "restart"  # the process can't use its GPU any more: it ends, and another is started
    RELOAD = "reload"  # the load is tried again, with growing pauses; what is loaded goes on
    LEAVE = "leave"  # nothing: it is the failure of one request


@dataclass(frozen=True)
class GpuFault:
    """A row: ``source`` is the document that has these words."""

    name: str
    pattern: str
    fault_of: FaultOf
    remedy: Remedy
    source: str


_XIDS = "docs.nvidia.com/deploy/xid-errors, Xid catalog: the immediate action of each number"
_RUNTIME = "docs.nvidia.com/cuda/cuda-runtime-api, enum cudaError: "
_CUDNN = "docs.nvidia.com/deeplearning/cudnn, cudnnStatus_t; docs.nvidia.com/cuda/cublas, status"
_NVML = "docs.nvidia.com/deploy/nvml-api, enum nvmlReturn_t"
_ORT = "onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider"
_TORCH = "docs.pytorch.org/docs/stable/notes/cuda, and torch.cuda"
_LIBRARIES = "(?:cudnn|cublas|cublaslt|cusolver|cusparse|curand|cufft)_status_"


def _xid(*numbers: int) -> str:
    """As the driver's log has them, and as NVML's events are written here: ``Xid 79``."""
    return rf"\bxid\b(?: \(pci:[^)]*\))?:? (?:{'|'.join(map(str, numbers))})\b"


def _row(name: str, fault_of: FaultOf, remedy: Remedy, source: str, *words: str) -> GpuFault:
    return GpuFault(name, "|".join(words), fault_of, remedy, source)


_DEVICE, _MEMORY = FaultOf.DEVICE, FaultOf.MEMORY
_VERSION, _ENVIRONMENT = FaultOf.VERSION, FaultOf.ENVIRONMENT
_CORDON, _RESTART, _RELOAD, _LEAVE = Remedy.CORDON, Remedy.RESTART, Remedy.RELOAD, Remedy.LEAVE

# The first row that matches counts.
TABLE = (
    _row("xid-bus", _DEVICE, _CORDON, _XIDS, _xid(79), "fallen off the bus"),
    _row("xid-memory", _DEVICE, _CORDON, _XIDS, _xid(48, 64, 95, 140, 156)),
    _row("xid-link", _DEVICE, _CORDON, _XIDS, _xid(74, 136, *range(144, 151))),
    _row("xid-firmware", _DEVICE, _CORDON, _XIDS, _xid(46, 62, 109, 110, 119, 120, 143, 158)),
    _row(
        "xid-recovery", _DEVICE, _CORDON, _XIDS,
        r"\bxid\b.*recovery action changed.* to .*\((?:drain and reset|gpu reset|node reboot)",
    ),
    _row("xid-contained", _DEVICE, _RESTART, _XIDS, _xid(94)),
    _row("xid-of-a-program", _DEVICE, _LEAVE, _XIDS, _xid(8, 13, 31, 43, 45, 63, 69, 92, 154)),
    _row(
        "memory", _MEMORY, _RELOAD, _RUNTIME + "2",
        "out of memory", "outofmemory", "cudaerrormemoryallocation", "cuda_error_out_of_memory",
    ),
    _row("memory-of-libraries", _MEMORY, _RELOAD, _CUDNN, f"{_LIBRARIES}alloc_failed"),
    _row(
        "memory-of-hosts", _MEMORY, _RELOAD, _ORT + ", gpu_mem_limit; man 3 malloc, man 3 errno",
        "failed to allocate memory", "(?:cannot|unable to) allocate", "bad_alloc",
        "the memory does not suffice", "unable to create shared memory",
        "no space left on device", "disk quota exceeded", "too many open files",
        "resource temporarily unavailable",
    ),
    _row(
        "assertion", _VERSION, _RESTART, _RUNTIME + "710",
        "device-side assert", "cudaerrorassert", "cuda_error_assert",
    ),
    _row(
        "not-supported", _ENVIRONMENT, _LEAVE, _RUNTIME + "801; " + _CUDNN,
        f"{_LIBRARIES}not_supported", "cudaerrornotsupported", "cuda_error_not_supported",
        r"cuda (?:error|failure \d+): operation not supported(?! on global)",
    ),
    _row(
        "no-kernel", _ENVIRONMENT, _LEAVE, _RUNTIME + "98, 209, 222; " + _CUDNN,
        "no kernel image is available", "nokernelimagefordevice", "invalid device function",
        "unsupported toolchain", "unsupportedptxversion", f"{_LIBRARIES}arch_mismatch",
    ),
    _row(
        "driver", _ENVIRONMENT, _CORDON, _RUNTIME + "35, 803, 804; " + _NVML + " 18",
        "driver version is insufficient", "insufficientdriver", "driver on your system is too old",
        "unsupported display driver", "systemdrivermismatch", "forward compatibility was attempted",
        "driver/library version mismatch",
    ),
    _row(
        "no-device", _ENVIRONMENT, _CORDON, _RUNTIME + "100, 101; " + _NVML + " 9; " + _TORCH,
        "no cuda-capable device", "cudaerrornodevice", "cuda_error_no_device",
        "no cuda gpus are available", "found no nvidia driver", "driver not loaded",
        "invalid device ordinal", "cudaerrorinvaliddevice", "this triton can't use a gpu",
        "was promised a gpu and has none",
    ),
    _row(
        "libraries", _ENVIRONMENT, _CORDON, _RUNTIME + "34; " + _ORT,
        r"lib(?:cu\w+|nv\w+|nvidia-ml)\.so[^ ]*: cannot open shared object",
        r"failed to load library \S*providers_cuda", "sublibrary_(?:loading_failed|version_mis)",
        "driver is a stub library", "cudaerrorstublibrary",
    ),
    _row(
        "busy", _ENVIRONMENT, _RESTART, _RUNTIME + "46, 802, 805, 807",
        "busy or unavailable", "devicesunavailable", "system not yet initialized",
        "cudaerrorsystemnotready", "mpsconnectionfailed", "mpsservernotready",
        "mps client failed to connect", "mps server is not ready",
    ),
    _row(
        "ecc", _DEVICE, _CORDON, _RUNTIME + "214",
        "uncorrectable ecc", "eccuncorrectable", "cuda_error_ecc_uncorrectable",
    ),
    _row(
        "nvlink", _DEVICE, _CORDON, _RUNTIME + "220",
        "uncorrectable nvlink", "nvlinkuncorrectable", "cuda_error_nvlink_uncorrectable",
    ),
    _row(
        "lost", _DEVICE, _CORDON, _NVML + " 14, 15, 16",
        "gpu is lost", "gpu requires reset", "corrupted inforom",
    ),
    _row(
        "context", _DEVICE, _RESTART, _RUNTIME + "226, 700 to 702, 709, 714 to 719",
        "illegal memory access", "illegal ?address", "cuda_error_illegal_address",
        "launch ?failure", "launch_failed", "launch timed out", "launch_?timeout",
        "misaligned ?address", "illegal instruction", "illegalinstruction",
        "invalid program counter", "hardware stack error", "global/shared address space",
        "context is destroyed", "contextisdestroyed", "invalid access of peer gpu memory",
    ),
    _row(
        "library-state", _DEVICE, _RESTART, _CUDNN,
        f"{_LIBRARIES}(?:not_initialized|internal_error|execution_failed|mapping_error)",
    ),
    _row(
        "other", _DEVICE, _RESTART, _RUNTIME + "3, 4, 201, 999, and every other one",
        "cuda error", r"cuda failure \d", "cudaerror", "cuda_error_", "cuda driver error",
        r"cudnn failure \d", "cudnn error", r"cublas failure \d",
    ),
)  # fmt: skip
_PATTERNS = tuple((re.compile(row.pattern, re.IGNORECASE), row) for row in TABLE)


def gpu_fault(words: str) -> "GpuFault | None":
    """The row that words are of; none if they are not of a GPU.

    >>> gpu_fault("CUDA failure 214: uncorrectable ECC error encountered ; GPU=0").name
    'ecc'
    >>> gpu_fault("ShapeInferenceError: Mismatch between number of inferred dimensions")
    """
    return next((row for pattern, row in _PATTERNS if pattern.search(words)), None)


def is_memory(words: str) -> bool:
    """Whether memory did not suffice: less at a time, or later, may succeed."""
    row = gpu_fault(words)
    return row is not None and row.fault_of is FaultOf.MEMORY


def ends_process(words: str) -> bool:
    """Whether the process that said so can compute nothing more on its GPU, whatever is asked."""
    row = gpu_fault(words)
    return row is not None and row.remedy in (Remedy.CORDON, Remedy.RESTART)


def is_broken(words: str) -> bool:
    """Whether the GPU itself has to be reset or repaired, so that no new process helps."""
    row = gpu_fault(words)
    return row is not None and (row.fault_of, row.remedy) == (FaultOf.DEVICE, Remedy.CORDON)

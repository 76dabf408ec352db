"""The processes in which a local Triton runs the models of its Python backend."""

import psutil
from own_servers import TritonProcess

PROGRAM = "triton_python_backend_stub"


def model_processes(triton: TritonProcess) -> list[int]:
    """Process ids of a Triton's models; those that ended are not among them."""
    prefix = triton.server.shared_memory_prefix
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if PROGRAM in (words := " ".join(process.info["cmdline"] or ())) and prefix in words
    ]

"""The processes in which a local Triton runs the models of its Python backend."""

from pathlib import Path

from headrace.stack.triton import TritonProcess

PROGRAM = b"triton_python_backend_stub"


def model_processes(triton: TritonProcess) -> list[int]:
    """Process ids of a Triton's models; those that ended are not among them."""
    prefix = triton.server.shared_memory_prefix.encode()
    words = {int(each.name): _command(each) for each in Path("/proc").glob("[0-9]*")}
    return [process for process, said in words.items() if PROGRAM in said and prefix in said]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # it ended just now
        return b""

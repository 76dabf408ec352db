"""The table of ``contracts``, under the name that it has beside Triton's models."""

from contracts.gpu_faults import ends_process, gpu_fault, is_memory, needs_repair

__all__ = ["ends_process", "gpu_fault", "is_memory", "needs_repair"]

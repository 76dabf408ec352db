"""The table of ``contracts``, under the name that it has beside Triton's models."""

from contracts.gpu_faults import ends_process, is_memory

__all__ = ["ends_process", "is_memory"]

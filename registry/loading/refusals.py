"""What a Triton's refusal speaks of: of the model, of memory, or of something else. Pure.

What GPUs and memory say is in ``contracts/gpu_faults.py``, and goes before a model's words: a node
of a graph may have any name.

No word excuses: whatever is not in the list of words that blame the model blames nobody, and the
controller asks other Tritons (``registry/reconcile/blame.py``). Words never reject a version.
"""

from contracts.gpu_faults import FaultOf, gpu_fault, is_memory
from contracts.loading import FailureCause

# Words of Triton, its backends and our own models that speak of the model itself. Only they let one
# Triton accuse a version; whatever else one says, all others are asked first.
_MODEL_WORDS = tuple(
    words.lower()
    for words in (
        # ONNX Runtime's codes and sentences
        "INVALID_PROTOBUF",
        "Protobuf parsing failed",
        "INVALID_GRAPH",
        "NOT_IMPLEMENTED",
        "not a registered function/op",
        "No Op registered for",
        "Could not find an implementation for",
        "no such operator",
        "opset",
        "Unsupported model IR version",
        "ShapeInferenceError",
        "TypeInferenceError",
        "Type Error:",
        "Node () Op",
        "Invalid Feed Input Name",
        "Invalid rank for input",
        "Got invalid dimensions for input",
        "no such input",
        "no such output",
        "indices element out of data bounds",
        # Triton's, of a configuration that is not the graph's
        "unexpected inference input",
        "unexpected inference output",
        "unexpected shape for input",
        "unexpected data-type",
        "unexpected datatype",
        "failed to load all requested models of the ensemble",
        "configuration expects",
        "model expects",
        "model tensor shape",
        "but model configuration",
        # of weights that are another model's
        "in state_dict",
        "the weights don't fit the model",
        "size mismatch for",
        "the packed engine does not know",
        "the model does not tell its attention",
        "the model's attention has a part",
        "the model's tokens look only backward",
        # our own, of answers
        "it strays from the original",
        "answered with other tensors than",
        "rows were answered with",
    )
)


def is_version_fault(words: str) -> bool:
    """Whether a refusal is about the model: a shape, an operator, weights, what it answers."""
    if (fault := gpu_fault(words)) is not None:
        return fault.fault_of is FaultOf.VERSION
    said = words.lower()
    return any(sign in said for sign in _MODEL_WORDS)


def cause_of(words: str) -> FailureCause:
    """What a refusal of Triton's is about, as the report says it."""
    return FailureCause.ROOM if is_memory(words) else FailureCause.REFUSED

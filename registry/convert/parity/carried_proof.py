"""What a package carries of its proof, for the device that will serve it.

It picks from texts that were compared already, and runs nothing.
"""

import numpy as np
from numpy.typing import NDArray

from preprocess.tasks import HEADS
from registry.convert.parity.engine import TokenisedTexts
from registry.convert.parity.proof import Comparison, Proof
from registry.convert.parity.verify import scale_of
from registry.packages.device_proof import DeviceProof, ReferenceRow, proof_of

Floats = NDArray[np.float32]


def make_device_proof(comparison: Comparison, proof: Proof, *, type_ids: bool) -> DeviceProof:
    """Some of the texts that the engine was compared on, for the device that will serve it."""
    return proof_of(
        _references(comparison.texts, comparison.reference, HEADS[comparison.task].rank),
        task=comparison.task,
        multi_label=comparison.multi_label,
        type_ids=type_ids,
        scale=scale_of(comparison.task, comparison.reference),
        limits=proof.parity.limits,
    )


def _references(texts: TokenisedTexts, values: Floats, rank: int) -> list[ReferenceRow]:
    """Each text's row, with its own part of the original's values."""
    found, begin = [], 0
    types, sides = texts.encoded.type_ids, texts.encoded.sides
    for index, ids in enumerate(texts.encoded.ids):
        left_out = sides.left_out[index] if sides else []
        end = begin + (len(ids) - len(left_out) if rank > 2 else 1)
        own = None if types is None else types[index]
        if end > begin:
            found.append(ReferenceRow(ids, own, values[begin:end], left_out))
        begin = end
    return found

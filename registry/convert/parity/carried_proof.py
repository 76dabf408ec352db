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
    types = texts.encoded.type_ids
    for index, ids in enumerate(texts.encoded.ids):
        end = begin + (len(ids) if rank > 2 else 1)
        found.append(ReferenceRow(ids, None if types is None else types[index], values[begin:end]))
        begin = end
    return found

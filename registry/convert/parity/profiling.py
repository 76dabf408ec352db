"""Makes the reference profile: what a version's texts and answers look like at its evaluation.

Counting is the gateway's own code, so that live traffic can be compared with it. Texts themselves
never leave this process.
"""

from collections.abc import Sequence

from contracts.profile import ReferenceProfile
from contracts.tensors import TensorSpec
from measures.profile import reference_profile
from preprocess.encoder import TextEncoder
from preprocess.observe import answered
from preprocess.tasks import HEADS
from registry.convert import texts
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel
from registry.convert.parity.engine import TextEngine, TokenisedTexts, encode
from registry.convert.parity.verify import values_of
from registry.convert.tokeniser import Tokeniser

# The profile is over as many texts as this much arithmetic allows: the same on every machine.
_OPERATIONS = 4e11
_FEWEST_TEXTS = 256
_MOST_UNKNOWN = 0.5


def profile_of(
    evaluation: texts.EvaluationTexts,
    original: OriginalTextModel,
    engine: TextEngine,
    made: Tokeniser,
    *,
    weights: int,
    labels: tuple[str, ...],
    inputs: tuple[TensorSpec, ...],
) -> ReferenceProfile:
    """The profile over the version's own texts, or the bundled ones.

    Args:
        evaluation: the texts.
        original: the version.
        engine: that will be served.
        made: the tokeniser.
        weights: numbers in all matrices that it multiplies by.
        labels: of its answers.
        inputs: of an engine that pads; none of others.

    Raises:
        VersionError: the tokeniser does not know its texts.
    """
    # As the gateway makes rows: of a head that makes windows, by that encoder.
    encoder = HEADS[original.task].encoder(made.data, made.spec)
    encoded = _encode(evaluation, made, inputs, encoder)
    affordable = _affordable(weights, encoded.encoded.tokens)
    if affordable < len(encoded):
        encoded = _encode(evaluation.thin(affordable), made, inputs, encoder)
    outputs = engine.outputs(encoded)
    values = values_of(original.task, outputs, multi_label=original.multi_label)
    records = answered(encoded.encoded, original.task, values, labels)
    unknown = sum(encoded.encoded.unk) / max(1, sum(encoded.encoded.tokens))
    if evaluation.own and unknown > _MOST_UNKNOWN:
        raise VersionError(
            f"the tokeniser does not know {unknown:.0%} of the tokens in {evaluation.source}"
        )
    head = HEADS[original.task]
    return reference_profile(
        records,
        source=evaluation.source,
        labels=head.classes(labels),
        scores=head.measured(values) if labels and head.rank == 2 else None,
    )


def _encode(
    evaluation: texts.EvaluationTexts,
    made: Tokeniser,
    inputs: tuple[TensorSpec, ...],
    encoder: TextEncoder,
) -> TokenisedTexts:
    return encode(
        evaluation.texts, encoder, inputs, made.spec, made.buckets, pairs=evaluation.pairs
    )


def _affordable(weights: int, tokens: Sequence[int]) -> int:
    """How many of the texts the profile's arithmetic pays for, a few hundred at least."""
    mean = sum(tokens) / max(1, len(tokens))
    return max(_FEWEST_TEXTS, int(_OPERATIONS / max(1.0, 2.0 * weights * mean)))

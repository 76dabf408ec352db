"""What an endpoint can be asked to do, and the tensors of each task.

The gateway builds its Open Inference Protocol metadata from these, the registry checks an exported
graph against them. Engine tensors are what Triton sees; public tensors are what callers see.
"""

from enum import StrEnum

from contracts.tensors import Datatype, TensorSpec


class Task(StrEnum):
    """A task, by the name the field uses for it."""

    TEXT_CLASSIFICATION = "text-classification"
    TEXT_EMBEDDING = "text-embedding"
    TEXT_RANKING = "text-ranking"
    TOKEN_CLASSIFICATION = "token-classification"


# What the engine's graph takes, all [batch, length]. A graph may lack token_type_ids.
INPUT_IDS = "input_ids"
ATTENTION_MASK = "attention_mask"
TOKEN_TYPE_IDS = "token_type_ids"
ENGINE_INPUTS = (INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS)

# What the engine's graph gives: pooling and normalisation are part of the graph. The last dimension
# is the number of values: classes, or an embedding's dimension.
_LOGITS = TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, -1))
ENGINE_OUTPUT: dict[Task, TensorSpec] = {
    Task.TEXT_CLASSIFICATION: _LOGITS,
    Task.TEXT_EMBEDDING: TensorSpec(name="embedding", datatype=Datatype.FP32, shape=(-1, -1)),
    Task.TEXT_RANKING: _LOGITS,
    # [batch, length, classes]
    Task.TOKEN_CLASSIFICATION: TensorSpec(
        name="logits", datatype=Datatype.FP32, shape=(-1, -1, -1)
    ),
}

# What a caller of the Open Inference Protocol sends: BYTES of UTF-8, [N] or [N, 1].
TEXT = "TEXT"
TEXT_PAIR = "TEXT_PAIR"

PUBLIC_OUTPUTS: dict[Task, tuple[TensorSpec, ...]] = {
    Task.TEXT_CLASSIFICATION: (
        TensorSpec(name="LABEL", datatype=Datatype.BYTES, shape=(-1,)),
        TensorSpec(name="SCORE", datatype=Datatype.FP32, shape=(-1,)),
        TensorSpec(name="SCORES", datatype=Datatype.FP32, shape=(-1, -1)),
    ),
    Task.TEXT_EMBEDDING: (TensorSpec(name="EMBEDDING", datatype=Datatype.FP32, shape=(-1, -1)),),
    Task.TEXT_RANKING: (
        TensorSpec(name="SCORE", datatype=Datatype.FP32, shape=(-1,)),
        TensorSpec(name="LOGIT", datatype=Datatype.FP32, shape=(-1,)),
    ),
    # JSON: the entities of each text.
    Task.TOKEN_CLASSIFICATION: (TensorSpec(name="ENTITIES", datatype=Datatype.BYTES, shape=(-1,)),),
}

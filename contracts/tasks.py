"""What an endpoint can be asked to do, and the tensors of each task.

The gateway builds its Open Inference Protocol metadata from these, the registry checks an exported
graph against them. Engine tensors are what Triton sees; public tensors are what callers see.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from contracts.tensors import Datatype, TensorSpec

# Entry points by which an installed package adds a task, and a member of ``Task``, each under the
# task's name: its ``TaskTensors``, its head (``preprocess.tasks.Head``) and its form
# (``registry.convert.forms``).
TENSORS_GROUP = "headrace.tasks"
HEADS_GROUP = "headrace.task_heads"
FORMS_GROUP = "headrace.task_forms"
_POINTS = entry_points()  # looked up once: it reads a file of each installed package


class Task(StrEnum):
    """A task, by the name the field uses for it."""

    _ignore_ = "point"

    TEXT_CLASSIFICATION = "text-classification"
    TEXT_EMBEDDING = "text-embedding"
    SPARSE_EMBEDDING = "sparse-embedding"
    HYBRID_EMBEDDING = "hybrid-embedding"
    MULTI_VECTOR_EMBEDDING = "multi-vector-embedding"
    TEXT_RANKING = "text-ranking"
    TOKEN_CLASSIFICATION = "token-classification"
    ZERO_SHOT_CLASSIFICATION = "zero-shot-classification"
    ENTITY_RECOGNITION = "entity-recognition"
    QUESTION_ANSWERING = "question-answering"
    TABULAR_CLASSIFICATION = "tabular-classification"
    TABULAR_REGRESSION = "tabular-regression"
    TEXT_GENERATION = "text-generation"
    for point in _POINTS.select(group=TENSORS_GROUP):
        vars()[point.name.upper().replace("-", "_")] = point.name


@dataclass(frozen=True)
class TaskTensors:
    """The tensors of a task.

    Attributes:
        engine: what the engine's graph gives, float32; the batch comes first, and the last
            dimension is the number of values. Generated tokens are int32, one a response.
        public: what callers of the Open Inference Protocol get.
    """

    engine: TensorSpec
    public: tuple[TensorSpec, ...]


def load_installed(group: str) -> dict[Task, Any]:
    """What installed packages add to a table, by task.

    Raises:
        ValueError: a task is in this group only, or not in it.
        Exception: whatever importing a package raises: nothing starts without a part that was
            installed on purpose.
    """
    points = _POINTS.select(group=group)
    odd = points.names ^ _POINTS.select(group=TENSORS_GROUP).names
    if odd:
        raise ValueError(
            f"{', '.join(sorted(odd))}: a task needs an entry point in each of {TENSORS_GROUP}, "
            f"{HEADS_GROUP} and {FORMS_GROUP}"
        )
    return {Task(point.name): point.load() for point in points}


# Tasks whose answers are kept and compared with later ones.
GIVE_VECTORS = frozenset(
    {
        *(Task.TEXT_EMBEDDING, Task.SPARSE_EMBEDDING, Task.HYBRID_EMBEDDING),
        Task.MULTI_VECTOR_EMBEDDING,
    }
)
# Kinds of vectors that a task may give.
DENSE, SPARSE, TOKENS = "dense", "sparse", "tokens"
# The name of the prompt by which a text is a query, and no document, to late interaction.
QUERY = "query"
# Another kind of values: a score for each pair of texts, by which documents are ranked.
RELEVANCE = "relevance"
CLASSES = "classes of texts"
MARKED = "labels that a text has, by a threshold of each"
WRITTEN = "written text"

# What the engine's graph takes, all [batch, length]. A graph may lack token_type_ids.
INPUT_IDS = "input_ids"
ATTENTION_MASK = "attention_mask"
TOKEN_TYPE_IDS = "token_type_ids"
ENGINE_INPUTS = (INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS)

# What the packed engine takes: the rows of a batch one after the other, without padding. T are the
# tokens of all n rows. ``input_ids`` is INT32 [T], ``token_type_ids`` UINT8 [T] of models that have
# them (all 0 if it is left out), and ``row_starts`` INT32 [n + 1]: where each row begins; the last
# is T. Its output is FP32 [n, width], or [T, width] of tasks with values for each token.
ROW_STARTS = "row_starts"


def packed_inputs(*, type_ids: bool) -> tuple[TensorSpec, ...]:
    """The tensors that the packed engine takes.

    Args:
        type_ids: whether the model reads ``token_type_ids``.
    """
    ids = TensorSpec(name=INPUT_IDS, datatype=Datatype.INT32, shape=(-1,))
    starts = TensorSpec(name=ROW_STARTS, datatype=Datatype.INT32, shape=(-1,))
    types = TensorSpec(name=TOKEN_TYPE_IDS, datatype=Datatype.UINT8, shape=(-1,))
    return (ids, starts, types) if type_ids else (ids, starts)


# What a model that generates takes in place of a mask. The first two are always sent.
MAX_TOKENS = "max_tokens"
TEMPERATURE, TOP_P, SEED, STOP_IDS = "temperature", "top_p", "seed", "stop_ids"

# What a caller of the Open Inference Protocol sends: BYTES of UTF-8, [N] or [N, 1].
TEXT = "TEXT"
TEXT_PAIR = "TEXT_PAIR"

# Pooling and normalisation are part of the engine's graph.
_LOGITS = TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, -1))
_TOKEN_LOGITS = TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, -1, -1))
_LABELS = (
    TensorSpec(name="LABEL", datatype=Datatype.BYTES, shape=(-1,)),
    TensorSpec(name="SCORE", datatype=Datatype.FP32, shape=(-1,)),
    TensorSpec(name="SCORES", datatype=Datatype.FP32, shape=(-1, -1)),
)
_TENSORS: dict[Task, TaskTensors] = {
    Task.TEXT_CLASSIFICATION: TaskTensors(_LOGITS, _LABELS),
    Task.TEXT_EMBEDDING: TaskTensors(
        TensorSpec(name="embedding", datatype=Datatype.FP32, shape=(-1, -1)),
        (TensorSpec(name="EMBEDDING", datatype=Datatype.FP32, shape=(-1, -1)),),
    ),
    Task.SPARSE_EMBEDDING: TaskTensors(
        # A weight for each token of the vocabulary.
        TensorSpec(name="sparse_embedding", datatype=Datatype.FP32, shape=(-1, -1)),
        # JSON: index and value of each weight of a text that is not 0.
        (TensorSpec(name="SPARSE", datatype=Datatype.BYTES, shape=(-1,)),),
    ),
    Task.HYBRID_EMBEDDING: TaskTensors(
        # [batch, length, dimension + 1]: see preprocess.tasks.hybrid.
        TensorSpec(name="hybrid_embedding", datatype=Datatype.FP32, shape=(-1, -1, -1)),
        (
            TensorSpec(name="EMBEDDING", datatype=Datatype.FP32, shape=(-1, -1)),
            TensorSpec(name="SPARSE", datatype=Datatype.BYTES, shape=(-1,)),
            TensorSpec(name="TOKEN_VECTORS", datatype=Datatype.FP32, shape=(-1, -1, -1)),
        ),
    ),
    # A vector for each token: see preprocess.tasks.multi_vector.
    Task.MULTI_VECTOR_EMBEDDING: TaskTensors(
        TensorSpec(name="multi_vector_embedding", datatype=Datatype.FP32, shape=(-1, -1, -1)),
        (TensorSpec(name="TOKEN_VECTORS", datatype=Datatype.FP32, shape=(-1, -1, -1)),),
    ),
    Task.TEXT_RANKING: TaskTensors(
        _LOGITS,
        (
            TensorSpec(name="SCORE", datatype=Datatype.FP32, shape=(-1,)),
            TensorSpec(name="LOGIT", datatype=Datatype.FP32, shape=(-1,)),
        ),
    ),
    Task.TOKEN_CLASSIFICATION: TaskTensors(
        _TOKEN_LOGITS,
        # JSON: the entities of each text.
        (TensorSpec(name="ENTITIES", datatype=Datatype.BYTES, shape=(-1,)),),
    ),
    # Of the caller's candidate labels, in the order in which they were sent.
    Task.ZERO_SHOT_CLASSIFICATION: TaskTensors(_LOGITS, _LABELS),
    # For each word, a logit for each width of a span that begins there and each label: see
    # preprocess.tasks.entity_recognition.
    Task.ENTITY_RECOGNITION: TaskTensors(
        _TOKEN_LOGITS,
        (TensorSpec(name="ENTITIES", datatype=Datatype.BYTES, shape=(-1,)),),
    ),
    # Two logits a token: that an answer starts there, and that one ends there.
    Task.QUESTION_ANSWERING: TaskTensors(
        _TOKEN_LOGITS,
        (
            TensorSpec(name="ANSWER", datatype=Datatype.BYTES, shape=(-1,)),
            TensorSpec(name="SCORE", datatype=Datatype.FP32, shape=(-1,)),
            # JSON: the answers of each context, with their places.
            TensorSpec(name="ANSWERS", datatype=Datatype.BYTES, shape=(-1,)),
        ),
    ),
    Task.TABULAR_CLASSIFICATION: TaskTensors(
        TensorSpec(name="probabilities", datatype=Datatype.FP32, shape=(-1, -1)), _LABELS
    ),
    Task.TABULAR_REGRESSION: TaskTensors(
        TensorSpec(name="values", datatype=Datatype.FP32, shape=(-1, -1)),
        (TensorSpec(name="VALUE", datatype=Datatype.FP32, shape=(-1, -1)),),
    ),
    # One token a response (``triton/generation_model``).
    Task.TEXT_GENERATION: TaskTensors(
        TensorSpec(name="tokens", datatype=Datatype.INT32, shape=(-1, 1)),
        (),  # nobody writes over that protocol
    ),
    **load_installed(TENSORS_GROUP),
}

ENGINE_OUTPUT: Mapping[Task, TensorSpec] = MappingProxyType(
    {task: tensors.engine for task, tensors in _TENSORS.items()}
)
PUBLIC_OUTPUTS: Mapping[Task, tuple[TensorSpec, ...]] = MappingProxyType(
    {task: tensors.public for task, tensors in _TENSORS.items()}
)

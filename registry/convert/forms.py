"""The form that models of each task have, as registered and as converted: one table.

How a version is told by its files, what loads it, which output of its graph is meant, and how far
the converted graph may be from the original. The limits are for what callers see.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from contracts.endpoint import Precision
from contracts.tasks import FORMS_GROUP, Task, load_installed
from preprocess.tasks.zero_shot import ENTAILED

MEAN, SPLADE, EACH_TOKEN = "mean", "splade", "tokens"
STATES = "last_hidden_state"
STATE_OUTPUTS = (STATES, "token_embeddings", "hidden_states")
_LOGITS = ("logits", "output", "scores", "probabilities")
_VECTORS = (
    *("embedding", "embeddings", "sentence_embedding", "pooled_embedding", "text_embeds"),
    "dense_vecs",
)

Limits = Mapping[Precision, Mapping[str, float]]

# "min_" limits are floors, the others ceilings. Those of bf16 are chosen: its numbers have three
# bits less than fp16's, and all-MiniLM-L6-v2 keeps to them with room (docs/models.md).
_EXACT = {"max_abs_difference": 1e-4, "mean_abs_difference": 1e-5}
_PROBABILITIES: Limits = {
    Precision.FP32: _EXACT,
    Precision.FP16: {"max_abs_difference": 0.02, "mean_abs_difference": 2e-3},
    Precision.BF16: {"max_abs_difference": 0.1, "mean_abs_difference": 8e-3},
    Precision.INT8: {"max_abs_difference": 0.25, "mean_abs_difference": 0.02},
}
# The share of each text's ten nearest that stay (docs/methods.md#neighbours-of-vectors): what
# cosine and differences let through, searches may not.
_NEIGHBOURS = {
    Precision.FP32: 0.995, Precision.FP16: 0.98, Precision.BF16: 0.95, Precision.INT8: 0.9
}  # fmt: skip
_VECTORS_APART: Limits = {
    Precision.FP32: {**_EXACT, "min_cosine": 0.9999},
    Precision.FP16: {
        "max_abs_difference": 0.02, "mean_abs_difference": 2e-3, "min_cosine": 0.999
    },
    Precision.BF16: {
        "max_abs_difference": 0.05, "mean_abs_difference": 5e-3, "min_cosine": 0.995
    },
    Precision.INT8: {
        "max_abs_difference": 0.15, "mean_abs_difference": 0.02, "min_cosine": 0.95
    },
}  # fmt: skip
_SEARCHED: Limits = {
    precision: {"min_neighbours": _NEIGHBOURS[precision], **limits}
    for precision, limits in _VECTORS_APART.items()
}
_EQUAL_LABELS = {
    Precision.FP32: 0.995, Precision.FP16: 0.99, Precision.BF16: 0.98, Precision.INT8: 0.98
}  # fmt: skip


class AgreementKind(Enum):
    """What is counted beside differences."""

    EQUAL_LABELS = "equal labels"
    COSINE = "cosine"
    NONE = "none"


@dataclass(frozen=True)
class TaskForm:
    """One task.

    Attributes:
        loader: the class of transformers that loads the original.
        exported: what of the network's result the exported graph ends in.
        architecture: how the names of such architectures end.
        outputs: names that the meant output of a registered graph may have, the best first.
        telling: of these, the names that tell the task of a graph without ``config.json``.
        joined: names of the outputs that are joined to one: dense ``[batch, n]``, of all tokens but
            the first ``[batch, length - 1, n]``, and a weight a token ``[batch, length, 1]``.
        pooling: how token vectors, in which the graph may end, become one if no file says it
            (``PoolingMode``); empty if they don't.
        has_labels: whether there is a name for each value; otherwise the manifest has a dimension.
        one_label: whether there is just one.
        stacked: outputs of ``[batch, length]`` that become the columns of the one that is meant.
        columns: what the values are, if the files do not say it.
        named: how one of the labels must begin, in any case; empty if any will do.
        regressions: whether a model that gives numbers and no probabilities may do it.
        pairs: whether evaluation texts may be pairs.
        agreement: what is counted beside differences.
        sentences_class: the class of sentence-transformers that loads what that library wrote;
            empty if transformers does.
        encoder_decoder: the loader of those with an encoder of their own; empty for none such.
        generates: whether it writes text, token by token.
        own_network: whether the network is of no library that loads it: ``graph.span_network`` has
            it, and nothing else is tried.
        scaled: whether differences are divided by the mean length of the original's vectors.
        limits: what each figure of a precision is held to.
    """

    loader: str
    exported: str
    architecture: tuple[str, ...]
    outputs: tuple[str, ...]
    limits: Limits
    agreement: AgreementKind
    telling: frozenset[str] = frozenset({"logits"})
    joined: tuple[str, ...] = ()
    pooling: str = ""
    sentences_class: str = ""
    has_labels: bool = True
    one_label: bool = False
    stacked: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    named: str = ""
    regressions: bool = True
    pairs: bool = True
    scaled: bool = False
    encoder_decoder: str = ""
    generates: bool = False
    own_network: bool = False


# Of probabilities of tokens. A text has hundreds of them, so that the largest difference is of the
# rarest token; mean and equal labels say what entities are like.
_TOKENS: Limits = {
    Precision.FP32: _EXACT,
    Precision.FP16: {"max_abs_difference": 0.1, "mean_abs_difference": 2e-3},
    Precision.BF16: {"max_abs_difference": 0.4, "mean_abs_difference": 8e-3},
    Precision.INT8: {"max_abs_difference": 0.75, "mean_abs_difference": 0.02},
}
# Of logits of tokens, divided by their mean length. Chosen: no trained model was measured.
_SPANS: Limits = {
    Precision.FP32: _EXACT,
    Precision.FP16: {"max_abs_difference": 0.1, "mean_abs_difference": 5e-3},
    Precision.BF16: {"max_abs_difference": 0.4, "mean_abs_difference": 0.02},
    Precision.INT8: {"max_abs_difference": 1.0, "mean_abs_difference": 0.05},
}
_CLASSIFIED: Limits = {
    precision: {**limits, "min_equal_labels": _EQUAL_LABELS[precision]}
    for precision, limits in _PROBABILITIES.items()
}
_CLASSIFIER = TaskForm(
    loader="AutoModelForSequenceClassification",
    exported="logits",
    architecture=("ForSequenceClassification",),
    outputs=_LOGITS,
    limits=_CLASSIFIED,
    agreement=AgreementKind.EQUAL_LABELS,
)
_VECTORS_OF_TEXTS = TaskForm(
    loader="AutoModel",
    exported=STATES,
    architecture=("Model",),
    outputs=(),
    limits=_VECTORS_APART,
    agreement=AgreementKind.COSINE,
    telling=frozenset(),
    has_labels=False,
    pairs=False,
    scaled=True,
)
FORMS: Mapping[Task, TaskForm] = MappingProxyType(
    {
        # Before embeddings, for whose encoders such an architecture could be taken as well.
        # Differences are of the probabilities of tokens; equal labels, of whole texts.
        Task.TEXT_GENERATION: TaskForm(
            loader="AutoModelForCausalLM",
            exported="logits",
            encoder_decoder="AutoModelForSeq2SeqLM",
            architecture=("LMHeadModel", "ForCausalLM", "ForConditionalGeneration", "MTModel"),
            outputs=("logits",),
            limits={Precision.FP32: {**_EXACT, "min_equal_labels": 0.98}},
            agreement=AgreementKind.EQUAL_LABELS,
            telling=frozenset(),
            has_labels=False,
            pairs=False,
            generates=True,
        ),
        Task.TEXT_CLASSIFICATION: replace(_CLASSIFIER, regressions=False),
        Task.TEXT_EMBEDDING: replace(
            _VECTORS_OF_TEXTS,
            architecture=("Model", "ForMaskedLM", "ForPreTraining"),
            outputs=(*_VECTORS, *STATE_OUTPUTS),
            limits=_SEARCHED,
            telling=frozenset(
                {"embedding", "embeddings", "sentence_embedding", STATES, "token_embeddings"}
            ),
            pooling=MEAN,
            sentences_class="SentenceTransformer",
        ),
        # Limits as of other vectors: chosen, not measured on a trained model.
        Task.SPARSE_EMBEDDING: replace(
            _VECTORS_OF_TEXTS,
            loader="AutoModelForMaskedLM",
            exported="logits",
            architecture=("ForMaskedLM",),
            outputs=("sparse_embedding", "logits", "output"),
            limits=_SEARCHED,
            telling=frozenset({"sparse_embedding"}),
            pooling=SPLADE,
            sentences_class="SparseEncoder",
        ),
        # Rows are of tokens. Limits as of other vectors, but for neighbours of single tokens, which
        # nobody searches by themselves.
        Task.HYBRID_EMBEDDING: replace(
            _VECTORS_OF_TEXTS,
            outputs=("hybrid_embedding",),
            telling=frozenset({"colbert_vecs"}),
            joined=("dense_vecs", "colbert_vecs", "sparse_vecs"),
        ),
        # Told by its modules only: no architecture says what is left out of documents.
        Task.MULTI_VECTOR_EMBEDDING: replace(
            _VECTORS_OF_TEXTS,
            architecture=(),
            outputs=("multi_vector_embedding", *STATE_OUTPUTS),
            pooling=EACH_TOKEN,
            sentences_class="MultiVectorEncoder",
            pairs=True,
        ),
        Task.TEXT_RANKING: replace(
            _CLASSIFIER,
            limits=_PROBABILITIES,
            agreement=AgreementKind.NONE,
            sentences_class="CrossEncoder",
            one_label=True,
        ),
        Task.TOKEN_CLASSIFICATION: TaskForm(
            loader="AutoModelForTokenClassification",
            exported="logits",
            architecture=("ForTokenClassification",),
            outputs=_LOGITS,
            limits={
                precision: {**limits, "min_equal_labels": _EQUAL_LABELS[precision]}
                for precision, limits in _TOKENS.items()
            },
            agreement=AgreementKind.EQUAL_LABELS,
            pairs=False,
        ),
        Task.ZERO_SHOT_CLASSIFICATION: replace(_CLASSIFIER, named=ENTAILED),
        # No trained model was measured, so that float32 alone has limits.
        Task.ENTITY_RECOGNITION: TaskForm(
            loader="",
            exported="logits",
            architecture=("GLiNER",),
            outputs=("logits",),
            limits={Precision.FP32: _EXACT},
            agreement=AgreementKind.NONE,
            telling=frozenset(),
            has_labels=False,
            pairs=False,
            own_network=True,
        ),
        Task.QUESTION_ANSWERING: TaskForm(
            loader="AutoModelForQuestionAnswering",
            exported="logits",
            architecture=("ForQuestionAnswering",),
            outputs=_LOGITS,
            limits=_SPANS,
            agreement=AgreementKind.NONE,
            stacked=("start_logits", "end_logits"),
            columns=("start", "end"),
            scaled=True,
        ),
        **load_installed(FORMS_GROUP),
    }
)  # fmt: skip

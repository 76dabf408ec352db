"""The package manifest: everything about one immutable, content-addressed model package.

A package is a folder ``<store>/<package id>/`` with ``manifest.json`` and the files it lists. The
id is the SHA-256 of the manifest's canonical bytes, and the manifest holds the SHA-256 of every
file, so that the id is enough to prove every byte. No clock enters it: the same inputs and
options make the same package.
"""

import hashlib
import json
from enum import StrEnum
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

from contracts.endpoint import Precision
from contracts.features import Feature
from contracts.model import SPACE_ID, ModelRef
from contracts.profile import ReferenceProfile
from contracts.tasks import Task
from contracts.tensors import TensorSpec

MANIFEST = "manifest.json"
MODEL_ONNX = "model.onnx"
ENCODER_ONNX = "encoder.onnx"  # of an encoder-decoder, whose decoder is ``MODEL_ONNX``
TOKENIZER = "tokenizer.json"
CODE = "code.zip"  # that the version brings for gateways, if there is any
PYFUNC = "pyfunc.zip"  # in place of a graph: Python of the users' own, with its packages
WEIGHTS = "model.safetensors"  # of a packed engine, in place of a graph
MODEL_CONFIG = "config.json"  # of a packed engine: transformers' own
DEVICE_PROOF = "proof.json"  # of packages for GPUs: rows and the original's values of them
CONFIG_PYTHON = "config.python.pbtxt"  # for Triton's Python backend
CONFIG_ONNXRUNTIME = "config.onnxruntime.pbtxt"  # for Triton's native ONNX Runtime backend


class EngineKind(StrEnum):
    """What runs a package in Triton, and so what a batch looks like.

    ``padded``: a graph, whose rows are padded to one of the length buckets. ``packed``: the model's
    own weights by torch, whose rows follow one another without padding (``contracts.tasks``).
    """

    PADDED = "padded"
    PACKED = "packed"


class _ManifestModel(BaseModel):
    """A part of the manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PackageFile(_ManifestModel):
    """Proof of one file of the package."""

    sha256: str
    bytes: int = Field(ge=0)


class QueryDocumentSpec(_ManifestModel):
    """How a model of late interaction reads queries and documents, each in a way of its own.

    A text is a query if its prompt is called so (``contracts.tasks.QUERY``), else a document.
    """

    query_tokens: int = Field(ge=1, description="longest row of a query")
    document_tokens: int = Field(ge=1, description="longest row of a document")
    filled_to: int = Field(0, description="tokens that a query has at least")
    fill_id: int | None = Field(
        None, description="what shorter ones are filled with; beyond the vocabulary: not attended"
    )
    left_out: tuple[int, ...] = Field((), description="tokens whose vectors are not answered")
    left_out_of_queries: bool = False
    left_out_of_documents: bool = True
    only: tuple[int, ...] = Field(
        (), description="if there are some: all others are left out of documents"
    )
    mean: bool = Field(False, description="a score is a mean over the query's tokens, and no sum")


class SpanSpec(_ManifestModel):
    """How a model that finds spans by its caller's labels reads a row, and its bounds.

    A row is the labels, a mark before each, another mark, and the words of the text.
    """

    label_mark: str = "<<ENT>>"
    text_mark: str = "<<SEP>>"
    most_words: int = Field(384, ge=1, description="of a text; what is behind them is not read")
    widest: int = Field(12, ge=1, description="words of a span, at most")
    most_labels: int = Field(25, ge=1, description="that one request may name")


class TokenizerSpec(_ManifestModel):
    """What the gateway needs beside ``tokenizer.json`` to make the model's tensors.

    Of a model of tables, whose package has no such file, it says only how long a row is:
    ``max_tokens`` are the 32-bit words of its numbers.

    ``prompts``: what goes before a text, by the names that the model's own files give them.
    """

    max_tokens: int = Field(ge=1, description="longest row, special tokens included")
    pad_id: int
    pad_type_id: int = 0
    unk_id: int | None = Field(None, description="none for byte-level vocabularies")
    vocabulary: int
    prompts: dict[str, str] = {}
    default_prompt: str | None = Field(None, description="name of the usual one, if there is one")
    sides: QueryDocumentSpec | None = Field(None, description="of late interaction")
    spans: SpanSpec | None = Field(None, description="of entity-recognition")


class VectorRanges(_ManifestModel):
    """Which values each dimension of a model's vectors had, over the texts of the parity report.

    A vector in int8 is made by them.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]


class TokenRules(_ManifestModel):
    """What an encoder-decoder's generation config forces and forbids, under its own names there."""

    forced_bos_token_id: int | None = Field(None, description="the first that is written")
    forced_eos_token_id: int | None = Field(
        None, description="the last of a text that has as many tokens as were asked for"
    )
    bad_words_ids: tuple[tuple[int, ...], ...] = Field(
        (), description="sequences that are never written, in order"
    )
    no_repeat_ngram_size: int | None = Field(
        None, ge=1, description="sequences of this many tokens are written once"
    )
    min_new_tokens: int | None = Field(None, ge=1, description="before a text may end")


class GenerationSpec(_ManifestModel):
    """How a model that generates text begins, goes on and ends.

    Prompt and text have ``max_tokens`` together; of an encoder-decoder, each of them.
    """

    stop_ids: tuple[int, ...] = Field((), description="tokens that end a text")
    start_id: int | None = Field(
        None, description="of an encoder-decoder: the token before the first that is written"
    )
    rules: TokenRules = TokenRules()

    def room(self, max_tokens: int, prompt: int) -> int:
        """Tokens that may be written after such a prompt; not above 0 if it is too long."""
        return max_tokens - prompt if self.start_id is None else max_tokens


class PyfuncSpec(_ManifestModel):
    """How a model that is Python of its users' own is run.

    ``example`` is a row that it answers, as the engine takes it: other models are tried with zeros.
    """

    python: str = Field(description="minor version that its packages are for, such as 3.11")
    example: tuple[float, ...]
    model_bytes: int = Field(ge=0, description="of the model's files, unpacked")
    site_bytes: int = Field(ge=0, description="of its packages' files, unpacked")

    @property
    def unpacked_bytes(self) -> int:
        """Of all files that its archive holds."""
        return self.model_bytes + self.site_bytes


class PackedDense(_ManifestModel):
    """A layer after pooling: a safetensors file of the package and its activation's name."""

    file: str
    activation: str


class PackedSpec(_ManifestModel):
    """How the packed engine runs a model: what loads it, and what follows its token vectors.

    ``modes``: of pooling, by the names of sentence-transformers; vectors of several are joined end
    to end. Empty if the answer is what the loaded class itself gives, as logits are.
    """

    loader: str = Field(description="class of transformers, such as AutoModel")
    type_ids: bool = Field(description="whether it reads token_type_ids")
    modes: tuple[str, ...] = ()
    dense: tuple[PackedDense, ...] = ()
    normalise: bool = False


class FixedSpec(_ManifestModel):
    """Of a graph that was fused for GPUs: it runs in fixed shapes only, all warm before it serves.

    The shapes are every number of ``rows`` with every one of the manifest's ``length_buckets``, as
    far as ``preprocess.buckets.fixed_shapes`` lets them.
    """

    rows: tuple[int, ...] = Field(description="ascending; the last is max_batch_size")
    fused: dict[str, int] = Field(description="operators that took the place of several, by name")


class Parity(_ManifestModel):
    """The engine against the original, over real texts of many lengths."""

    texts: int
    reference: str = Field(description="what it was compared with: onnx-fp32, transformers, ...")
    max_abs_difference: float
    mean_abs_difference: float
    equal_labels: float | None = Field(
        None, description="share, for classifiers; of whole texts if they are generated"
    )
    min_cosine: float | None = Field(None, description="of any vector to the original's")
    neighbours: float | None = Field(
        None, description="share of each text's ten nearest that the original has, mean"
    )
    batch_max_abs_difference: float = Field(
        description="a text by itself against the same text among others, in every bucket"
    )
    limits: dict[str, float] = Field({}, description="what each figure was held to")
    fallback: str = Field("", description="why something faster was given up, if it was")
    device: str = Field("", description="GPU that the engine ran on; empty for a CPU")


class DataSet(_ManifestModel):
    """A data set that the run logged."""

    name: str
    digest: str = ""
    context: str = Field("", description="training, evaluation, ...")


class Lineage(_ManifestModel):
    """Where the version came from."""

    registered_model: str
    version: str
    run_id: str = ""
    source: str = ""
    git_commit: str = ""
    data_sets: tuple[DataSet, ...] = ()


class Manifest(_ManifestModel):
    """All that is known of a package."""

    schema_version: Literal[1] = 1
    model: str
    version: str
    task: Task
    multi_label: bool = Field(False, description="scores by sigmoid a class, not softmax over them")
    labels: tuple[str, ...] = ()
    dimension: int | None = Field(None, description="of an embedding")
    space: str = Field(
        "", pattern=SPACE_ID.pattern, description="of its vectors; empty: it makes none"
    )
    precision: Precision
    engine: EngineKind = EngineKind.PADDED
    packed: PackedSpec | None = Field(None, description="of a packed engine")
    fixed: FixedSpec | None = Field(None, description="of a graph that was fused for GPUs")
    max_batch_size: int
    length_buckets: tuple[int, ...] = Field(description="row lengths, ascending; last = max tokens")
    tokenizer: TokenizerSpec
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    files: dict[str, PackageFile]
    profile: ReferenceProfile | None = None
    parity: Parity | None = None
    ranges: VectorRanges | None = None
    features: tuple[Feature, ...] = Field((), description="of a row, in order; none for texts")
    answers: tuple[Feature, ...] = Field((), description="what is counted of answers like features")
    has_code: bool = Field(False, description="gateways must run its code.zip around the model")
    generation: GenerationSpec | None = Field(None, description="of a model that generates text")
    pyfunc: PyfuncSpec | None = Field(None, description="of a model that is Python of its users'")
    lineage: Lineage
    created_by: str = Field(description="program and version")

    @property
    def counted_labels(self) -> tuple[str, ...]:
        """What answers are counted under: the labels, or the types of entities, by the profile."""
        counted = () if self.profile is None else tuple(self.profile.labels)
        return counted if counted and set(counted) != set(self.labels) else self.labels

    def canonical(self) -> bytes:
        """The bytes that are stored and hashed: JSON with sorted keys and no spaces, UTF-8."""
        data = self.model_dump(mode="json")
        return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    def package_id(self) -> str:
        """SHA-256 of the canonical bytes, hex."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def ref(self) -> ModelRef:
        """The reference under which routes, events and Triton know this package."""
        return ModelRef(
            model=self.model, version=self.version, package=self.package_id(), space=self.space
        )

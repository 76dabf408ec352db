"""A small world for the gateway's core: packages of a word-level tokeniser, engines that obey."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers

from contracts.endpoint import (
    Arm,
    EndpointLimits,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Precision,
    Route,
)
from contracts.events import Feedback, Latency, PredictionEvent, TextRecord
from contracts.manifest import (
    CODE,
    TOKENIZER,
    EngineKind,
    GenerationSpec,
    Lineage,
    Manifest,
    PackageFile,
    TokenizerSpec,
)
from contracts.model import ModelRef
from contracts.rollout import RolloutState
from contracts.tasks import ROW_STARTS, Task, packed_inputs
from contracts.tensors import Datatype, TensorSpec
from gateway.calls import Call, CallerHashes
from gateway.engine.protocol import (
    Ending,
    EngineError,
    EngineMissingModelError,
    EngineTimeoutError,
    EngineUnavailableError,
    Prompt,
    TokenChunk,
    Work,
)
from gateway.packages import ServedModel, open_package
from preprocess.tasks.generation import FINISHES

LABELS = ("negative", "positive")
WORDS = tuple(f"w{number}" for number in range(50))


def tokenizer_json() -> bytes:
    """One token a word; unknown words are token 1, padding token 0."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1} | {word: i + 2 for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    content: str = tokenizer.to_str()
    return content.encode()


def text_of(tokens: int, start: int = 0) -> str:
    """A text of so many tokens."""
    return " ".join(WORDS[(start + i) % len(WORDS)] for i in range(tokens))


def manifest_of(
    version: str = "1",
    *,
    model: str = "sentiment",
    max_batch_size: int = 8,
    buckets: tuple[int, ...] = (4, 8, 16),
    labels: tuple[str, ...] = LABELS,
    multi_label: bool = False,
    task: Task = Task.TEXT_CLASSIFICATION,
    code: bytes | None = None,
    packed: bool = False,
) -> Manifest:
    """A classifier of two labels, rows of at most the last bucket's tokens."""
    content = tokenizer_json()
    held = {TOKENIZER: content} if code is None else {TOKENIZER: content, CODE: code}
    padded = tuple(
        TensorSpec(name=name, datatype=Datatype.INT64, shape=(-1, -1))
        for name in ("input_ids", "attention_mask")
    )
    return Manifest(
        engine=EngineKind.PACKED if packed else EngineKind.PADDED,
        model=model,
        version=version,
        task=task,
        labels=labels,
        multi_label=multi_label,
        precision=Precision.FP32,
        max_batch_size=max_batch_size,
        length_buckets=buckets,
        tokenizer=TokenizerSpec(max_tokens=buckets[-1], pad_id=0, unk_id=1, vocabulary=52),
        inputs=packed_inputs(type_ids=False) if packed else padded,
        outputs=(TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, len(labels))),),
        files={
            name: PackageFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
            for name, data in held.items()
        },
        has_code=code is not None,
        lineage=Lineage(registered_model=model, version=version),
        created_by="tests",
    )


def of_three_tasks() -> tuple[Manifest, ...]:
    """A classifier, an embedder (``minilm``) and one of labels that callers give (``topics``)."""
    vectors = TensorSpec(name="embedding", datatype=Datatype.FP32, shape=(-1, 2))
    embedder = manifest_of(model="minilm", task=Task.TEXT_EMBEDDING, labels=())
    return (
        manifest_of(),
        embedder.model_copy(update={"dimension": 2, "outputs": (vectors,)}),
        manifest_of(
            model="topics",
            task=Task.ZERO_SHOT_CLASSIFICATION,
            labels=("entailment", "not_entailment"),
        ),
    )


def model_of(
    version: str = "1",
    *,
    max_batch_size: int = 8,
    buckets: tuple[int, ...] = (4, 8, 16),
    code: bytes | None = None,
    packed: bool = False,
    task: Task = Task.TEXT_CLASSIFICATION,
) -> ServedModel:
    """An opened package."""
    manifest = manifest_of(
        version,
        max_batch_size=max_batch_size,
        buckets=buckets,
        code=code,
        packed=packed,
        task=task,
    )
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json(), code)


def writer_of(
    version: str = "1",
    *,
    rows: int = 2,
    longest: int = 32,
    stop_ids: tuple[int, ...] = (),
    start_id: int | None = None,
) -> ServedModel:
    """An opened package that writes text.

    Prompt and text have ``longest`` tokens together; each of them where there is a ``start_id``.
    """
    plain = manifest_of(version, max_batch_size=rows, buckets=(8, 16, longest), labels=FINISHES)
    manifest = plain.model_copy(
        update={
            "task": Task.TEXT_GENERATION,
            "generation": GenerationSpec(stop_ids=stop_ids, start_id=start_id),
        }
    )
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


def endpoint_of(
    stable: ModelRef | None,
    *,
    name: str = "sentiment",
    canary: ModelRef | None = None,
    control: ModelRef | None = None,
    weight: float = 0.0,
    shadow: ModelRef | None = None,
    shadowed: float = 100.0,
    rollout: str = "",
    packages: Iterable[ModelRef] = (),
    limits: EndpointLimits | None = None,
) -> ModelEndpoint:
    """An endpoint that routes to these packages.

    ``weight`` is the canary's or the control's, ``shadowed`` the shadow's, ``rollout`` the id of
    the one that goes on.
    """
    # Not in the split's order: that is the gateway's to keep.
    routes = [] if control is None else [Route(arm=Arm.CONTROL, ref=control, weight=weight)]
    if stable is not None:
        routes.append(Route(arm=Arm.STABLE, ref=stable, weight=100 - weight))
    if canary is not None:
        routes.append(Route(arm=Arm.CANARY, ref=canary, weight=weight))
    if shadow is not None:
        routes.append(Route(arm=Arm.SHADOW, ref=shadow, weight=shadowed))
    candidate = canary or shadow or stable
    state = None
    if rollout and candidate is not None and stable is not None:
        state = RolloutState(
            id=rollout, candidate=candidate, stable=control or stable, began=0.0, step_began=0.0
        )
    return ModelEndpoint(
        metadata=Metadata(name=name),
        spec=EndpointSpec(model="sentiment", limits=limits or EndpointLimits(timeout_seconds=60)),
        status=EndpointStatus(routes=tuple(routes), packages=tuple(packages), rollout=state),
    )


def call_of(
    *texts: str,
    endpoint: str = "sentiment",
    timeout: float = 60.0,
    request_id: str = "r1",
    forced_version: str | None = None,
    sticky_key: str | None = None,
    caller: str | None = None,
    pairs: list[str] | None = None,
    truncate: bool = True,
) -> Call:
    """A call that has just arrived."""
    now = monotonic()
    return Call(
        endpoint=endpoint,
        texts=list(texts),
        request_id=request_id,
        received=1.0,
        started=now,
        deadline=now + timeout,
        forced_version=forced_version,
        sticky_key=sticky_key,
        caller_hash=CallerHashes().of(endpoint, sticky_key),
        caller=caller,
        pairs=pairs,
        truncate=truncate,
    )


def event_of(*texts: TextRecord, **fields: object) -> PredictionEvent:
    """An answered attempt of version 1, with these fields in place of the usual ones."""
    usual: dict[str, Any] = {
        "request_id": "r",
        "time": 0.0,
        "endpoint": "sentiment",
        "version": "1",
        "package": "a" * 64,
        "arm": Arm.STABLE,
        "status": 200,
        "answered": True,
        "latency": Latency(0, 0, 0, 0, 0),
        "texts": list(texts),
    }
    return PredictionEvent(**usual | fields)


def answered_text(label: str | None = "positive", score: float | None = 0.5) -> TextRecord:
    return TextRecord(1, 1, 0, False, label, score)


def logits_of(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """What ``FakeEngine`` answers for rows of tokens: it depends on each row alone."""
    sums = ids.sum(axis=1).astype(np.float32)
    return np.stack([sums % 7, np.ones_like(sums)], axis=1)


def padded_again(ids: NDArray[np.int64], starts: NDArray[np.int32]) -> NDArray[np.int64]:
    """Rows of a packed batch, with padding tokens to the longest."""
    lengths = np.diff(starts)
    rows = np.zeros((len(lengths), max(lengths)), np.int64)
    rows[np.arange(max(lengths)) < lengths[:, None]] = ids
    return rows


@dataclass
class FakeEngine:
    """Answers at once; holds its answers, fails or is away where it is told to."""

    held: asyncio.Event | None = None
    error: EngineError | None = None
    here: bool = True
    holds: set[str] | None = None  # models; None: all
    answer: Callable[[NDArray[np.int64]], NDArray[np.float32]] | None = None  # None: ``logits_of``
    others: dict[str, "FakeEngine"] = field(default_factory=dict)  # for some models
    works: list[Work] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)  # seconds that each batch was given
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    prompts: list[Prompt] = field(default_factory=list)
    streams: list["FakeStream"] = field(default_factory=list)
    breaks_after: int | None = None  # tokens of each text; then ``error``, or it is held

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        """See ``EngineKind``; runs into the timeout as a real one does."""
        if work.model in self.others:
            return await self.others[work.model].infer(work, timeout_seconds)
        self.works.append(work)
        self.timeouts.append(timeout_seconds)
        if self.held is not None:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self.held.wait()
            except TimeoutError as error:
                raise EngineTimeoutError("held") from error
        if not self.here:
            raise EngineUnavailableError("away")
        if self.holds is not None and work.model not in self.holds:
            raise EngineMissingModelError("not held")
        if self.error is not None:
            raise self.error
        ids: NDArray[np.int64] = work.tensors["input_ids"]
        starts = work.tensors.get(ROW_STARTS)
        if starts is not None:
            ids = padded_again(ids, starts)
        return (self.answer or logits_of)(ids)

    def generate(self, prompt: Prompt, timeout_seconds: float) -> "FakeStream":
        """See ``EngineKind``: the prompt's tokens, again and again."""
        if prompt.model in self.others:
            return self.others[prompt.model].generate(prompt, timeout_seconds)
        self.prompts.append(prompt)
        stream = FakeStream(self, prompt)
        self.streams.append(stream)
        return stream

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        return self.here and (self.holds is None or model in self.holds)

    async def close(self) -> None:
        self.closed.set()

    def release(self) -> None:
        """Lets what is held go on."""
        assert self.held is not None
        self.held.set()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Rows and length of every batch."""
        return [work.tensors["input_ids"].shape for work in self.works]


@dataclass
class FakeStream:
    """The tokens of one prompt; holds them, fails or is away where its engine is told to."""

    engine: FakeEngine
    prompt: Prompt
    count: int = 0
    closed: bool = False

    async def next(self) -> TokenChunk:
        engine, prompt = self.engine, self.prompt
        if not engine.here:
            raise EngineUnavailableError("away")
        if engine.holds is not None and prompt.model not in engine.holds:
            raise EngineMissingModelError("not held")
        if self.count == (engine.breaks_after or 0):
            if engine.held is not None:
                await engine.held.wait()
            if engine.error is not None:
                raise engine.error
        await asyncio.sleep(0)
        token = prompt.ids[self.count % len(prompt.ids)]
        self.count += 1
        if token in prompt.stop_ids:
            return TokenChunk([token], Ending.STOPPED)
        return TokenChunk([token], Ending.AT_LIMIT if self.count >= prompt.most else None)

    def close(self) -> None:
        self.closed = True


@dataclass
class MemoryRecorder:
    """Keeps what happened."""

    events: list[PredictionEvent] = field(default_factory=list)
    refusals: list[tuple[str, int, str]] = field(default_factory=list)
    told: list[Feedback] = field(default_factory=list)

    def attempt(self, event: PredictionEvent) -> None:
        self.events.append(event)

    def refusal(self, endpoint: str, status: int, reason: str) -> None:
        self.refusals.append((endpoint, status, reason))

    def feedback(self, told: Feedback) -> None:
        self.told.append(told)


async def loop_turns(count: int = 5) -> None:
    """Lets the event loop turn: whatever was woken has then run."""
    for _ in range(count):
        await asyncio.sleep(0)

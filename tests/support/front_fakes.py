"""Small stand-ins for what the fronts are built on, and the application over them."""

import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import httpx
import numpy as np
from gateway_world import MemoryRecorder
from tiny_models import VOCABULARY, asking_tokenizer, tokenizer

from contracts.endpoint import Arm, Guardrail
from contracts.manifest import QueryDocumentSpec, SpanSpec, TokenizerSpec
from contracts.model import ModelRef
from contracts.tasks import GIVE_VECTORS, Task
from gateway.admission.byte_budget import ByteBudget
from gateway.admission.controller import AdmissionController, Capacity, Waking
from gateway.admission.rate_limits import RateLimits
from gateway.admission.request_scheduler import RequestScheduler
from gateway.admission.token_budget import TokenBudget
from gateway.app import Application, create_app, create_operations
from gateway.batch_jobs.objects import ObjectFolder
from gateway.batch_jobs.store import BatchStore
from gateway.calls import Answer, Call, EndpointView
from gateway.dialects.front import Front
from gateway.errors import (
    ForbiddenError,
    GatewayError,
    TooLargeError,
    UnauthenticatedError,
    UnknownEndpointError,
    UnknownVersionError,
)
from gateway.events.buffer import Recorder
from gateway.http.body import HttpLimits
from gateway.inference.encoding import encode
from gateway.inference.feedback import FeedbackReceiver
from gateway.inference.receipts import Receipts
from gateway.inference.tokens import MOST_CHARACTERS, refusing
from preprocess.encoder import EncodedTexts, TextEncoder
from preprocess.labelled_words import EntityEncoder
from preprocess.late_interaction import QueryDocumentEncoder
from preprocess.tokens import Token, texts_of, tokens_of
from preprocess.windows import ContextEncoder, WindowEncoder

LABELS = ("negative", "neutral", "positive")
ENTAILMENT = ("contradiction", "neutral", "entailment")
TAGS = ("O", "B-FOOD", "I-FOOD", "WEATHER")
WINDOWS = WindowEncoder(
    tokenizer().to_str().encode(),
    TokenizerSpec(max_tokens=16, pad_id=0, unk_id=1, vocabulary=VOCABULARY),
)
WORDS = TextEncoder(
    tokenizer().to_str().encode(),
    TokenizerSpec(max_tokens=128, pad_id=0, unk_id=1, vocabulary=VOCABULARY),
)
CONTEXTS = ContextEncoder(
    asking_tokenizer().to_str().encode(),
    TokenizerSpec(max_tokens=16, pad_id=0, unk_id=1, vocabulary=VOCABULARY),
)
SIDES = QueryDocumentEncoder(
    tokenizer().to_str().encode(),
    TokenizerSpec(
        max_tokens=128, pad_id=0, unk_id=1, vocabulary=VOCABULARY,
        prompts={"query": "", "document": ""}, default_prompt="document",
        sides=QueryDocumentSpec(
            query_tokens=8, document_tokens=128, filled_to=8, fill_id=VOCABULARY,
            left_out=(tokenizer().token_to_id("the"),),
        ),
    ),
)  # fmt: skip
ASKED = EntityEncoder(
    tokenizer().to_str().encode(),
    TokenizerSpec(
        max_tokens=40, pad_id=0, unk_id=1, vocabulary=VOCABULARY,
        spans=SpanSpec(widest=2, most_labels=3),
    ),
)  # fmt: skip
MAX_CHARACTERS = 1000
BYTES = 384 * 1024 * 1024  # of callers together
_MOST_COUNTED = 100_000  # characters, whose words are tokens
RECEIPT = "AZmp"
PROMPTS = {"query": "query: ", "none": ""}  # of the embedder, which uses none of them by itself
RANGES = np.array([[0, 0, 0, 0], [1, 0.5, 0.5, 0.5]], np.float32)  # of its four dimensions


def ref(name: str, version: str = "3", space: str = "") -> ModelRef:
    """A reference with a digest made up from the version."""
    return ModelRef(model=name, version=version, package=(version * 64)[:64], space=space)


def space_of(version: str) -> str:
    """The space of an embedder's version: another one for each."""
    return version * 12


def _dimension(task: Task) -> int | None:
    if task is Task.ENTITY_RECOGNITION:
        return 6
    dense = {Task.TEXT_EMBEDDING, Task.HYBRID_EMBEDDING, Task.MULTI_VECTOR_EMBEDDING}
    return 4 if task in dense else None


def view(name: str, task: Task, versions: tuple[str, ...] = ("3", "2")) -> EndpointView:
    embeds, sided = task is Task.TEXT_EMBEDDING, Task.MULTI_VECTOR_EMBEDDING
    labels = {
        Task.TEXT_EMBEDDING: (),
        Task.SPARSE_EMBEDDING: (),
        Task.HYBRID_EMBEDDING: (),
        Task.MULTI_VECTOR_EMBEDDING: (),
        Task.ENTITY_RECOGNITION: (),
        Task.TEXT_RANKING: LABELS[-1:],
        Task.TOKEN_CLASSIFICATION: TAGS,
        Task.ZERO_SHOT_CLASSIFICATION: ENTAILMENT,
        Task.QUESTION_ANSWERING: ("start", "end"),
    }.get(task, LABELS)
    return EndpointView(
        name=name,
        task=task,
        refs=tuple(
            ref(name, version, space_of(version) if task in GIVE_VECTORS else "")
            for version in versions
        ),
        labels=labels,
        dimension=_dimension(task),
        max_tokens=128,
        max_texts=64,
        max_tokens_in_flight=10_000,
        timeout_seconds=60.0,
        ready=True,
        prompts=tuple(PROMPTS) if embeds else ("document", "query") if task is sided else (),
        has_ranges=embeds,
    )


def guard(task: Task = Task.TEXT_CLASSIFICATION, name: str = "guard", **rules: Any) -> EndpointView:
    """An endpoint whose clients of guardrails are told what is positive, or food."""
    label = "FOOD" if task is Task.TOKEN_CLASSIFICATION else "positive"
    rules = {"labels": {label: 0.5}, **rules}
    return replace(view(name, task), guardrail=Guardrail(**rules))


def scores(text: str, pair: str = "") -> list[float]:
    """Three probabilities that depend on the text alone."""
    raw = np.array([len(text) % 7 + 1.0, 1.0, text.count("good") * 9.0 + len(pair) % 3], np.float32)
    return [float(x) for x in raw / raw.sum()]


def logit(text: str, pair: str) -> float:
    """How well a pair's texts go together: the words that both have, less the second's length."""
    return float(len(set(text.split()) & set(pair.split())) - len(pair.split()) / 8)


def entailment(text: str, pair: str) -> list[float]:
    """Logits of entailment: the more, the more words of the second text are in the first."""
    shared = len(set(text.split()) & set(pair.strip(".").split()))
    return [1.0 - shared, 0.5, shared + len(pair) / 64]


def vector(text: str) -> list[float]:
    """Four numbers of norm 1 that depend on the text alone."""
    raw = np.array([len(text) + 1.0, text.count("a"), text.count("e"), 1.0], np.float32)
    return [float(x) for x in raw / np.linalg.norm(raw)]


def sparse(text: str) -> list[float]:
    """Weights of six tokens, half of them 0 as a rule, that depend on the text alone."""
    return [float(text.count(letter)) for letter in "aeioux"]


def rows_of_tokens(encoded: EncodedTexts) -> list[list[float]]:
    """Of each token four numbers and a weight, by its id; the first row is of the whole text."""
    return [
        [float(len(ids) if at == 0 else token), 1.0, 0.0, 2.0, float(token % 3)]
        for ids in encoded.ids
        for at, token in enumerate(ids)
    ]


def vectors_of_tokens(encoded: EncodedTexts) -> list[list[float]]:
    """Of each token four numbers by its id, one of them 1."""
    return [
        [float(token % 4 == place) + token % 3 / 8 for place in range(4)]
        for ids in encoded.ids
        for token in ids
    ]


def tag_scores(encoded: EncodedTexts) -> list[list[float]]:
    """Soup is food and rain is weather, each token by itself."""
    tags = {"soup": 1, "rain": 3}
    return [
        [0.7 if column == tags.get(WINDOWS.token(token), 0) else 0.1 for column in range(len(TAGS))]
        for ids in encoded.ids
        for token in ids
    ]


def span_logits(encoded: EncodedTexts) -> list[list[float]]:
    """Soup is the answer, else rain, else there is none."""
    sure = {"soup": 9.0, "rain": 5.0, "[CLS]": 3.0}
    return [[sure.get(CONTEXTS.token(token), 0.0)] * 2 for ids in encoded.ids for token in ids]


def span_scores(encoded: EncodedTexts) -> list[list[float]]:
    """Soup is what the first label says, a word with its next one what the second one says."""
    windows = encoded.windows
    assert windows is not None
    rows: list[list[float]] = []
    for text, places, tokens in zip(windows.texts, windows.offsets, encoded.tokens, strict=True):
        words = [text[start:end] for start, end in places]
        rows += [[0.9 * (word == "soup"), 0, 0, 0, 0.6, 0] for word in words]
        rows += [[0.0] * 6] * (tokens - len(words))
    return rows


def ranked(text: str, pair: str) -> list[float]:
    return [logit(text, pair)]


_OF_PAIRS = {Task.TEXT_RANKING: ranked, Task.ZERO_SHOT_CLASSIFICATION: entailment}


def model_output(task: Task, call: Call) -> tuple[list[list[float]], EncodedTexts | None]:
    """What the model of a task gives, and where its rows are of tokens, these."""
    encoded = None
    pairs = call.pairs or [""] * len(call.texts)
    if task is Task.TEXT_EMBEDDING:
        prompt = PROMPTS.get(call.prompt_name or "", "")
        values = [vector(prompt + text) for text in call.texts]
    elif task is Task.SPARSE_EMBEDDING:
        values = [sparse(text) for text in call.texts]
    elif task is Task.HYBRID_EMBEDDING:
        encoded = WORDS.encode(call.texts)
        values = rows_of_tokens(encoded)
    elif task is Task.MULTI_VECTOR_EMBEDDING:
        encoded = SIDES.encode_prompted(call.texts, call.pairs, call.prompt_name)
        values = vectors_of_tokens(encoded)
    elif task is Task.TOKEN_CLASSIFICATION:
        encoded = WINDOWS.encode(call.texts)
        values = tag_scores(encoded)
    elif task is Task.ENTITY_RECOGNITION:
        encoded = encode(ASKED, call)
        values = span_scores(encoded)
    elif task is Task.QUESTION_ANSWERING:
        encoded = CONTEXTS.encode(call.texts, call.pairs)
        values = span_logits(encoded)
    else:
        of_pair = _OF_PAIRS.get(task, scores)
        values = [of_pair(text, pair) for text, pair in zip(call.texts, pairs, strict=True)]
    return values, encoded


class IdleVersion:
    """A version that serves and has no queue."""

    serves = True
    may_return = False

    def wait_seconds(self, endpoint: str) -> float:
        return 0.0

    def work_seconds(self, tokens: Iterable[int]) -> float:
        return 0.0

    def likely_tokens(self, texts: int, characters: int) -> int:
        return 1


@dataclass
class FakePredictor:
    """Answers at once from the text's own characters; fails where told to."""

    views: dict[str, EndpointView] = field(default_factory=dict)
    failure: GatewayError | Exception | None = None
    full: GatewayError | None = None
    calls: list[Call] = field(default_factory=list)
    ready: bool = True
    draining: bool = False
    notes: tuple[str, ...] = ()
    keep_calls: bool = True
    has_ranges: bool = True  # of the package that answers
    next_space: str = ""

    @classmethod
    def with_endpoints(cls) -> "FakePredictor":
        """A classifier that guards: sentiment, an embedder: minilm, a cross-encoder: reranker."""
        endpoints = (
            guard(name="sentiment"),
            view("minilm", Task.TEXT_EMBEDDING),
            view("reranker", Task.TEXT_RANKING),
        )
        return cls({endpoint.name: endpoint for endpoint in endpoints})

    @contextmanager
    def failing(self, error: Exception) -> Iterator[None]:
        """Fails every call with this error, for a while."""
        self.failure = error
        try:
            yield
        finally:
            self.failure = None

    def capacities(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> list[Capacity]:
        """One without a queue, so that there is room; but where it is said that there is none."""
        if self.full is not None:
            raise self.full
        return [IdleVersion()]

    def target(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> tuple[str, str]:
        """The default pool, and the endpoint's name for its model's."""
        return "default", endpoint

    async def predict(self, call: Call) -> Answer:
        if self.keep_calls:
            self.calls.append(call)
        if self.failure is not None:
            raise self.failure
        endpoint = self.describe(call.endpoint)
        version = call.forced_version or endpoint.refs[0].version
        if version not in [one.version for one in endpoint.refs]:
            raise UnknownVersionError(f"{call.endpoint} does not hold version {version}.")
        values, encoded = model_output(endpoint.task, call)
        return Answer(
            task=endpoint.task,
            ref=next(one for one in endpoint.refs if one.version == version),
            arm=Arm.FORCED if call.forced_version else Arm.STABLE,
            values=np.array(values, np.float32),
            tokens=[len(text[:_MOST_COUNTED].split()) + 2 for text in call.texts],
            truncated=[len(text) > MAX_CHARACTERS for text in call.texts],
            labels=endpoint.labels,
            receipt=RECEIPT,
            encoded=encoded,
            ranges=RANGES if endpoint.task is Task.TEXT_EMBEDDING and self.has_ranges else None,
            next_space=self.next_space,
        )

    async def tokens(self, call: Call, *, special: bool) -> tuple[ModelRef, Arm, list[list[Token]]]:
        found = refusing(lambda: tokens_of(WORDS.tokenizer, call.texts, special=special))
        return self.describe(call.endpoint).refs[0], Arm.STABLE, found

    async def texts(
        self, call: Call, ids: Sequence[Sequence[int]], *, skip_special: bool
    ) -> tuple[ModelRef, Arm, list[str]]:
        if sum(map(len, ids)) > MOST_CHARACTERS:
            raise TooLargeError("The request has too many token ids.")
        found = refusing(lambda: texts_of(WORDS.tokenizer, ids, skip_special=skip_special))
        return self.describe(call.endpoint).refs[0], Arm.STABLE, found

    def describe(self, endpoint: str) -> EndpointView:
        try:
            return self.views[endpoint]
        except KeyError:
            raise UnknownEndpointError(f"There is no endpoint {endpoint[:80]!r}.") from None

    def names(self) -> tuple[str, ...]:
        return tuple(self.views)


@dataclass
class FakeKeys:
    """Keys are off, or each key has its endpoints; those in ``forcing`` may name a version."""

    endpoints_of: dict[str, set[str]] | None = None
    forcing: set[str] = field(default_factory=set)

    def recognise(self, presented: str | None) -> str | None:
        if self.endpoints_of is None:
            return None
        if presented not in self.endpoints_of:
            raise UnauthenticatedError("Send an API key.")
        return presented

    def authorise_named(self, name: str | None, endpoint: str) -> str | None:
        return self.authorise(name, endpoint)

    def authorise(
        self, presented: str | None, endpoint: str, *, forces_version: bool = False
    ) -> str | None:
        """The caller's name: the key itself."""
        if self.endpoints_of is None:
            return None
        if presented is None or presented not in self.endpoints_of:
            raise UnauthenticatedError("Send an API key.")
        if endpoint not in self.endpoints_of[presented]:
            raise ForbiddenError(f"This key is not for {endpoint}.")
        if forces_version and presented not in self.forcing:
            raise ForbiddenError("This key may not name a version.")
        return presented


@dataclass
class FakeMetrics:
    """Keeps what was finished."""

    finished: list[tuple[str, int]] = field(default_factory=list)
    keep: bool = True

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        if self.keep:
            self.finished.append((dialect, status))

    def refused(self, endpoint: str, status: int, reason: str, seconds: float) -> None:
        """Counts nothing: the recorder has it."""

    def bulk_finished(self, endpoint: str, status: int, texts: int = 0, space: str = "") -> None:
        self.finished.append((f"bulk {endpoint}", status))

    def pieces(self, *, openmetrics: bool = False) -> Iterator[bytes]:
        yield b"# TYPE requests counter\nrequests_total 1.0\n"
        yield b"# EOF\n" * openmetrics

    def of_endpoint(self, endpoint: str) -> bytes:
        return f'texts_total{{endpoint="{endpoint}"}} 1\n'.encode()


def front_of(
    predictor: FakePredictor,
    *,
    keys: FakeKeys | None = None,
    recorder: Recorder | None = None,
    metrics: FakeMetrics | None = None,
    budget: TokenBudget | None = None,
    scheduler: RequestScheduler | None = None,
    waking: Waking | None = None,
    held: ByteBudget | None = None,
) -> Front:
    """Real admission before a predictor that is all endpoints and the pipeline at once."""
    metrics = metrics or FakeMetrics()
    admission = AdmissionController(
        endpoints=predictor,
        keys=keys or FakeKeys(),
        rates=RateLimits(),
        budget=budget or TokenBudget(100_000),
        recorder=recorder or MemoryRecorder(),
        metrics=metrics,
        scheduler=scheduler,
        waking=waking,
        held=held or ByteBudget(BYTES),
    )
    return Front(predictor, admission, predictor, metrics, tokenisers=predictor)


def memory_url() -> str:
    """A store of its own in this process' memory."""
    return f"memory://{uuid.uuid4().hex}"


def batch_store(url: str, *, file_bytes: int = 8_000_000, days: float = 7.0) -> BatchStore:
    """Files and batches at a URL."""
    return BatchStore(ObjectFolder(url), file_bytes=file_bytes, days=days)


@dataclass
class Behind:
    """The application and what is behind it."""

    predictor: FakePredictor = field(default_factory=FakePredictor.with_endpoints)
    keys: FakeKeys = field(default_factory=FakeKeys)
    recorder: MemoryRecorder = field(default_factory=MemoryRecorder)
    metrics: FakeMetrics = field(default_factory=FakeMetrics)
    limits: HttpLimits = field(default_factory=HttpLimits)
    receipts: Receipts | None = field(default_factory=lambda: Receipts([b"k" * 32], 86400.0))
    waking: Waking | None = None
    held: ByteBudget = field(default_factory=lambda: ByteBudget(BYTES))
    origins: tuple[str, ...] = ()
    batches: BatchStore | None = field(default_factory=lambda: batch_store(memory_url()))

    @cached_property
    def front(self) -> Front:
        """What every dialect goes through."""
        return front_of(
            self.predictor,
            keys=self.keys,
            recorder=self.recorder,
            metrics=self.metrics,
            waking=self.waking,
            held=self.held,
        )

    @cached_property
    def app(self) -> Application:
        """The application; made once, with its documentation."""
        feedback = None if self.receipts is None else FeedbackReceiver(self.receipts, self.recorder)
        return create_app(self.front, self.limits, feedback, self.origins, self.batches)

    @cached_property
    def operations(self) -> Application:
        """The application of the operations port."""
        return create_operations(self.front, self.app)


@asynccontextmanager
async def client_of(
    behind: Behind, *, operations: bool = False
) -> AsyncIterator[httpx.AsyncClient]:
    """Asks the callers' application, or that of operations, directly, without a socket."""
    transport = httpx.ASGITransport(behind.operations if operations else behind.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


async def asked(behind: Behind, method: str, path: str, **request: Any) -> httpx.Response:
    """What the application answers to one request."""
    async with client_of(behind) as client:
        return await client.request(method, path, **request)

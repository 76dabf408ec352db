"""One request and its answer, as every dialect of HTTP and gRPC sees them.

The dialects parse into a ``Query`` and render an ``Answer``; nothing else passes between them and
the pipeline, which works on a ``Call``. No transport type appears here. What is made for every
request is a ``msgspec.Struct``: a frozen dataclass takes ten times as long to fill.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Arm, Guardrail
from contracts.features import Feature
from contracts.model import ModelRef
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.hooks import State
from preprocess.model_code.messages import Task as CodeTask


@dataclass(frozen=True, slots=True)
class Query:
    """What a dialect has read from a body. ``pairs`` is as long as ``texts`` where it is set.

    ``prompt_name``: which of the model's prompts goes before each text; None for the usual one.
    ``truncate``: texts that are longer than the model takes are cut; otherwise the call is refused.
    ``parameters``: what the caller has set of those that the task's head takes.
    ``are_rows``: ``texts`` are rows of a table, each the JSON of an object or an array.
    ``kept``: the dialect keeps them for its answer, so that all their memory counts until then.
    ``ranks``: the second texts of a query are to be ranked, by a head of the kind ``RELEVANCE``.
    """

    texts: list[str]
    pairs: list[str] | None = None
    truncate: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)
    prompt_name: str | None = None
    are_rows: bool = False
    kept: bool = False
    ranks: bool = False


@dataclass(frozen=True, slots=True)
class CallerHashes:
    """Hashes of sticky keys, for events: they tell callers apart without naming them.

    ``secret`` is the installation's, the same in all gateways, at most 64 bytes. Without one,
    anyone who can guess a sticky key (an e-mail address) can find its caller in the events.
    """

    secret: bytes = b""

    def of(self, endpoint: str, sticky_key: str | None) -> int:
        """64 bits; 0 without a sticky key.

        Requests without ``x-headrace-key`` are assigned to arms independently, so that the caller
        need not be known. The hash of a caller is the same in all rollouts of an endpoint, and
        differs between endpoints.
        """
        if sticky_key is None:
            return 0
        text = f"{endpoint}/caller\x00{sticky_key}".encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8, key=self.secret).digest(), "big")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a text is written after a prompt.

    ``most`` tokens at most; ``temperature`` 0 takes the most likely one each time; ``top_p`` is the
    share of the most likely tokens that are chosen among; ``stops`` are texts that end it, beside
    the model's own tokens. The same ``seed`` chooses the same; None for any.
    """

    most: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stops: tuple[str, ...] = ()


class Call(msgspec.Struct, frozen=True, eq=False):
    """Texts for an endpoint, or rows of a table as JSON.

    ``deadline`` is in seconds of the event loop's clock; ``received`` is unix time in seconds and
    ``started`` the loop's clock at the same moment. ``caller`` is the name of the API key, never
    the key itself. ``sticky_key``, from ``x-headrace-key``, keeps a caller on one arm; without it,
    the request id is used. ``caller_hash``: of the sticky key, by ``CallerHashes``; an event's
    ``caller`` is this one, and not the key's name.
    ``space``: only a version of this vector space may answer; None for any. ``bulk``: it takes idle
    capacity only.
    ``observed`` holds the values of users' own statistics, by name. ``hook_state`` and
    ``code_task`` are what an installed hook and the version's code have left for ``postprocess``.
    ``unk_words``: its event lists words that are unknown to the tokeniser. ``truncate`` and
    ``prompt_name``: as in ``Query``. ``sampling``: how a text is written after the one that was
    sent; None if none is. ``part``: of a request that is answered in several calls, which one.
    ``hold``: is told what memory long texts take; None if they are not long, or other calls'.
    """

    endpoint: str
    texts: list[str]
    request_id: str
    received: float
    started: float
    deadline: float
    pairs: list[str] | None = None
    sticky_key: str | None = None
    caller_hash: int = 0
    forced_version: str | None = None
    space: str | None = None
    bulk: bool = False
    caller: str | None = None
    trace_parent: str | None = None
    observed: dict[str, list[float | str]] | None = None
    hook_state: State | None = None
    code_task: CodeTask | None = None
    unk_words: bool = False
    truncate: bool = True
    prompt_name: str | None = None
    sampling: Sampling | None = None
    part: int = 0
    hold: Callable[[int], None] | None = None

    def characters(self) -> int:
        """Characters of all texts, second ones included."""
        count = sum(map(len, self.texts))
        return count if self.pairs is None else count + sum(map(len, self.pairs))


def memory_of(texts: Sequence[str], pairs: Sequence[str] | None) -> int:
    """Bytes of memory that texts take. One that comes again behind itself is there once."""
    size = 0
    for each in (texts, pairs or ()):
        last = None
        for text in each:
            if text is not last:
                size += sys.getsizeof(text)
            last = text
    return size


class Answer(msgspec.Struct, frozen=True, eq=False):
    """The result for all texts of a call, in their order.

    ``values``: float32 ``[texts, width]``, as the task's head in ``preprocess.tasks`` made them;
    ``[tokens of all rows, width]`` of labels of tokens. ``tokens`` are of each row, ``truncated``
    of each text. ``receipt``: what feedback refers to, empty where it is off. ``parameters``: as in
    ``Query``. ``next_space``: the vector space that waits for its cutover, for a caller who named
    none; else empty.
    """

    task: Task
    ref: ModelRef
    arm: Arm
    values: NDArray[np.float32]
    tokens: list[int]
    truncated: list[bool]
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    receipt: str = ""
    encoded: EncodedTexts | None = None
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    ranges: NDArray[np.float32] | None = None  # see ``preprocess.tasks.head.AnsweredTexts``
    next_space: str = ""


@dataclass(frozen=True, slots=True)
class EndpointView:
    """What the metadata routes say about an endpoint. ``refs`` lists the stable version first.

    ``rows``: of a model that writes, the texts that it writes at once. ``prompts`` are names;
    ``has_ranges``: see ``preprocess.tasks.head.ModelDescription``; ``features`` are those of a row
    of a table; ``unserved`` is why no Triton answers, if the controller says so; ``asleep``: nobody
    has asked for long, so that the first caller may have to wait; ``requests_per_second_per_key``:
    None for no limit; ``guardrail``: None for clients of guardrails to be refused;
    ``other_dimensions``: of vectors of versions beside the stable one.
    """

    name: str
    task: Task
    refs: tuple[ModelRef, ...]
    labels: tuple[str, ...]
    dimension: int | None
    max_tokens: int
    max_texts: int
    max_tokens_in_flight: int
    timeout_seconds: float
    ready: bool
    rows: int = 1
    multi_label: bool = False
    prompts: tuple[str, ...] = ()
    has_ranges: bool = False
    features: tuple[Feature, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    unserved: str = ""
    asleep: bool = False
    requests_per_second_per_key: float | None = None
    guardrail: Guardrail | None = None
    other_dimensions: tuple[int, ...] = ()

    @property
    def most_dimensions(self) -> int | None:
        """See ``preprocess.tasks.head.ModelDescription``."""
        return None if self.dimension is None else max(self.dimension, *self.other_dimensions, 0)


class Predictor(Protocol):
    """Answers calls."""

    async def predict(self, call: Call) -> Answer:
        """Answers the call whole and in order, or raises a ``GatewayError``."""


class Catalogue(Protocol):
    """The endpoints that are served, and the state of this process."""

    def describe(self, endpoint: str) -> EndpointView:
        """The endpoint as it is now.

        Raises:
            UnknownEndpointError: no such endpoint, or (``StartingError``) none has been read yet.
        """

    def names(self) -> tuple[str, ...]:
        """Names of all endpoints that have a version to serve."""

    @property
    def ready(self) -> bool:
        """Whether this process should get traffic."""

    @property
    def draining(self) -> bool:
        """Whether this process is about to end: callers should connect to another one."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems that do not keep this process from serving, in sentences for operators."""

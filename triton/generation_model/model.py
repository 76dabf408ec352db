"""A Triton model that generates text with an ONNX decoder and its key and value cache.

It is decoupled: a request is answered by one response a token. Requests that run at the same time
are stepped together, a row each. One that comes joins the others at the next step, after its own
prompt has been read; one that ends leaves. ``model.onnx``, ``python_model.py``, ``token_rules.py``
and ``gpu_faults.py`` lie beside this file; the latter three are ``triton/python_model/model.py``,
``registry/packages/token_rules.py`` and ``contracts/gpu_faults.py``. Where ``encoder.onnx`` is
there too, it reads the prompt, and the decoder begins with the configuration's ``start`` and keeps
to its ``rules``. It never tokenises and never sees a text.

A request has ``input_ids`` int64 ``[n]`` and ``max_tokens`` int32 ``[1]``; it may have
``temperature`` and ``top_p`` float32 ``[1]``, ``seed`` int64 ``[1]`` and ``stop_ids`` int64
``[m]``. A response has ``tokens`` int32 ``[1]`` and ``finish`` int32 ``[1]``, one of ``GOES_ON``,
``STOPPED`` and ``AT_LIMIT``. The same request gets the same tokens, whatever runs beside it, but
for the rounding of sums of other lengths.
"""

import json
import os
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_faults
import numpy as np

# It reads this when it is loaded, and would call its maker; a Triton of one's own may not say it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime as ort
import triton_python_backend_utils as pb_utils
from python_model import (
    THREADS,
    Heartbeat,
    open_session,
    output,
    providers,
    session_options,
)
from token_rules import find_forced_last, mask_forbidden

GOES_ON, STOPPED, AT_LIMIT = 0, 1, 2
CONTEXT = "context"  # parameters of the configuration
ROWS = "rows"
START = "start"
RULES = "rules"
MOST_WAITING = 256
# To ask Triton whether a caller is gone takes a message to its process and back.
ASK_SECONDS = 0.05


class TritonPythonModel:
    """One instance: a session, and one thread that steps its requests."""

    def initialize(self, args: dict[str, str]) -> None:
        """Builds the session; an exception here is the reason that Triton gives for refusing."""
        config = json.loads(args["model_config"])
        parameters = config.get("parameters", {})
        threads, self.context, rows = (
            int(parameters.get(name, {}).get("string_value", usual))
            for name, usual in ((THREADS, "1"), (CONTEXT, "1024"), (ROWS, "8"))
        )
        folder = Path(args["model_repository"]) / args["model_version"]
        device = providers(args["model_instance_kind"], args["model_instance_device_id"])

        def session(name: str) -> ort.InferenceSession:
            return open_session(folder / name, session_options(threads), device)

        encoder = None
        if START in parameters:
            start = int(parameters[START]["string_value"])
            encoder = PromptEncoder(session("encoder.onnx"), start)
        self.rules = json.loads(parameters.get(RULES, {}).get("string_value", "{}"))
        self.heartbeat = Heartbeat()
        self.heartbeat.start()
        self.sequences: Any = SequenceBatch(session("model.onnx"), encoder)
        self.rows = rows
        self.has_encoder = encoder is not None
        self.waiting: deque[GenerationRequest] = deque()
        self.changed = threading.Condition()
        self.ends = False
        self.thread = threading.Thread(target=self._run_or_end, name="generate", daemon=True)
        self.thread.start()

    def execute(self, requests: list[Any]) -> None:
        """Takes requests in. The thread answers them; a failure is of its own request only."""
        self.heartbeat.check()
        for request in requests:
            sender = request.get_response_sender()
            if self.heartbeat.lost:
                fail(sender, self.heartbeat.lost)
                continue
            try:
                asked = asked_of(request, sender, self.context, are_apart=self.has_encoder)
                asked.rules = self.rules
            except ValueError as error:
                fail(sender, str(error))
                continue
            with self.changed:
                if len(self.waiting) < MOST_WAITING:
                    self.waiting.append(asked)
                    self.changed.notify()
                    continue
            fail(sender, f"queue is full: {MOST_WAITING} requests wait")

    def finalize(self) -> None:
        """Ends the thread. Triton calls this once all requests are answered."""
        with self.changed:
            self.ends = True
            self.changed.notify()
        self.thread.join()
        self.heartbeat.stop()
        self.sequences = None

    def _run_or_end(self) -> None:
        """Ends the process if the thread fails: Triton would go on to call the model ready.

        Triton then refuses what waits and what comes, and the loader loads the model again.
        """
        try:
            self._run()
        except BaseException:  # noqa: BLE001 - whatever it is, nothing answers requests any more
            reason = traceback.format_exc()
            os.write(2, f"model process ends: the generating thread failed: {reason}".encode())
            os._exit(1)

    def _run(self) -> None:
        while True:
            with self.changed:
                while not (self.waiting or self.sequences.asked or self.ends):
                    self.changed.wait()
                if self.ends:
                    return
            self._take_in()
            self._answer(self._step())
            self._let_go()

    def _take_in(self) -> None:
        """Reads the prompts of those that wait, as long as there are rows for them."""
        while len(self.sequences.asked) < self.rows:
            with self.changed:
                if not self.waiting:
                    return
                asked = self.waiting.popleft()
            if asked.is_gone(time.monotonic()):
                finish(asked)
                continue
            try:
                self.sequences.join(asked)
            except Exception as error:  # noqa: BLE001 - ONNX Runtime's errors have no common base
                self._fail([asked], error)
                continue
            self._answer([asked])

    def _step(self) -> list["GenerationRequest"]:
        """One token more of every row; if that fails, all of them fail."""
        running = list(self.sequences.asked)
        if not running:
            return []
        try:
            self.sequences.step()
        except Exception as error:  # noqa: BLE001 - as above
            self.sequences.clear()
            self._fail(running, error)
            return []
        return running

    def _fail(self, failed: list["GenerationRequest"], error: Exception) -> None:
        """Ends those that failed, and with a GPU that is lost all others too."""
        reason = f"engine: {error}"
        if gpu_faults.ends_process(str(error)):
            reason = self.heartbeat.lose(error)
            failed = failed + self.sequences.asked
            self.sequences.clear()
            with self.changed:
                failed += self.waiting
                self.waiting.clear()
        for asked in failed:
            fail(asked.sender, reason)

    def _answer(self, asked: list["GenerationRequest"]) -> None:
        self.heartbeat.check()
        for each in asked:
            state = each.state()
            response = pb_utils.InferenceResponse(
                [
                    output("tokens", np.array([each.last], np.int32)),
                    output("finish", np.array([state], np.int32)),
                ]
            )
            over = state != GOES_ON
            flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if over else 0
            each.sender.send(response, flags=flags)
        self.sequences.leave([each for each in asked if each.state() != GOES_ON])

    def _let_go(self) -> None:
        """Ends those whose callers are gone."""
        now = time.monotonic()
        gone = [asked for asked in self.sequences.asked if asked.is_gone(now)]
        for asked in gone:
            finish(asked)
        self.sequences.leave(gone)


@dataclass(eq=False)
class GenerationRequest:
    """A request, and what was generated for it so far.

    Attributes:
        rules: what is forced and forbidden (``token_rules``).
        tokens: that the decoder has of it beside a prompt: the one before the text, and the text.
        is_cut: whether its last token was forced upon it, since it may have no more.
    """

    ids: np.ndarray
    most: int
    temperature: float
    top_p: float
    random: np.random.Generator
    stops: frozenset[int]
    sender: Any
    rules: dict[str, Any] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=lambda: [-1])
    is_cut: bool = False
    ask_at: float = field(default=0.0)

    @property
    def generated(self) -> int:
        """Tokens of the text."""
        return len(self.tokens) - 1

    @property
    def last(self) -> int:
        """The newest token."""
        return self.tokens[-1]

    def take(self, logits: np.ndarray) -> None:
        """Chooses the next token."""
        logits = mask_forbidden(logits, self.rules, self.tokens, self.stops)
        token = choose_token(logits, self.temperature, self.top_p, self.random)
        last = find_forced_last(self.rules, self.tokens, self.most)
        if last is not None:
            self.is_cut, token = token not in self.stops, last
        self.tokens.append(token)

    def state(self) -> int:
        """Whether it goes on, or how it has ended."""
        if self.last in self.stops and not self.is_cut:
            return STOPPED
        return AT_LIMIT if self.generated >= self.most else GOES_ON

    def is_gone(self, now: float) -> bool:
        """Whether its caller gave up; asked only now and then."""
        if now < self.ask_at:
            return False
        self.ask_at = now + ASK_SECONDS
        return bool(self.sender.is_cancelled())


class KeyValueCache:
    """Tensors ``[rows, heads, length, width]`` of rows that have read different numbers of tokens.

    What a row needs lies at the right end; what lies left of it is not looked at.

    Attributes:
        names: of the tensors, as inputs of the decoder.
        tensors: one for each name; none while there are no rows.
        lengths: of each row.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.clear()

    def clear(self) -> None:
        """Forgets all rows."""
        self.tensors: list[np.ndarray] = []
        self.lengths: list[int] = []

    def add(self, made: list[np.ndarray], length: int) -> None:
        """Adds a row: its tensors ``[1, heads, length, width]``."""
        if self.lengths:
            longest = max(length, *self.lengths)
            made = [
                np.concatenate([at_right(old, longest), at_right(new, longest)])
                for old, new in zip(self.tensors, made, strict=True)
            ]
        self.tensors = made
        self.lengths.append(length)

    def replace(self, made: list[np.ndarray]) -> None:
        """The same rows, each with one token more."""
        self.tensors = made
        self.lengths = [length + 1 for length in self.lengths]

    def keep(self, rows: list[int]) -> None:
        """Removes other rows, and the part that only they needed."""
        if not rows:
            self.clear()
            return
        self.lengths = [self.lengths[row] for row in rows]
        longest = max(self.lengths)
        self.tensors = [np.ascontiguousarray(each[rows, :, -longest:]) for each in self.tensors]

    def mask(self, more: int = 0) -> np.ndarray:
        """Of each row what is its own, and ``more`` tokens: bool ``[rows, length + more]``."""
        lengths = np.array(self.lengths)[:, np.newaxis]
        width = int(lengths.max()) + more
        return np.arange(width) >= width - more - lengths


class PromptEncoder:
    """What reads the prompts of an encoder-decoder.

    Attributes:
        start: the token with which the decoder begins.
        outputs: what the decoder looks at, which are inputs of it.
    """

    def __init__(self, session: ort.InferenceSession, start: int) -> None:
        self._session = session
        self.start = start
        self.outputs = [each.name for each in session.get_outputs()]

    def read(self, ids: np.ndarray) -> list[np.ndarray]:
        """Keys and values of a prompt ``[n]``, each ``[1, heads, n, width]``."""
        row = ids[np.newaxis].astype(np.int64)
        feed = {"input_ids": row, "attention_mask": np.ones_like(row)}
        return list(self._session.run(self.outputs, feed))


class SequenceBatch:
    """The rows that are stepped together, with what the decoder remembers of them.

    Attributes:
        asked: the request of each row.
        past: what the decoder has read of each row.
        source: what the encoder has read of each row; of no tensors without one.
    """

    def __init__(self, session: ort.InferenceSession, encoder: PromptEncoder | None = None) -> None:
        self._session = session
        self._encoder = encoder
        inputs = session.get_inputs()
        past = [each for each in inputs if each.name.startswith("past_key_values.")]
        made = [each.name.replace("past_key_values", "present") for each in past]
        self._has_positions = any(each.name == "position_ids" for each in inputs)
        self._outputs = ["logits", *made]
        self._empty = [np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32) for each in past]
        self.asked: list[GenerationRequest] = []
        self.past = KeyValueCache([each.name for each in past])
        self.source = KeyValueCache([] if encoder is None else encoder.outputs)

    def clear(self) -> None:
        """Forgets all rows."""
        self.asked = []
        self.past.clear()
        self.source.clear()

    def join(self, asked: GenerationRequest) -> None:
        """Reads a prompt, chooses its first token, and adds the row."""
        ids, source = asked.ids, KeyValueCache(self.source.names)
        if self._encoder is not None:
            source.add(self._encoder.read(asked.ids), len(asked.ids))
            ids = np.array([self._encoder.start])
            asked.tokens = [self._encoder.start]
        count = len(ids)
        logits, *made = self._step(
            ids[np.newaxis],
            np.ones((1, count)),
            np.arange(count)[np.newaxis],
            self._empty,
            source,
        )
        asked.take(logits[0])
        self.past.add(made, count)
        if self._encoder is not None:
            self.source.add(source.tensors, len(asked.ids))
        self.asked.append(asked)

    def step(self) -> None:
        """Reads the last token of each row and chooses the next one."""
        positions = np.array(self.past.lengths)[:, np.newaxis]
        ids = np.array([[asked.last] for asked in self.asked])
        logits, *made = self._step(
            ids, self.past.mask(1), positions, self.past.tensors, self.source
        )
        self.past.replace(made)
        for asked, row in zip(self.asked, logits, strict=True):
            asked.take(row)

    def leave(self, gone: list[GenerationRequest]) -> None:
        """Removes rows."""
        kept = [place for place, asked in enumerate(self.asked) if asked not in gone]
        if len(kept) == len(self.asked):
            return
        self.asked = [self.asked[place] for place in kept]
        self.past.keep(kept)
        if self._encoder is not None:
            self.source.keep(kept)

    def _step(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        positions: np.ndarray,
        past: list[np.ndarray],
        source: KeyValueCache,
    ) -> list[np.ndarray]:
        feed = {
            "input_ids": ids.astype(np.int64),
            "attention_mask": mask.astype(np.int64),
            **dict(zip(self.past.names, past, strict=True)),
            **dict(zip(source.names, source.tensors, strict=True)),
        }
        if self._has_positions:
            feed["position_ids"] = positions.astype(np.int64)
        if source.names:
            feed["encoder_attention_mask"] = source.mask().astype(np.int64)
        return list(self._session.run(self._outputs, feed))


def at_right(cache: np.ndarray, length: int) -> np.ndarray:
    """A cache of at least this number of columns, with zeros on the left."""
    more = length - cache.shape[2]
    return cache if more <= 0 else np.pad(cache, ((0, 0), (0, 0), (more, 0), (0, 0)))


def choose_token(
    logits: np.ndarray, temperature: float, top_p: float, random: np.random.Generator
) -> int:
    """The most likely token at temperature 0, else one by chance.

    Of the most likely tokens that make up ``top_p`` together, as ``transformers`` has it: the one
    that reaches it is the last.
    """
    if temperature <= 0:
        return int(logits.argmax())
    scores = logits.astype(np.float64) / temperature
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    order = np.argsort(-shares, kind="stable")
    sums = np.cumsum(shares[order])
    kept = len(order) if top_p >= 1 else int(np.searchsorted(sums, top_p)) + 1
    kept = min(kept, len(order))
    place = int(np.searchsorted(sums[:kept], random.random() * sums[kept - 1], side="right"))
    return int(order[min(place, kept - 1)])


def asked_of(
    request: "pb_utils.InferenceRequest",
    sender: "pb_utils.InferenceResponseSender",
    context: int,
    *,
    are_apart: bool,
) -> GenerationRequest:
    """What a request asks for; raises ``ValueError``.

    Prompt and text have ``context`` tokens together, and each of them if they ``are_apart``.
    """
    ids = tensor(request, "input_ids")
    most = tensor(request, "max_tokens")
    if ids is None or most is None or not len(ids) or not len(most) or most[0] < 1:
        raise ValueError("input_ids and max_tokens are needed, at least one token each")
    together = max(len(ids), int(most[0])) if are_apart else len(ids) + int(most[0])
    if together > context:
        raise ValueError(f"{len(ids)} tokens and {most[0]} more are over the model's {context}")
    temperature, top_p, seed = (
        usual if (given := tensor(request, name)) is None else given[0].item()
        for name, usual in (("temperature", 0.0), ("top_p", 1.0), ("seed", 0))
    )
    stops = tensor(request, "stop_ids")
    return GenerationRequest(
        ids=ids,
        most=int(most[0]),
        temperature=temperature,
        top_p=top_p,
        random=np.random.default_rng(abs(seed)),
        stops=frozenset(() if stops is None else stops.tolist()),
        sender=sender,
    )


def tensor(request: "pb_utils.InferenceRequest", name: str) -> np.ndarray | None:
    """An input of the request in one dimension, a copy: its memory is Triton's. None without."""
    given = pb_utils.get_input_tensor_by_name(request, name)
    return None if given is None else np.from_dlpack(given).reshape(-1).copy()


def fail(sender: "pb_utils.InferenceResponseSender", reason: str) -> None:
    """Ends a request with an error."""
    error = pb_utils.InferenceResponse(error=pb_utils.TritonError(reason))
    sender.send(error, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def finish(asked: GenerationRequest) -> None:
    """Ends a request that nobody waits for."""
    asked.sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

"""What Triton runs to write text: its steps, in this process and without Triton."""

import importlib.util
import sys
import threading
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import VOCABULARY, decoder, encoder_decoder
from waiting import until

from registry.convert.parity.continuations import Decoder
from registry.packages import token_rules
from registry.packages.triton_files import triton_file

GRAPH = decoder()
START = 3  # with which the encoder-decoder begins
READING, WRITING = encoder_decoder()
AFTER_ENCODER = Decoder(WRITING, threads=1, encoder=READING, start=START)
_, COUNTING = encoder_decoder(counted=True)
END = 5
RULES = {
    "forced_bos_token_id": 8,
    "forced_eos_token_id": END,
    "bad_words_ids": [[1], [2, 3]],
    "no_repeat_ngram_size": 2,
    "min_new_tokens": 3,
}


def session(graph: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )


SESSION, READER, WRITER = session(GRAPH), session(READING), session(WRITING)
COUNTER = session(COUNTING)
Kind = Literal["decoder", "encoder-decoder", "counting"]
KINDS: tuple[Kind, ...] = ("decoder", "encoder-decoder", "counting")


def sequences_of(model: Any, kind: Kind) -> Any:
    if kind == "decoder":
        return model.SequenceBatch(SESSION)
    writer = COUNTER if kind == "counting" else WRITER
    return model.SequenceBatch(writer, model.PromptEncoder(READER, START))


def alone(kind: Kind, rules: dict[str, Any] | None = None) -> Decoder:
    """The same graphs as parity runs them."""
    if kind == "decoder":
        return Decoder(GRAPH, threads=1)
    graph = COUNTING if kind == "counting" else WRITING
    return Decoder(graph, threads=1, encoder=READING, start=START, rules=rules)


def script(path: Path, module: str) -> ModuleType:
    """One of the Python backend's files, as it is placed beside a graph."""
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[module] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    """The module, with an empty one in the place of Triton's own."""
    before = set(sys.modules)
    backend = ModuleType("triton_python_backend_utils")
    backend.__dict__.update(
        InferenceResponse=SimpleNamespace,
        TritonError=str,
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=1,
        get_input_tensor_by_name=lambda request, name: request.inputs.get(name),
    )
    sys.modules["triton_python_backend_utils"] = backend
    script(triton_file("python_model"), "python_model")
    script(Path(token_rules.__file__), "token_rules")
    yield script(triton_file("generation_model"), "generation_model")
    for name in sys.modules.keys() - before:
        if name in {
            *("triton_python_backend_utils", "python_model", "token_rules", "generation_model")
        }:
            del sys.modules[name]


def asked(model: Any, prompt: list[int], most: int, seed: int | None = None, **further: Any) -> Any:
    return model.GenerationRequest(
        ids=np.array(prompt, np.int64),
        most=most,
        temperature=0.0 if seed is None else 1.0,
        top_p=0.9,
        random=np.random.default_rng(seed),
        sender=None,
        **{"stops": frozenset(), **further},
    )


PROMPT = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)
# Of each text: when it comes, its prompt, its tokens, and its seed, None for the likeliest tokens.
PLAN = st.tuples(st.integers(0, 6), PROMPT, st.integers(1, 8), st.none() | st.integers(0, 99))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(plan=st.lists(PLAN, min_size=1, max_size=6))
def test_a_text_is_the_same_whatever_is_written_beside_it(
    model: Any, kind: Kind, plan: list[tuple[int, list[int], int, int | None]]
) -> None:
    together = run(model, kind, plan)
    for one, text in zip(plan, together, strict=True):
        assert text == run(model, kind, [one])[0]


def run(
    model: Any, kind: Kind, plan: list[tuple[int, list[int], int, int | None]]
) -> list[list[int]]:
    """The tokens of each text, where each comes and goes as the plan has it."""
    sequences = sequences_of(model, kind)
    all_asked = [asked(model, prompt, most, seed) for _, prompt, most, seed in plan]
    texts: list[list[int]] = [[] for _ in plan]
    step = 0
    while step <= max(start for start, *_ in plan) or sequences.asked:
        if sequences.asked:
            sequences.step()
            for each in sequences.asked:
                texts[all_asked.index(each)].append(each.last)
        for place, (start, *_) in enumerate(plan):
            if start == step:
                sequences.join(all_asked[place])
                texts[place].append(all_asked[place].last)
        over = [each for each in sequences.asked if each.state() != model.GOES_ON]
        sequences.leave(over)
        step += 1
    return texts


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(prompt=PROMPT, most=st.integers(1, 12))
def test_without_temperature_the_likeliest_tokens_are_written(
    model: Any, kind: Kind, prompt: list[int], most: int
) -> None:
    text, _ = alone(kind).writes(prompt, (), most=most)
    assert run(model, kind, [(0, prompt, most, None)]) == [text]


@settings(max_examples=30)
@given(prompt=PROMPT, most=st.integers(1, 12), seed=st.none() | st.integers(0, 99))
def test_what_is_forced_and_forbidden_is_kept_to(
    model: Any, prompt: list[int], most: int, seed: int | None
) -> None:
    sequences = sequences_of(model, "counting")
    one = asked(model, prompt, most, seed, rules=RULES, stops=frozenset({END}))
    sequences.join(one)
    while one.state() == model.GOES_ON:
        sequences.step()
    text = one.tokens[1:]
    if seed is None:
        assert text == alone("counting", RULES).writes(prompt, (END,), most=most)[0]
    assert text[0] == (END if most == 1 else 8)
    assert one.state() == (model.STOPPED if len(text) < most else one.state())
    if one.is_cut:
        assert (one.state(), text[-1], len(text)) == (model.AT_LIMIT, END, most)
        text.pop()
    assert 1 not in text
    pairs = list(pairwise([START, *text]))
    assert (2, 3) not in pairs
    assert len(set(pairs)) == len(pairs)
    assert END not in text[:3]


def test_a_text_that_ends_with_the_last_token_that_it_may_have_is_not_cut(model: Any) -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    for likeliest, state in ((END, model.STOPPED), (END + 1, model.AT_LIMIT)):
        one = asked(model, [1], 1, rules={"forced_eos_token_id": END}, stops=frozenset({END}))
        one.take(np.where(np.arange(VOCABULARY) == likeliest, 9, logits))
        assert (one.last, one.state()) == (END, state)


def test_what_the_encoder_read_is_looked_at() -> None:
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8]]
    alone = np.stack([AFTER_ENCODER.writes(each, (), most=1)[1] for each in prompts])
    assert np.allclose(AFTER_ENCODER.together(prompts), alone, atol=1e-5)
    assert np.abs(alone[0] - alone[1]).max() > 0.01


@given(
    st.lists(st.floats(-8, 8), min_size=2, max_size=20),
    st.floats(0.2, 2),
    st.floats(0.05, 1),
    st.integers(0, 2**32),
)
def test_a_token_is_one_of_the_likeliest_that_make_up_top_p(
    model: Any, logits: list[float], temperature: float, top_p: float, seed: int
) -> None:
    scores = np.array(logits, np.float32)
    token = model.choose_token(scores, temperature, top_p, np.random.default_rng(seed))
    shares = np.exp(scores.astype(np.float64) / temperature)
    shares /= shares.sum()
    likelier = shares[shares > shares[token]].sum()
    assert likelier < top_p + 1e-9


def test_tokens_come_as_often_as_they_are_likely(model: Any) -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    chance = np.random.default_rng(0)
    found = np.bincount([model.choose_token(logits, 1.0, 1.0, chance) for _ in range(4000)])
    assert np.abs(found / 4000 - [0.5, 0.3, 0.2]).max() < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_what_no_row_needs_any_more_leaves_the_cache(model: Any, kind: Kind) -> None:
    sequences = sequences_of(model, kind)
    long, short = asked(model, [1] * 40, 8), asked(model, [2, 3], 8)
    sequences.join(long)
    sequences.join(short)
    sequences.step()
    sequences.leave([long])
    (keys, _) = sequences.past.tensors
    read = sequences.source.tensors
    if kind == "decoder":
        assert (keys.shape[:3], read) == ((1, 1, 3), [])
    else:
        assert (keys.shape[:3], read[0].shape[:3]) == ((1, 1, 2), (1, 1, 2))


class Sender:
    """Keeps what a request is told."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def send(self, response: Any = None, flags: int = 0) -> None:
        if (error := getattr(response, "error", None)) is not None:
            assert flags == 1
            self.errors.append(error)

    def is_cancelled(self) -> bool:
        return False


class FailingSequences:
    """Rows whose first step, or whose prompt, fails with some words."""

    def __init__(self, words: str, *, at_prompt: bool) -> None:
        self.words, self.at_prompt = words, at_prompt
        self.asked: list[Any] = []

    def join(self, asked: Any) -> None:
        if self.at_prompt:
            raise RuntimeError(self.words)
        self.asked.append(asked)

    def step(self) -> None:
        raise RuntimeError(self.words)

    def clear(self) -> None:
        self.asked = []


@pytest.mark.parametrize("at_prompt", [True, False])
def test_a_lost_gpu_fails_those_that_wait_too_and_ends_the_process(
    model: Any, *, at_prompt: bool
) -> None:
    words = "CUDA failure 214: uncorrectable ECC error encountered ; GPU=0"
    ended: list[str] = []
    served = model.TritonPythonModel()
    served.heartbeat = sys.modules["python_model"].Heartbeat(ended.append)
    served.rows, served.context, served.has_encoder, served.rules = 1, 64, False, {}
    served.changed = threading.Condition()
    served.waiting = deque()
    served.sequences = FailingSequences(words, at_prompt=at_prompt)
    senders = [Sender() for _ in range(4)]
    inputs = {"input_ids": np.array([1, 2]), "max_tokens": np.array([3], np.int32)}
    requests = [
        SimpleNamespace(inputs=inputs, get_response_sender=lambda each=each: each)
        for each in senders
    ]
    served.execute(requests[:3])
    if not at_prompt:
        served.sequences.asked.append(served.waiting.popleft())
        assert served._step() == []
    else:
        served._take_in()
    served.execute(requests[3:])
    lost = f"Stub process ends: the GPU can't be used any more: {words}"
    assert [sender.errors for sender in senders] == [[lost]] * 4
    served.heartbeat.start()
    until("the process ends", 30.0, lambda: ended)
    served.heartbeat.stop()
    assert f"Stub process ends: {ended[0]}" == lost


def test_what_else_fails_is_the_failure_of_its_own_request(model: Any) -> None:
    served = model.TritonPythonModel()
    served.heartbeat = sys.modules["python_model"].Heartbeat([].append)
    served.changed = threading.Condition()
    served.waiting = deque(["another"])
    served.sequences = FailingSequences("shape mismatch", at_prompt=False)
    sender = Sender()
    served.sequences.asked.append(SimpleNamespace(sender=sender))
    assert served._step() == []
    assert sender.errors == ["engine: shape mismatch"]
    assert served.heartbeat.lost == ""
    assert list(served.waiting) == ["another"]

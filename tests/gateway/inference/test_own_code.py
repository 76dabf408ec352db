"""The code that a version brings: it runs for that version alone, as do its failures."""

import asyncio
import os
import signal
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gateway_world import call_of, endpoint_of, loop_turns, model_of, text_of, tokenizer_json
from own_code import archive_of
from pipeline_world import CODE_LIMITS, ONE, TWO, World, world_of

from contracts.backoff import Backoff
from contracts.endpoint import Arm, ModelEndpoint
from gateway.errors import DeadlineExceededError, ModelFailedError
from gateway.inference.own_code import ModelCodes
from gateway.mirroring.shadow import MirrorLimits
from gateway.packages import PackageError, ServedModel, open_package
from preprocess.model_code.process import CodeLimits

EAGER = MirrorLimits(
    engine_share=1e6, texts_per_second=1e6, most_lag_seconds=60, longest_wait_seconds=60
)
QUICK = replace(CODE_LIMITS, pauses=Backoff(0.0, 0.0))


def words(count: int) -> str:
    """Code that leaves so many words of each text."""
    return f"""
        class Preprocessor:
            def preprocess(self, texts, state):
                state.observe("version", state.version)
                return [" ".join(text.split()[:{count}]) for text in texts]
    """


TURNING = """
    class Preprocessor:
        def postprocess(self, answers, state):
            state.observe("turned", len(state.texts))
            return [dict(zip(state.labels, reversed(answer.values()))) for answer in answers]
"""
BY_WORD = """
    import os, time

    class Preprocessor:
        def preprocess(self, texts, state):
            if "hang" in texts[0]:
                time.sleep(1000)
            if "crash" in texts[0]:
                os._exit(3)
            if "raise" in texts[0]:
                raise ValueError("of the version")

        def postprocess(self, answers, state):
            if "late" in state.texts[0]:
                raise ValueError("of the version, later")
            if "nan" in state.texts[0]:
                return [{label: float("nan") for label in state.labels} for _ in answers]
"""
ONE_WORD, TWO_WORDS = (
    model_of("1", code=archive_of(words(1))),
    model_of("2", code=archive_of(words(2))),
)
FAILING, TURNED = model_of("2", code=archive_of(BY_WORD)), model_of("2", code=archive_of(TURNING))
FAILING_STABLE = model_of("1", code=archive_of(BY_WORD))


def world(
    folder: Path, endpoint: ModelEndpoint, *more: ServedModel, code_limits: CodeLimits = CODE_LIMITS
) -> AbstractAsyncContextManager[World]:
    return world_of(endpoint, limits=EAGER, more=more, code_folder=folder, code_limits=code_limits)


def codes_of(served: World) -> ModelCodes:
    assert served.codes is not None
    return served.codes


async def at_rest(world: World) -> None:
    """Waits until no copy waits or is out."""
    while world.shadows.waiting or world.shadows.out:
        await loop_turns()


async def test_each_arm_and_the_shadow_have_the_code_of_their_own_version(tmp_path: Path) -> None:
    endpoint = endpoint_of(ONE_WORD.ref, shadow=TWO_WORDS.ref, rollout="r")
    async with world(tmp_path, endpoint, ONE_WORD, TWO_WORDS) as served:
        answer = await served.pipeline.predict(call_of(text_of(4)))
        await at_rest(served)
        forced = await served.pipeline.predict(call_of(text_of(4), forced_version="2"))
    assert (answer.tokens, forced.tokens) == ([1], [2])
    first, copy, other = served.recorder.events
    assert [text.tokens for text in copy.texts] == [2]
    assert (copy.arm, copy.status) == (Arm.SHADOW, 200)
    assert [e.observations for e in (first, copy, other)] == [
        {"version": ["1"]}, {"version": ["2"]}, {"version": ["2"]},
    ]  # fmt: skip
    metrics = served.metrics.render().decode()
    assert 'code_seconds_count{endpoint="sentiment",part="preprocess",version="1"} 1.0' in metrics


async def test_a_version_changes_its_answers_and_the_event_has_them(tmp_path: Path) -> None:
    async with world_of(endpoint_of(TWO.ref)) as served:
        plain = await served.pipeline.predict(call_of(text_of(4)))
    async with world(tmp_path, endpoint_of(TURNED.ref), TURNED) as served:
        answer = await served.pipeline.predict(call_of(text_of(4)))
    assert np.array_equal(answer.values, plain.values[:, ::-1])
    (event,) = served.recorder.events
    assert event.texts[0].score == answer.values.max()
    assert event.observations == {"turned": [1.0]}


@pytest.mark.parametrize("word", ["raise", "crash", "late", "nan"])
async def test_code_that_fails_fails_its_version_and_the_fallback_answers(
    tmp_path: Path, word: str
) -> None:
    endpoint = endpoint_of(ONE.ref, canary=FAILING.ref, weight=100, rollout="r")
    async with world(tmp_path, endpoint, FAILING) as served:
        answer = await served.pipeline.predict(call_of(f"{word} w1"))
    assert answer.ref == ONE.ref
    failed, answered = served.recorder.events
    assert (failed.version, failed.arm, failed.status) == ("2", Arm.CANARY, 502)
    assert (failed.answered, answered.answered) == (False, True)
    assert [text.tokens for text in failed.texts] == [2]
    failures = [
        line for line in served.metrics.render().decode().splitlines() if "failures_t" in line
    ]
    assert any('version="2"} 1.0' in line and "model_code" in line for line in failures)


async def test_without_a_fallback_the_caller_is_told_what_failed(tmp_path: Path) -> None:
    async with world(tmp_path, endpoint_of(FAILING.ref), FAILING) as served:
        with pytest.raises(ModelFailedError, match="ValueError: of the version") as caught:
            await served.pipeline.predict(call_of("raise"))
        assert (await served.pipeline.predict(call_of("w1"))).ref == FAILING.ref
    assert caught.value.status == 502
    assert served.statuses == [502, 200]


async def test_a_fallback_s_own_code_sees_the_texts_that_came(tmp_path: Path) -> None:
    """Not those that the version before it has made of them."""
    source = (
        words(1)
        + """
            def postprocess(self, answers, state):
                raise ValueError("of the version")
    """
    )
    broken = model_of("2", code=archive_of(source))
    three = model_of("1", code=archive_of(words(3)))
    endpoint = endpoint_of(three.ref, canary=broken.ref, weight=100, rollout="r")
    async with world(tmp_path, endpoint, three, broken) as served:
        answer = await served.pipeline.predict(call_of(text_of(4)))
    assert (answer.ref, answer.tokens) == (three.ref, [3])


BY_NUMBER = """
    class Preprocessor:
        def preprocess(self, texts, state):
            what, number = texts[0].split()
            if what == "names":
                for at in range(int(number)):
                    state.observe(f"{state.request_id}{at}", 1)
            if what == "grow":
                return ["w1 " * int(number)]
"""


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("names 60", "names 61"), "observes more than 64 statistics"),
        (("names 64", "names 1"), "observes more than 64 statistics"),
        (("grow 10", "grow 30000"), "made 90000 characters of 10"),
    ],
)
async def test_what_others_would_pay_for_is_bounded(
    tmp_path: Path, asked: tuple[str, str], sentence: str
) -> None:
    """Names are in every window, and texts are tokenised by the gateway."""
    counting = model_of("1", code=archive_of(BY_NUMBER))
    async with world(tmp_path, endpoint_of(counting.ref), counting) as served:
        first, second = (call_of(text, request_id=text) for text in asked)
        for _ in range(2):
            await served.pipeline.predict(first)
        with pytest.raises(ModelFailedError, match=sentence):
            await served.pipeline.predict(second)
        await served.pipeline.predict(first)
    assert served.statuses == [200, 200, 502, 200]


async def test_code_that_hangs_keeps_no_other_endpoint_waiting(tmp_path: Path) -> None:
    hanging, other = endpoint_of(FAILING_STABLE.ref), endpoint_of(ONE.ref, name="other")
    third = endpoint_of(ONE_WORD.ref, name="third")
    models = (FAILING_STABLE, ONE_WORD)
    limits = replace(CODE_LIMITS, call_seconds=600.0)
    async with world(tmp_path, hanging, *models, code_limits=limits) as served:
        served.serve(hanging, other, third)
        waiting = asyncio.create_task(served.pipeline.predict(call_of("hang", timeout=600)))
        for name in ("other", "third"):
            call = call_of(text_of(4), endpoint=name, timeout=120)
            assert (await served.pipeline.predict(call)).values.shape == (1, 2)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert sorted(served.statuses) == [200, 200, 499]


async def test_a_caller_s_deadline_holds_and_is_the_version_s_failure(tmp_path: Path) -> None:
    async with world(tmp_path, endpoint_of(FAILING_STABLE.ref), FAILING_STABLE) as served:
        await served.pipeline.predict(call_of("w1"))
        with pytest.raises(DeadlineExceededError):
            await served.pipeline.predict(call_of("hang", timeout=2.0))
    assert [event.status for event in served.recorder.events] == [200, 504]


async def test_a_killed_worker_is_told_of_and_comes_back(tmp_path: Path) -> None:
    endpoint = endpoint_of(ONE_WORD.ref)
    async with world(tmp_path, endpoint, ONE_WORD, code_limits=QUICK) as served:
        await served.pipeline.predict(call_of(text_of(4)))
        (kept,) = codes_of(served)._kept.values()
        assert kept.process.pid is not None
        os.kill(kept.process.pid, signal.SIGKILL)
        while kept.process.starts < 2:
            await loop_turns()
        answer = await served.pipeline.predict(call_of(text_of(4)))
        readings = {reading.metric.name: reading.value for reading in codes_of(served).readings()}
    assert answer.tokens == [1]
    assert readings == {"CODE_RUNNING": 1.0, "CODE_STARTS": 2, "CODE_WAITING": 0}
    assert 'reason="crashed",version="1"} 1.0' in served.metrics.render().decode()


async def test_what_keeps_code_from_running_is_a_note_for_operators(tmp_path: Path) -> None:
    broken = model_of("1", code=archive_of("import nothing_like_it"))
    async with world(tmp_path, endpoint_of(broken.ref), broken) as served:
        with pytest.raises(ModelFailedError):
            await served.pipeline.predict(call_of("w1"))
        (note,) = codes_of(served).notes()
    assert note.startswith("sentiment, version 1: The version's code can't be started: ModuleNot")


async def test_a_worker_ends_once_no_route_has_needed_it_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.inference.own_code._KEPT_SECONDS", 0.0)
    async with world(tmp_path, endpoint_of(ONE_WORD.ref), ONE_WORD) as served:
        await served.pipeline.predict(call_of(text_of(4)))
        (kept,) = codes_of(served)._kept.values()
        for _ in range(2):
            served.serve(endpoint_of(TWO.ref))
        assert codes_of(served)._kept == {}
        while kept.process.running:
            await loop_turns()
        served.serve(endpoint_of(ONE_WORD.ref))
        assert (await served.pipeline.predict(call_of(text_of(4)))).tokens == [1]


def test_code_is_held_to_the_digest_that_the_manifest_lists() -> None:
    manifest = ONE_WORD.manifest.canonical()
    for code in (None, b"", archive_of(words(2))):
        with pytest.raises(PackageError, match=r"code\.zip of .* is not the one"):
            open_package(ONE_WORD.ref, manifest, tokenizer_json(), code)

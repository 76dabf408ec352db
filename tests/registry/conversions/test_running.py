"""Which conversions run, and what is remembered of them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from conversion_template import request
from registry_fakes import ScriptedLauncher, ref

from contracts.endpoint import Phase
from registry.conversions.messages import ConversionFailure, ConversionProgress, PublishedPackage
from registry.conversions.running import ConversionJobs

REQUEST = request()


class JobsHarness:
    def __init__(self) -> None:
        self.launcher = ScriptedLauncher()
        self.changed = asyncio.Event()
        self.jobs = ConversionJobs(self.launcher, most=1, changed=self.changed)

    async def news(self) -> None:
        await self.changed.wait()
        self.changed.clear()

    async def start(self, options: str) -> None:
        self.jobs.start(options, REQUEST)
        await asyncio.sleep(0)


@pytest.fixture
async def harness() -> AsyncIterator[JobsHarness]:
    made = JobsHarness()
    yield made
    await made.jobs.close()
    assert made.launcher.running == 0


async def test_no_more_run_at_a_time_than_allowed(harness: JobsHarness) -> None:
    await harness.start("one")
    assert harness.jobs.busy
    await harness.start("two")
    assert len(harness.launcher.requests) == 1
    assert "two" not in harness.jobs.states


async def test_progress_and_the_last_word_are_kept_until_forgotten(harness: JobsHarness) -> None:
    await harness.start("one")
    words: list[ConversionProgress | PublishedPackage | ConversionFailure] = [
        ConversionProgress(phase=Phase.VERIFYING, message="comparing"),
        PublishedPackage(ref=ref()),
    ]
    harness.launcher.say(ConversionProgress(phase=Phase.VERIFYING, message="comparing"))
    assert harness.jobs.states["one"] == words[0]
    harness.jobs.forget("one")
    assert harness.jobs.states["one"] == words[0]
    harness.changed.clear()
    harness.launcher.end(PublishedPackage(ref=ref()))
    await harness.news()
    assert harness.jobs.states["one"] == words[1]
    assert not harness.jobs.busy
    harness.jobs.forget("one")
    assert harness.jobs.states == {}


async def test_one_that_has_ended_is_not_started_again_before_it_is_forgotten(
    harness: JobsHarness,
) -> None:
    await harness.start("one")
    harness.launcher.end(ConversionFailure(reason="no", by_version=False))
    await harness.news()
    await harness.start("one")
    assert len(harness.launcher.requests) == 1
    harness.jobs.forget("one")
    await harness.start("one")
    assert len(harness.launcher.requests) == 2


async def test_what_nobody_wants_is_ended(harness: JobsHarness) -> None:
    await harness.start("one")
    harness.jobs.keep_only({"e": "two"})
    await harness.news()
    assert harness.launcher.cancelled == 1
    assert harness.jobs.states == {}


async def test_a_launcher_that_breaks_is_a_fault_of_the_environment() -> None:
    class Broken(ScriptedLauncher):
        async def run(self, *_: object, **__: object) -> PublishedPackage | ConversionFailure:
            raise RuntimeError("a bug")

    changed = asyncio.Event()
    jobs = ConversionJobs(Broken(), most=1, changed=changed)
    jobs.start("one", REQUEST)
    await changed.wait()
    word = jobs.states["one"]
    assert isinstance(word, ConversionFailure)
    assert not word.by_version
    assert "a bug" in word.reason
    assert not jobs.busy


async def test_of_one_tenant_half_of_the_conversions_run_and_others_find_room() -> None:
    launcher, changed = ScriptedLauncher(), asyncio.Event()
    jobs = ConversionJobs(launcher, most=4, changed=changed)
    for number in range(4):
        jobs.start(f"large {number}", request(), "large")
    assert set(jobs.states) == {"large 0", "large 1"}
    assert not jobs.has_room("large")
    assert jobs.has_room("small")
    jobs.start("small", request(), "small")
    assert "small" in jobs.states
    await jobs.close()


async def test_what_waits_is_told_which_conversions_run_and_how_many_wait_before_it() -> None:
    launcher, changed = ScriptedLauncher(), asyncio.Event()
    jobs = ConversionJobs(launcher, most=2, changed=changed)
    assert jobs.waits_for("one", "one", "large") == ""
    jobs.start("one", REQUEST.model_copy(update={"model": "minilm", "version": "7"}), "large")
    share = jobs.waits_for("two", "two", "large")
    assert share == "waits for the conversion of minilm version 7 to end"
    assert jobs.waits_for("small", "small", "small") == ""
    jobs.start("small", REQUEST.model_copy(update={"model": "topics", "version": "2"}), "small")
    full = jobs.waits_for("three", "three", "third")
    both = "minilm version 7, topics version 2"
    assert full == f"waits for the conversion of {both} to end; 1 more waiting before it"
    assert jobs.waits_for("two", "two", "large") == f"waits for the conversion of {both} to end"
    jobs.keep_only({"one": "one", "small": "small", "three": "three"})
    assert jobs.waits_for("three", "three", "third") == f"waits for the conversion of {both} to end"
    await jobs.close()


async def test_the_first_that_waits_starts_first_and_keeps_its_place_with_another_version(
    harness: JobsHarness,
) -> None:
    await harness.start("runs")
    for endpoint in ("first", "second"):
        assert harness.jobs.waits_for(endpoint, f"{endpoint} 1", endpoint)
    harness.jobs.keep_only({"first": "first 2", "second": "second 1"})
    await harness.news()
    turn = "waits for its turn; 1 more waiting before it"
    assert harness.jobs.waits_for("second", "second 1", "second") == turn
    assert harness.jobs.waits_for("new", "new", "new").endswith("2 more waiting before it")
    assert harness.jobs.waits_for("first", "first 2", "first") == ""
    assert harness.jobs.waits_for("second", "second 1", "second") == "waits for its turn"
    await harness.start("first 2")
    assert "first 2" in harness.jobs.states


async def test_one_that_does_not_start_or_asks_for_nothing_more_holds_up_nobody(
    harness: JobsHarness,
) -> None:
    assert harness.jobs.waits_for("rejects", "r", "r") == ""
    assert harness.jobs.waits_for("leaves", "l", "l")
    assert harness.jobs.waits_for("gone", "g", "g")
    assert harness.jobs.waits_for("last", "x", "x")
    harness.jobs.keep_only({"rejects": "r", "leaves": "l", "last": "x"})
    harness.jobs.end_pass()
    assert harness.jobs.waits_for("rejects", "r", "r")
    assert harness.jobs.waits_for("leaves", "", "l") == ""
    assert harness.jobs.waits_for("last", "x", "x") == ""

"""The snapshot of MLflow, and what MLflow is told."""

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY
from registry_fakes import FakeRegistry, MemoryArtifacts

from registry.errors import SourceUnavailableError
from registry.mlflow.model_registry import PAGE
from registry.mlflow.projection import Projection, ShownRollout, VersionTags
from registry.mlflow.watch import SECOND_LOOK_SECONDS, SourceWatch
from registry.mlflow.write_back import WriteBack

REJECTED = Projection(tags=(VersionTags("m", "1", {"verdict": "Rejected", "reason": "pickle"}),))


async def nothing(evidence: ShownRollout) -> dict[str, bytes]:
    raise AssertionError(f"nobody asked for {evidence}")


def webhooks_arrive() -> bool:
    found = REGISTRY.get_sample_value("headrace_registry_webhooks_arrive", {"workspace": ""})
    return found == 1


class SourceWatchHarness:
    def __init__(self) -> None:
        self.time = 0.0
        self.registry = FakeRegistry()
        self.changed = asyncio.Event()
        write_back = WriteBack(self.registry, MemoryArtifacts(), nothing)
        self.watch = SourceWatch(
            self.registry,
            write_back,
            poll_seconds=60.0,
            poll_with_webhooks_seconds=600.0,
            changed=self.changed,
            clock=lambda: self.time,
        )

    async def failing_round(self, words: str = "") -> None:
        with pytest.raises(SourceUnavailableError, match=words or None):
            await self.watch.round()

    def numbers(self) -> list[str]:
        assert self.watch.snapshot is not None
        return [item.number for item in self.watch.snapshot.versions["m"]]


@pytest.fixture
def harness() -> SourceWatchHarness:
    made = SourceWatchHarness()
    made.registry.register("m", "1")
    made.watch.follow({"m"}, Projection())
    return made


async def test_before_the_first_answer_there_is_no_picture(harness: SourceWatchHarness) -> None:
    harness.registry.down = True
    await harness.failing_round()
    assert harness.watch.snapshot is None


async def test_only_followed_models_versions_are_read(harness: SourceWatchHarness) -> None:
    harness.registry.register("other", "1")
    await harness.watch.round()
    assert harness.watch.snapshot is not None
    assert set(harness.watch.snapshot.models) == {"m", "other"}
    assert harness.registry.asked == ["m"]


async def test_versions_are_read_again_only_where_something_changed_or_a_minute_passed(
    harness: SourceWatchHarness,
) -> None:
    await harness.watch.round()
    await harness.watch.round()
    assert harness.registry.asked == ["m"]
    harness.registry.register("m", "2")
    await harness.watch.round()
    assert harness.numbers() == ["2", "1"]
    harness.time += 60.0
    await harness.watch.round()
    assert harness.registry.asked == ["m"] * 3


async def test_the_picture_stays_while_mlflow_is_away(harness: SourceWatchHarness) -> None:
    await harness.watch.round()
    harness.registry.down = True
    await harness.failing_round()
    assert harness.numbers() == ["1"]


async def test_only_a_new_picture_wakes_the_controller(harness: SourceWatchHarness) -> None:
    await harness.watch.round()
    assert harness.changed.is_set()
    harness.changed.clear()
    await harness.watch.round()
    assert not harness.changed.is_set()


async def test_a_wake_asks_at_once_and_an_outage_ends_nothing(harness: SourceWatchHarness) -> None:
    running = asyncio.create_task(harness.watch.run())
    await harness.changed.wait()
    harness.registry.down = True
    harness.watch.wake()
    await asyncio.sleep(0)
    harness.registry.down = False
    harness.registry.register("m", "2")
    harness.changed.clear()
    harness.watch.wake()
    await asyncio.wait_for(harness.changed.wait(), 60)
    assert harness.numbers() == ["2", "1"]
    running.cancel()


async def test_following_a_new_model_asks_at_once(harness: SourceWatchHarness) -> None:
    running = asyncio.create_task(harness.watch.run())
    await harness.changed.wait()
    harness.registry.register("other", "1")
    harness.changed.clear()
    harness.watch.follow({"m", "other"}, Projection())
    await asyncio.wait_for(harness.changed.wait(), 60)
    assert harness.watch.snapshot is not None
    assert "other" in harness.watch.snapshot.versions
    running.cancel()


@pytest.mark.parametrize("other", ["a", "z"])  # is read before "m", and after it
async def test_a_model_that_can_not_be_read_hides_no_new_version_of_another(
    harness: SourceWatchHarness, other: str
) -> None:
    harness.registry.register(other, "1")
    harness.watch.follow({"m", other}, Projection())
    await harness.watch.round()
    harness.registry.register("m", "2")
    harness.registry.hangs = {other}
    for _ in range(2):
        await harness.failing_round(f"versions of {other}")
        assert harness.numbers() == ["2", "1"]
    harness.registry.hangs = set()
    await harness.watch.round()
    assert harness.numbers() == ["2", "1"]


async def test_a_new_version_whose_read_failed_is_read_at_the_next_round(
    harness: SourceWatchHarness,
) -> None:
    await harness.watch.round()
    harness.registry.register("m", "2")
    harness.registry.hangs = {"m"}
    await harness.failing_round()
    assert harness.numbers() == ["1"]
    harness.registry.hangs = set()
    await harness.watch.round()
    assert harness.numbers() == ["2", "1"]


async def test_a_model_that_was_never_read_is_unknown_and_not_without_versions(
    harness: SourceWatchHarness,
) -> None:
    harness.registry.register("z", "1")
    harness.watch.follow({"m", "z"}, Projection())
    harness.registry.hangs = {"z"}
    await harness.failing_round()
    assert harness.watch.snapshot is not None
    assert set(harness.watch.snapshot.versions) == {"m"}


async def test_a_verdict_is_told_while_another_model_can_not_be_read(
    harness: SourceWatchHarness,
) -> None:
    harness.registry.register("z", "1")
    harness.watch.follow({"m", "z"}, REJECTED)
    harness.registry.hangs = {"z"}
    for _ in range(2):
        await harness.failing_round()
    assert harness.registry.told == [("1", "verdict", "Rejected"), ("1", "reason", "pickle")]


async def test_of_many_models_each_round_asks_for_those_that_changed_and_all_come_in_time(
    harness: SourceWatchHarness,
) -> None:
    for number in range(3 * PAGE):
        harness.registry.register(f"other-{number}", "1")
    await harness.watch.round()
    harness.registry.models_asked.clear()
    harness.registry.aliases["m"] = {"champion": "1"}
    harness.registry.register("m", "2")
    await harness.watch.round()
    assert harness.numbers() == ["2", "1"]
    assert harness.registry.models_asked == ["changed"]
    harness.time += 3 * 60.0  # a poll for each page
    await harness.watch.round()
    assert harness.registry.models_asked == ["changed", "all"]
    harness.watch.wake()  # a webhook tells of an alias
    await harness.watch.round()
    assert harness.registry.models_asked == ["changed", "all", "all"]


def aliases(harness: SourceWatchHarness) -> dict[str, str]:
    assert harness.watch.snapshot is not None
    return dict(harness.watch.snapshot.models["m"].aliases)


@pytest.mark.parametrize("others", [0, 3 * PAGE])
@pytest.mark.parametrize("wake", [SourceWatch.wake, lambda watch: watch.announce("m")])
async def test_an_alias_that_one_look_missed_is_gone_with_the_second_look(
    harness: SourceWatchHarness, others: int, wake: Callable[[SourceWatch], None]
) -> None:
    for number in range(others):
        harness.registry.register(f"other-{number}", "1")
    was = {"champion": "1", "old": "1"}
    for again in (True, False, False):
        harness.registry.aliases["m"] = was
        harness.watch.wake()
        await harness.watch.round()
        harness.registry.aliases["m"] = {"champion": "2"}  # one that moves is believed
        wake(harness.watch)
        await harness.watch.round()
        assert aliases(harness) == {"champion": "2", "old": "1"}
        if again:
            harness.registry.aliases["m"] = was
            harness.time += SECOND_LOOK_SECONDS
            await harness.watch.round()
            assert aliases(harness) == was
            continue
        for seconds, seen in ((29.0, {"champion": "2", "old": "1"}), (1.0, {"champion": "2"})):
            harness.time += seconds
            await harness.watch.round()
            assert aliases(harness) == seen


async def test_a_model_that_was_registered_again_has_no_alias_of_the_one_before(
    harness: SourceWatchHarness,
) -> None:
    harness.registry.aliases["m"] = {"champion": "1"}
    await harness.watch.round()
    harness.registry.recreate("m")
    harness.registry.aliases["m"] = {}
    await harness.watch.round()
    assert aliases(harness) == {}


async def test_a_registry_that_can_not_say_what_changed_is_listed(
    harness: SourceWatchHarness,
) -> None:
    for number in range(2 * PAGE):
        harness.registry.register(f"other-{number}", "1")
    harness.registry.refuses = {"changed models"}
    await harness.watch.round()
    harness.registry.register("m", "2")
    await harness.watch.round()
    assert harness.numbers() == ["2", "1"]


def asked(harness: SourceWatchHarness) -> list[str]:
    """What the registry was asked of models since this was last looked at."""
    found = list(harness.registry.models_asked)
    harness.registry.models_asked.clear()
    return found


async def settled(harness: SourceWatchHarness) -> SourceWatchHarness:
    """With webhooks that arrive, and nothing left to ask for."""
    await harness.watch.round()
    harness.watch.announce("m")
    await harness.watch.round()
    asked(harness)
    return harness


async def test_while_webhooks_arrive_mlflow_is_asked_seldom_and_told_at_once(
    harness: SourceWatchHarness,
) -> None:
    await settled(harness)
    harness.watch.follow({"m"}, REJECTED)
    for _ in range(9):
        harness.time += 60.0
        await harness.watch.round()
    assert asked(harness) == []
    assert harness.registry.told == [("1", "verdict", "Rejected"), ("1", "reason", "pickle")]
    harness.time += 60.0
    await harness.watch.round()
    assert asked(harness) == ["all"]
    assert webhooks_arrive()


@pytest.mark.parametrize("change", ["version", "model", "alias"])
async def test_a_change_that_no_webhook_told_has_mlflow_asked_often_again(
    harness: SourceWatchHarness, change: str
) -> None:
    await settled(harness)
    if change == "alias":
        harness.registry.aliases["m"] = {"champion": "1"}
    else:
        harness.registry.register({"version": "m", "model": "new"}[change], "2")
    harness.time += 600.0
    await harness.watch.round()
    assert not webhooks_arrive()
    asked(harness)
    harness.time += 60.0
    await harness.watch.round()
    assert asked(harness) == ["all"]
    harness.watch.announce("m")
    await harness.watch.round()
    asked(harness)
    harness.time += 60.0
    await harness.watch.round()
    assert asked(harness) == []


async def test_what_a_webhook_told_is_read_at_once_and_is_no_reason_to_poll(
    harness: SourceWatchHarness,
) -> None:
    await settled(harness)
    harness.registry.register("m", "2")
    harness.watch.announce("m")
    await harness.watch.round()
    assert harness.numbers() == ["2", "1"]
    assert webhooks_arrive()


async def test_a_webhook_that_comes_during_the_question_that_found_its_change_did_tell(
    harness: SourceWatchHarness,
) -> None:
    await settled(harness)
    harness.time += 600.0
    harness.registry.register("m", "2")
    harness.registry.meanwhile = lambda: harness.watch.announce("m")
    await harness.watch.round()
    assert webhooks_arrive()


async def test_of_many_models_a_webhook_has_its_own_model_asked_for_alone(
    harness: SourceWatchHarness,
) -> None:
    for number in range(3 * PAGE):
        harness.registry.register(f"other-{number}", "1")
    await settled(harness)
    harness.registry.aliases["m"] = {"champion": "1"}
    harness.watch.announce("m")
    await harness.watch.round()
    assert asked(harness) == ["changed", "m"]
    assert harness.watch.snapshot is not None
    assert harness.watch.snapshot.models["m"].aliases == {"champion": "1"}
    del harness.registry.listed["m"]
    harness.watch.announce("m")
    await harness.watch.round()
    assert "m" in harness.watch.snapshot.models  # until lists lack it twice
    for _ in range(2):
        harness.time += SECOND_LOOK_SECONDS
        await harness.watch.round()
    assert "m" not in harness.watch.snapshot.models


async def test_what_webhooks_told_is_asked_for_again_after_an_outage(
    harness: SourceWatchHarness,
) -> None:
    for number in range(3 * PAGE):
        harness.registry.register(f"other-{number}", "1")
    await settled(harness)
    harness.registry.aliases["m"] = {"champion": "1"}
    harness.watch.announce("m")
    harness.registry.down = True
    await harness.failing_round()
    harness.registry.down = False
    await harness.watch.round()
    assert asked(harness) == ["changed", "m"]
    assert webhooks_arrive()


async def test_more_models_told_of_than_a_page_holds_are_listed(
    harness: SourceWatchHarness,
) -> None:
    for number in range(3 * PAGE):
        harness.registry.register(f"other-{number}", "1")
    await settled(harness)
    for number in range(PAGE + 1):
        harness.watch.announce(f"other-{number}")
    await harness.watch.round()
    assert asked(harness) == ["all"]

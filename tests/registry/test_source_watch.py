"""The picture of MLflow, and what MLflow is told."""

import asyncio

import pytest
from registry_fakes import FakeRegistry, MemoryArtifacts

from registry.errors import SourceUnavailableError
from registry.projection import EvidenceOf, Projection, VersionTags
from registry.source_watch import SourceWatch
from registry.write_back import WriteBack

REJECTED = Projection(tags=(VersionTags("m", "1", {"verdict": "Rejected", "reason": "pickle"}),))


async def nothing(evidence: EvidenceOf) -> dict[str, bytes]:
    raise AssertionError(f"nobody asked for {evidence}")


class House:
    def __init__(self) -> None:
        self.time = 0.0
        self.registry = FakeRegistry()
        self.changed = asyncio.Event()
        write_back = WriteBack(self.registry, MemoryArtifacts(), nothing)
        self.watch = SourceWatch(
            self.registry,
            write_back,
            poll_seconds=60.0,
            changed=self.changed,
            clock=lambda: self.time,
        )

    def numbers(self) -> list[str]:
        assert self.watch.picture is not None
        return [item.number for item in self.watch.picture.versions["m"]]


@pytest.fixture
def house() -> House:
    made = House()
    made.registry.register("m", "1")
    made.watch.follow({"m"}, Projection())
    return made


async def test_before_the_first_answer_there_is_no_picture(house: House) -> None:
    house.registry.down = True
    with pytest.raises(SourceUnavailableError):
        await house.watch.round()
    assert house.watch.picture is None


async def test_only_followed_models_versions_are_read(house: House) -> None:
    house.registry.register("other", "1")
    await house.watch.round()
    assert house.watch.picture is not None
    assert set(house.watch.picture.models) == {"m", "other"}
    assert house.registry.asked == ["m"]


async def test_versions_are_read_again_only_where_something_changed_or_a_minute_passed(
    house: House,
) -> None:
    await house.watch.round()
    await house.watch.round()
    assert house.registry.asked == ["m"]
    house.registry.register("m", "2")
    await house.watch.round()
    assert house.numbers() == ["2", "1"]
    house.time += 60.0
    await house.watch.round()
    assert house.registry.asked == ["m"] * 3


async def test_the_picture_stays_while_mlflow_is_away(house: House) -> None:
    await house.watch.round()
    house.registry.down = True
    with pytest.raises(SourceUnavailableError):
        await house.watch.round()
    assert house.numbers() == ["1"]


async def test_only_a_new_picture_wakes_the_controller(house: House) -> None:
    await house.watch.round()
    assert house.changed.is_set()
    house.changed.clear()
    await house.watch.round()
    assert not house.changed.is_set()


async def test_a_verdict_is_told_once(house: House) -> None:
    house.watch.follow({"m"}, REJECTED)
    await house.watch.round()
    await house.watch.round()
    assert house.registry.told == [("1", "verdict", "Rejected"), ("1", "reason", "pickle")]


async def test_a_verdict_that_could_not_be_told_is_told_later(house: House) -> None:
    await house.watch.round()
    house.registry.down = True
    house.watch.follow({"m"}, REJECTED)
    with pytest.raises(SourceUnavailableError):
        await house.watch.round()
    house.registry.down = False
    await house.watch.round()
    assert len(house.registry.told) == 2


async def test_a_wake_asks_at_once_and_an_outage_ends_nothing(house: House) -> None:
    running = asyncio.create_task(house.watch.run())
    await house.changed.wait()
    house.registry.down = True
    house.watch.wake()
    await asyncio.sleep(0)
    house.registry.down = False
    house.registry.register("m", "2")
    house.changed.clear()
    house.watch.wake()
    await asyncio.wait_for(house.changed.wait(), 60)
    assert house.numbers() == ["2", "1"]
    running.cancel()


async def test_following_a_new_model_asks_at_once(house: House) -> None:
    running = asyncio.create_task(house.watch.run())
    await house.changed.wait()
    house.registry.register("other", "1")
    house.changed.clear()
    house.watch.follow({"m", "other"}, Projection())
    await asyncio.wait_for(house.changed.wait(), 60)
    assert house.watch.picture is not None
    assert "other" in house.watch.picture.versions
    running.cancel()


@pytest.mark.parametrize("other", ["a", "z"])  # is read before "m", and after it
async def test_a_model_that_can_not_be_read_hides_no_new_version_of_another(
    house: House, other: str
) -> None:
    house.registry.register(other, "1")
    house.watch.follow({"m", other}, Projection())
    await house.watch.round()
    house.registry.register("m", "2")
    house.registry.hangs = {other}
    for _ in range(2):
        with pytest.raises(SourceUnavailableError, match=f"versions of {other}"):
            await house.watch.round()
        assert house.numbers() == ["2", "1"]
    house.registry.hangs = set()
    await house.watch.round()
    assert house.numbers() == ["2", "1"]


async def test_a_new_version_whose_read_failed_is_read_at_the_next_round(house: House) -> None:
    await house.watch.round()
    house.registry.register("m", "2")
    house.registry.hangs = {"m"}
    with pytest.raises(SourceUnavailableError):
        await house.watch.round()
    assert house.numbers() == ["1"]
    house.registry.hangs = set()
    await house.watch.round()
    assert house.numbers() == ["2", "1"]


async def test_a_model_that_was_never_read_is_unknown_and_not_without_versions(
    house: House,
) -> None:
    house.registry.register("z", "1")
    house.watch.follow({"m", "z"}, Projection())
    house.registry.hangs = {"z"}
    with pytest.raises(SourceUnavailableError):
        await house.watch.round()
    assert house.watch.picture is not None
    assert set(house.watch.picture.versions) == {"m"}


async def test_a_verdict_is_told_while_another_model_can_not_be_read(house: House) -> None:
    house.registry.register("z", "1")
    house.watch.follow({"m", "z"}, REJECTED)
    house.registry.hangs = {"z"}
    for _ in range(2):
        with pytest.raises(SourceUnavailableError):
            await house.watch.round()
    assert house.registry.told == [("1", "verdict", "Rejected"), ("1", "reason", "pickle")]

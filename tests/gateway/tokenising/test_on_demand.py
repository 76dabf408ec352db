"""A tokeniser is opened for its first caller, once, and closed for others within a bound."""

import asyncio
import tracemalloc
from pathlib import Path
from time import monotonic

import pytest
from gateway_world import loop_turns
from lazy_tokenisers import SIZE, Shelf, ThreadSpawner, on_demand, words_of

from gateway.errors import (
    DeadlineExceededError,
    InvalidInputError,
    ModelUnavailableError,
    OverloadedError,
    TooLargeError,
)
from gateway.packages import ServedModel
from gateway.tokenising.on_demand import OnDemand
from preprocess.tokeniser_process.messages import Encode, Rows

pytestmark = pytest.mark.slow


async def ids(owner: OnDemand, model: ServedModel, text: str = "w1", wait: float = 60) -> list[int]:
    answer = await owner.ask(model, Encode([text]), len(text), monotonic() + wait)
    assert isinstance(answer.said, Rows)
    return answer.said.ids[0]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


async def test_however_many_ask_for_one_it_is_opened_once(shelf: Shelf) -> None:
    spawner, model = ThreadSpawner(), shelf.model("1")
    assert model.opened is None
    async with on_demand(shelf, spawner) as owner:
        found = await asyncio.gather(*(ids(owner, model) for _ in range(50)))
        assert found == [[3]] * 50
        assert (spawner.started, owner.openings) == (1, 1)


async def test_packages_of_one_tokeniser_share_it(shelf: Shelf) -> None:
    spawner, same = ThreadSpawner(), words_of(1)
    models = [shelf.packages.open(shelf.put(version, same)) for version in ("1", "2", "3")]
    async with on_demand(shelf, spawner) as owner:
        await asyncio.gather(*(ids(owner, model) for model in models))
        assert spawner.started == 1
    files = [model.file for model in models if model.file is not None]
    assert len({path.stat().st_ino for path in files}) == 1


async def test_three_take_turns_in_room_for_two_and_all_are_answered_rightly(shelf: Shelf) -> None:
    spawner = ThreadSpawner()
    models = [shelf.model(version) for version in ("1", "2", "3")]
    async with on_demand(shelf, spawner, 2 * SIZE) as owner:

        async def caller(number: int) -> None:
            for turn in range(10):
                at = (number + turn) % 3
                assert await ids(owner, models[at], f"v{at + 1}") == [51]
                assert await ids(owner, models[at], f"v{(at + 1) % 3 + 1}") == [1]

        await asyncio.gather(*(caller(number) for number in range(6)))
        assert spawner.most_running <= 2
        assert owner.closings >= 1
        assert owner.openings == spawner.started


async def test_the_longest_unasked_is_closed_and_what_a_rollout_needs_stays(shelf: Shelf) -> None:
    spawner = ThreadSpawner()
    one, two, three, four = (shelf.model(version) for version in "1234")
    async with on_demand(shelf, spawner, 2 * SIZE) as owner:
        for model in (one, two, three):
            await ids(owner, model)
        assert [owner.is_open(model) for model in (one, two, three)] == [False, True, True]
        owner.tend([one, two, three, four], compared=[[two]])
        await ids(owner, four)
        assert [owner.is_open(model) for model in (two, three, four)] == [True, False, True]


async def test_what_a_rollout_needs_is_opened_before_anybody_asks(shelf: Shelf) -> None:
    spawner, model, opened = ThreadSpawner(), shelf.model("1"), asyncio.Event()
    async with on_demand(shelf, spawner) as owner:
        owner.on_change = opened.set
        owner.tend([model], [model])
        await opened.wait()
        assert owner.is_open(model)


async def test_what_nobody_wants_any_more_is_closed(shelf: Shelf) -> None:
    spawner, model = ThreadSpawner(), shelf.model("1")
    async with on_demand(shelf, spawner) as owner:
        await ids(owner, model)
        owner.tend([])
        assert not owner.is_open(model)


async def test_others_are_answered_while_one_is_being_opened(shelf: Shelf) -> None:
    spawner = ThreadSpawner()
    hot, cold = shelf.model("1"), shelf.model("2")
    async with on_demand(shelf, spawner) as owner:
        await ids(owner, hot)
        spawner.go_on.clear()
        first = asyncio.create_task(ids(owner, cold))
        await loop_turns()
        assert await ids(owner, hot) == [3]
        assert not first.done()
        spawner.go_on.set()
        assert await first == [3]


async def test_a_caller_waits_until_its_own_deadline_and_the_opening_goes_on(shelf: Shelf) -> None:
    spawner, model = ThreadSpawner(), shelf.model("1")
    async with on_demand(shelf, spawner) as owner:
        spawner.go_on.clear()
        patient = asyncio.create_task(ids(owner, model))
        await spawner.asked_for.wait()
        with pytest.raises(DeadlineExceededError):
            await ids(owner, model, wait=0.01)
        spawner.go_on.set()
        assert await patient == [3]
        assert spawner.started == 1


async def test_no_more_wait_than_there_are_places(shelf: Shelf) -> None:
    spawner, model = ThreadSpawner(), shelf.model("1")
    async with on_demand(shelf, spawner) as owner:
        owner.room._most_callers = 2
        spawner.go_on.clear()
        waiting = [asyncio.create_task(ids(owner, model)) for _ in range(2)]
        await spawner.asked_for.wait()
        with pytest.raises(OverloadedError, match="tokeniser"):
            await ids(owner, model)
        spawner.go_on.set()
        await asyncio.gather(*waiting)


async def test_one_that_can_not_be_opened_is_refused_with_its_reason_and_tried_again(
    shelf: Shelf,
) -> None:
    spawner, model = ThreadSpawner(), shelf.model("1")
    async with on_demand(shelf, spawner) as owner:
        spawner.away = True
        with pytest.raises(ModelUnavailableError, match="no process can be started"):
            await ids(owner, model)
        assert owner.fails(model)
        assert any("no process" in note for note in owner.notes())
        spawner.away = False
        while owner.fails(model):
            owner.tend([model])
            await asyncio.sleep(0.01)
        assert await ids(owner, model) == [3]
        assert not list(owner.notes())


async def test_a_file_that_was_spoilt_on_the_disk_is_fetched_anew(shelf: Shelf) -> None:
    spawner, model = ThreadSpawner(), shelf.model("1")
    assert model.file is not None
    content = model.file.read_bytes()
    model.file.write_bytes(b"{}")
    async with on_demand(shelf, spawner) as owner:
        with pytest.raises(ModelUnavailableError, match="not the file"):
            await ids(owner, model)
        while owner.fails(model):
            owner.tend([model])
            await asyncio.sleep(0.01)
        assert await ids(owner, model) == [3]
    assert model.file.read_bytes() == content


async def test_a_process_that_dies_costs_no_caller_an_answer(shelf: Shelf) -> None:
    spawner, model = ThreadSpawner(), shelf.model("1")
    async with on_demand(shelf, spawner) as owner:
        await ids(owner, model)
        spawner.kill(0)
        assert await ids(owner, model) == [3]
        assert spawner.started == 2


async def test_one_that_has_grown_by_what_it_was_asked_makes_room_by_others(shelf: Shelf) -> None:
    sizes = iter([SIZE, SIZE, SIZE, 2 * SIZE])  # each at its opening, and after its first question
    spawner = ThreadSpawner(lambda: next(sizes, SIZE))
    one, two = shelf.model("1"), shelf.model("2")
    async with on_demand(shelf, spawner, 2 * SIZE) as owner:
        await ids(owner, one)
        await ids(owner, two)
        assert [owner.is_open(model) for model in (one, two)] == [False, True]
        assert owner.bytes >= 2 * SIZE


async def test_rollouts_that_do_not_fit_together_do_not_close_each_others(shelf: Shelf) -> None:
    spawner = ThreadSpawner()
    models = [shelf.model(version) for version in "1234"]
    first, second = models[:2], models[2:]
    async with on_demand(shelf, spawner, 2 * SIZE) as owner:
        changed = asyncio.Event()
        owner.on_change = changed.set

        async def until_open(which: list[ServedModel]) -> None:
            owner.tend(models, compared=[first, second] if which is first else [second])
            while not all(owner.stays_open(model) for model in which):
                await changed.wait()
                changed.clear()

        await until_open(first)
        for _ in range(5):
            owner.tend(models, compared=[first, second])
            await loop_turns()
        assert (spawner.started, owner.closings) == (2, 0)
        assert [owner.stays_open(model) for model in second] == [False, False]
        assert any("no memory for the tokenisers of 1 rollouts" in note for note in owner.notes())
        # A caller is answered all the same, and takes no place of theirs.
        assert await ids(owner, second[0]) == [3]
        assert all(owner.stays_open(model) for model in first)
        await until_open(second)
        assert not list(owner.notes())


async def test_one_that_a_rollout_needs_and_that_died_unasked_is_opened_again(
    shelf: Shelf,
) -> None:
    spawner, model = ThreadSpawner(), shelf.model("1")
    async with on_demand(shelf, spawner) as owner:
        opened = asyncio.Event()
        owner.on_change = opened.set
        owner.tend([model], compared=[[model]])
        await opened.wait()
        spawner.kill(0)
        opened.clear()
        while not opened.is_set():
            owner.tend([model], compared=[[model]])
            await asyncio.sleep(0)
        assert owner.stays_open(model)
        assert spawner.started == 2


async def test_a_text_that_is_no_unicode_is_refused_and_shifts_no_answers(shelf: Shelf) -> None:
    model = shelf.model("1")
    async with on_demand(shelf, ThreadSpawner()) as owner:
        found = await asyncio.gather(
            *(ids(owner, model, text) for text in ("w1", "w1 \ud800", "v1 w1")),
            return_exceptions=True,
        )
        assert found[0] == [3]
        assert isinstance(found[1], InvalidInputError)
        assert "text 0 is not Unicode text" in str(found[1])
        assert found[2] == [51, 3]
        assert await ids(owner, model, "v1") == [51]


async def test_characters_on_their_way_to_all_processes_are_bounded(shelf: Shelf) -> None:
    spawner = ThreadSpawner()
    one, two, three = (shelf.model(version) for version in "123")
    half = 32 * 1024 * 1024
    async with on_demand(shelf, spawner) as owner:
        spawner.go_on.clear()
        owner.room._most_bytes = 8 * half
        question, deadline = Encode(["w1"]), monotonic() + 60
        waiting = [
            asyncio.create_task(owner.ask(model, question, half, deadline)) for model in (one, two)
        ]
        await spawner.asked_for.wait()
        with pytest.raises(OverloadedError, match="Too many long texts"):
            await owner.ask(three, question, 1, deadline)
        spawner.go_on.set()
        await asyncio.gather(*waiting)
        await owner.ask(three, question, 1, deadline)


async def test_a_question_that_is_never_asked_is_refused_before_it_is_framed(shelf: Shelf) -> None:
    query = "w" * (1024 * 1024)  # one object, which would be framed for each row
    async with on_demand(shelf, ThreadSpawner()) as owner:
        question = Encode([query] * 65, ["w1"] * 65)
        tracemalloc.start()
        try:
            with pytest.raises(TooLargeError, match="at most 67108864"):
                await owner.ask(shelf.model("1"), question, 65 * len(query), monotonic() + 60)
            assert tracemalloc.get_traced_memory()[1] < len(query)
        finally:
            tracemalloc.stop()


async def test_who_comes_after_the_end_is_told_and_opens_nothing(shelf: Shelf) -> None:
    spawner = ThreadSpawner()
    one, two = shelf.model("1"), shelf.model("2")
    async with on_demand(shelf, spawner) as owner:
        await ids(owner, one)
        await owner.close()
        for model in (one, two):
            with pytest.raises(ModelUnavailableError, match="shutting down"):
                await ids(owner, model)
        owner.tend([one, two], [one])
        await loop_turns()
        assert spawner.started == 1


async def test_what_forks_processes_starts_once_callers_are_served_and_only_where_it_is_needed(
    shelf: Shelf, tmp_path: Path
) -> None:
    spawner = ThreadSpawner()
    here = Shelf(tmp_path / "here", most_here=100 * SIZE).model("9")
    async with on_demand(shelf, spawner) as owner:
        owner.tend([here])
        owner.served()
        await loop_turns()
        assert spawner.ahead == 0
        owner.tend([here, shelf.model("1"), shelf.model("2")])
        await loop_turns()
        assert spawner.ahead == 0
        for _ in range(3):
            owner.served()
            await loop_turns()
        assert (spawner.ahead, spawner.started) == (1, 0)


async def test_a_start_ahead_that_fails_keeps_no_caller_from_an_answer(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    spawner, model = ThreadSpawner(), shelf.model("1")
    spawner.away = True
    async with on_demand(shelf, spawner) as owner:
        owner.tend([model])
        owner.served()
        await loop_turns()
        assert "can't be opened ahead" in caplog.text
        assert not owner.fails(model)
        spawner.away = False
        assert await ids(owner, model) == [3]

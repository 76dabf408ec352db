"""Real processes: room for two of three tokenisers, no answer is wrong, and nobody else waits."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

import psutil
import pytest
import uvloop
from gateway_process import Running, gateway_at, put
from gateway_world import endpoint_of, loop_turns
from lazy_tokenisers import MEGABYTE, Openings, Shelf, huge_pieces, large_words

from gateway.errors import ModelUnavailableError
from gateway.packages import ServedModel
from gateway.tokenising.on_demand import OnDemand
from gateway.tokenising.process import Spawner
from preprocess.tokeniser_process.messages import Encode, Rows

pytestmark = pytest.mark.real  # starts processes

NUMBERS = (1, 2, 3)
WORDS = [f"v{number}" for number in NUMBERS]


async def ids(owner: OnDemand, model: ServedModel, text: str) -> list[int]:
    answer = await owner.ask(model, Encode([text]), len(text), monotonic() + 120)
    assert isinstance(answer.said, Rows)
    return answer.said.ids[0]


async def until_ready(gateway: Running) -> None:
    for _ in range(10_000):
        if (await gateway.operations.get("/readyz")).status_code == 200:
            return
    raise AssertionError("never ready")


@asynccontextmanager
async def owner_of(shelf: Shelf, megabytes: int) -> AsyncIterator[OnDemand]:
    owner = OnDemand(megabytes * MEGABYTE, Spawner(os.environ), Openings(), shelf.packages.open)
    try:
        async with asyncio.timeout(300):
            yield owner
    finally:
        await owner.close()
    me = psutil.Process()
    assert not [each for each in me.children(recursive=True) if "tokeniser" in str(each.cmdline())]


@asynccontextmanager
async def ahead_of_none(home: Path) -> AsyncIterator[Running]:
    """A gateway of three endpoints that opens every tokeniser when it is asked for."""
    shelf = Shelf(home)
    shelf.store = home / "packages"
    (home / "endpoints").mkdir()
    (home / "reports").mkdir()
    for number in NUMBERS:
        put(home, endpoint_of(shelf.put(str(number), large_words(number)), name=f"e{number}"))
    async with gateway_at(home, "--tokeniser-share-ahead", "0") as gateway:
        async with asyncio.timeout(300):
            await until_ready(gateway)
            yield gateway


async def known_words(gateway: Running, number: int) -> list[bool]:
    """Which of ``WORDS`` the tokeniser of an endpoint knows."""
    while True:
        reply = await gateway.http.post(f"/endpoints/e{number}/tokenize", json={"inputs": WORDS})
        if reply.status_code != 504:  # of a busy machine: the first one waits for all of Python
            break
    assert reply.status_code == 200, reply.text
    return [[token["id"] for token in tokens] != [1] for tokens in reply.json()]


async def test_callers_of_a_hot_tokeniser_are_answered_while_a_huge_one_is_opened(
    tmp_path: Path,
) -> None:
    shelf = Shelf(tmp_path)
    hot = shelf.packages.open(shelf.put("1", large_words(1)))
    huge = shelf.packages.open(shelf.put("2", huge_pieces()))
    async with owner_of(shelf, 1000) as owner:
        assert await ids(owner, hot, "v1 word7") == [3, 107]
        opening = asyncio.create_task(ids(owner, huge, "p1x7919"))
        answered = 0
        while not opening.done():
            assert await ids(owner, hot, "v1") == [3]
            answered += 1
        await opening
        # The library holds the interpreter's lock for all of it: in a thread there would be few.
        assert answered >= 20
        # So it does while it frees all of it.
        owner.tend([hot])
        closing = asyncio.gather(*owner._closing.values())
        assert await ids(owner, hot, "v1") == [3]
        await closing
        assert owner.bytes < 50 * MEGABYTE


async def test_a_process_measures_itself_and_gives_all_of_it_back(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    huge = shelf.packages.open(shelf.put("1", huge_pieces()))
    small = shelf.packages.open(shelf.put("2"))
    async with owner_of(shelf, 1000) as owner:
        await ids(owner, huge, "p1x7919")
        large = owner.bytes
        assert huge.file is not None
        assert large > 5 * huge.file.stat().st_size
        await ids(owner, small, "w1")
        owner.tend([small])
        await asyncio.gather(*owner._closing.values())
        assert owner.bytes < large / 5


async def test_a_process_that_is_killed_is_replaced_and_costs_no_answer(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    model = shelf.packages.open(shelf.put("1", large_words(1)))
    async with owner_of(shelf, 1000) as owner:
        await ids(owner, model, "v1")
        (process,) = owner._open.values()
        os.kill(process._pid, signal.SIGKILL)
        assert await ids(owner, model, "v1 word7") == [3, 107]
        assert owner.openings == 2


def open_files(pid: int) -> list[str]:
    """What a process's descriptors are of."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that this folder was read by
            found.append(str(path.readlink()))
    return found


def spawners_of(pid: int) -> list[psutil.Process]:
    """What forks the tokenisers of a process."""
    return [each for each in psutil.Process(pid).children() if "spawner" in str(each.cmdline())]


def tokenisers_of(gateway: Running) -> tuple[psutil.Process, list[psutil.Process]]:
    """The spawner of a gateway's tokenisers, and their processes."""
    (spawner,) = spawners_of(gateway.process.pid)
    return spawner, spawner.children()


def test_one_that_is_killed_in_the_middle_of_questions_costs_no_answer(tmp_path: Path) -> None:
    async def kill() -> None:
        shelf = Shelf(tmp_path)
        model = shelf.packages.open(shelf.put("1", large_words(1)))
        async with owner_of(shelf, 1000) as owner:
            await ids(owner, model, "v1")
            for round_ in range(1, 4):
                (process,) = owner._open.values()
                os.kill(process._pid, signal.SIGSTOP)
                asked = [asyncio.create_task(ids(owner, model, "v1 word7")) for _ in range(8)]
                await loop_turns()
                assert len(process._asked) == len(asked)
                os.kill(process._pid, signal.SIGKILL)
                assert await asyncio.gather(*asked) == [[3, 107]] * 8
                assert (owner.openings, owner.failed) == (1 + round_, 0)

    uvloop.run(kill())  # the gateway's event loop: what is closed already, it refuses to close


async def test_a_gateway_answers_though_what_forks_its_tokenisers_is_killed(
    tmp_path: Path,
) -> None:
    async with ahead_of_none(tmp_path) as gateway:
        assert await known_words(gateway, 1) == [True, False, False]
        spawner, (process,) = tokenisers_of(gateway)
        spawner.kill()
        assert await known_words(gateway, 2) == [False, True, False]
        assert await known_words(gateway, 1) == [True, False, False]
        assert process.is_running()
        process.kill()


async def test_signals_to_stop_end_no_tokeniser_before_its_gateway_has_its_answers(
    tmp_path: Path,
) -> None:
    """Such as come to all processes of a service at once."""
    async with ahead_of_none(tmp_path) as gateway:
        assert await known_words(gateway, 1) == [True, False, False]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            spawner, processes = tokenisers_of(gateway)
            for each in (spawner, *processes):
                each.send_signal(number)
        assert await known_words(gateway, 1) == [True, False, False]
        assert tokenisers_of(gateway) == (spawner, processes)
        gateway.process.terminate()
        async with asyncio.timeout(60):
            assert await gateway.process.wait() == 0
        _, alive = psutil.wait_procs([spawner, *processes], timeout=60)
        assert not alive


def test_what_does_not_answer_keeps_no_gateway_from_stopping(tmp_path: Path) -> None:
    async def stop() -> None:
        shelf = Shelf(tmp_path)
        models = [shelf.model(str(number)) for number in NUMBERS]
        spawner = Spawner(os.environ)
        owner = OnDemand(1000 * MEGABYTE, spawner, Openings(), shelf.packages.open)
        for model in models:
            await ids(owner, model, "w1")
        (forks,) = spawners_of(os.getpid())
        processes = [forks, *forks.children()]
        for each in processes:
            each.suspend()
        asked = [asyncio.create_task(ids(owner, model, "w1")) for model in models]
        await loop_turns()
        assert all(process._asked for process in owner._open.values())
        owner.tend(models[1:])  # one is being closed meanwhile, and waits for its answer
        async with asyncio.timeout(60):
            await owner.close()
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(answer, ModelUnavailableError)
        _, alive = psutil.wait_procs(processes, timeout=60)
        assert not alive

    uvloop.run(stop())


def test_no_process_of_a_tokeniser_holds_credentials_or_files_of_others(tmp_path: Path) -> None:
    async def look() -> None:
        shelf = Shelf(tmp_path)
        environment = {**os.environ, "AWS_SECRET_ACCESS_KEY": "x", "PASSWORD": "x"}
        owner = OnDemand(MEGABYTE * 100, Spawner(environment), Openings(), shelf.packages.open)
        try:
            for number in NUMBERS:
                await ids(owner, shelf.model(str(number)), "w1")
            for each in owner._open.values():
                process = psutil.Process(each._pid)
                assert not {"AWS_SECRET_ACCESS_KEY", "PASSWORD"} & process.environ().keys()
                targets = open_files(process.pid)
                assert sum(target.startswith("socket:") for target in targets) == 1, targets
                assert len(targets) <= 3, targets  # what it prints to, besides
                assert process.num_threads() == 1
        finally:
            await owner.close()

    uvloop.run(look())  # which hands on a copy of what it is told to


def test_one_that_is_opened_as_what_forks_it_is_killed_is_opened_by_another(
    tmp_path: Path,
) -> None:
    async def kill() -> None:
        shelf = Shelf(tmp_path)
        async with owner_of(shelf, 1000) as owner:
            for number in NUMBERS:
                assert await ids(owner, shelf.model(str(number)), "w1") == [3]
                (forks,) = spawners_of(os.getpid())
                forks.kill()
            assert (owner.openings, owner.failed) == (3, 0)

    uvloop.run(kill())


def test_nothing_stays_open_of_many_that_were_opened_and_closed(tmp_path: Path) -> None:
    async def turns() -> None:
        shelf = Shelf(tmp_path)
        models = [shelf.model(str(number)) for number in range(1, 7)]
        async with owner_of(shelf, 1) as owner:
            for model in models[:2]:
                await ids(owner, model, "w1")
            before = len(open_files(os.getpid()))
            for model in models * 3:
                await ids(owner, model, "w1")
            await asyncio.gather(*owner._closing.values())
            assert len(open_files(os.getpid())) <= before
            (forks,) = spawners_of(os.getpid())
            assert len(open_files(forks.pid)) <= 5
            assert len(forks.children()) == 1

    uvloop.run(turns())


async def test_a_gateway_is_ready_for_a_tokeniser_apart_before_anybody_asks(
    tmp_path: Path,
) -> None:
    async with ahead_of_none(tmp_path) as one:
        while not spawners_of(one.process.pid):
            await one.operations.get("/readyz")
        (spawner,) = spawners_of(one.process.pid)
        assert await known_words(one, 2) == [False, True, False]
        assert spawners_of(one.process.pid) == [spawner]


async def test_three_endpoints_in_room_for_two_are_all_answered_rightly(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.store = tmp_path / "packages"
    refs = {number: shelf.put(str(number), large_words(number)) for number in NUMBERS}
    (tmp_path / "endpoints").mkdir()
    (tmp_path / "reports").mkdir()
    for number, ref in refs.items():
        put(tmp_path, endpoint_of(ref, name=f"e{number}"))
    flags = ("--tokeniser-megabytes", "25", "--tokeniser-share-ahead", "0")
    async with gateway_at(tmp_path, *flags) as one, gateway_at(tmp_path, *flags) as other:
        async with asyncio.timeout(300):
            for each in (one, other):
                await until_ready(each)

            async def caller(start: int) -> None:
                for turn in range(6):
                    number = NUMBERS[(start + turn) % 3]
                    gateway = (one, other)[turn % 2]
                    path = f"/endpoints/e{number}"
                    reply = await gateway.http.post(path, json={"inputs": ["unknown", *WORDS]})
                    assert reply.status_code == 200, reply.text
                    reply = await gateway.http.post(f"{path}/tokenize", json={"inputs": WORDS})
                    assert reply.status_code == 200, reply.text
                    found = [[token["id"] for token in tokens] for tokens in reply.json()]
                    # Of the other tokenisers' words, none is known.
                    assert found == [[2 + number if each == number else 1] for each in NUMBERS]

            await asyncio.gather(*(caller(start) for start in range(4)))
        for each in (one, other):
            metrics = (await each.operations.get("/metrics")).text
            values = dict(
                line.rsplit(" ", 1)
                for line in metrics.splitlines()
                if line.startswith("headrace_gateway_tokeniser")
            )
            assert float(values['headrace_gateway_tokenisers_open{where="apart"}']) <= 2
            assert float(values["headrace_gateway_tokenisers_opened_total"]) >= 3
            assert float(values["headrace_gateway_tokenisers_closed_total"]) >= 1
            assert float(values["headrace_gateway_tokeniser_waiting"]) == 0
            assert float(values["headrace_gateway_tokeniser_opening_seconds_count"]) >= 3

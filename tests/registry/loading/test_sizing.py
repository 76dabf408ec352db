"""In how many copies, of how many threads, a package runs: by what each way would do."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import COPIES, THREADS, FakeTriton, manifest, ref

from contracts.loading import DeviceKind, LoadedModel
from contracts.manifest import EngineKind
from registry.errors import TritonRefusedError
from registry.loading import splits
from registry.loading.desired import Role, Want
from registry.loading.placement import Placement
from registry.loading.sizing import ModelSizer
from registry.loading.splits import InstanceSplit
from registry.loading.triton_client import Overrides

PACKAGE = ref()
WANT = Want(PACKAGE, Role.STABLE)
NAME = PACKAGE.triton_model
FOLDER = Path("package")


class Machine(FakeTriton, Placement):
    """A Triton on so many cores whose rows a second are known for each split, and its placement."""

    def __init__(self, rows: Mapping[tuple[int, int], float]) -> None:
        FakeTriton.__init__(self, models={NAME})
        self.now = 0.0
        self.rows = rows
        self.tried: list[InstanceSplit] = []

    def clock(self) -> float:
        return self.now

    async def infer(
        self, name: str, inputs: Mapping[str, object], request_id: str = ""
    ) -> tuple[int, int]:
        starts = inputs.get("row_starts")
        rows = inputs["input_ids"].shape[0]  # type: ignore[attr-defined]
        if starts is not None:
            return len(starts) - 1, rows  # type: ignore[arg-type]
        self.now += rows / self.rows.get((self.copies.get(name, 1), self.threads.get(name, 1)), 1.0)
        return rows, 4 * rows

    def resize(
        self,
        name: str,
        package: Path,
        backend: str,
        split: InstanceSplit,
        device: DeviceKind | None = None,
    ) -> Overrides:
        del name, package, backend, device
        self.tried.append(split)
        return {COPIES: str(split.copies), THREADS: str(split.threads)}

    def remove(self, name: str) -> None:
        raise AssertionError(name)

    def _lay(self, name: str, layout: object) -> Overrides:
        raise AssertionError("it is placed already", name, layout)

    def _change(self, name: str, layout: object) -> Overrides:
        raise AssertionError("it is asked by resize", name, layout)

    def sizing(
        self,
        cores: int,
        auto_instances: int = 0,
        memory_bytes: int = 1 << 40,
        most_instances: int | None = None,
    ) -> ModelSizer:
        return ModelSizer(
            self,
            self,
            cores=cores,
            memory_bytes=memory_bytes,
            auto_instances=auto_instances,
            measure_seconds=1.0,
            most_instances=most_instances,
            clock=self.clock,
        )

    async def settle(
        self, sizing: ModelSizer, want: Want = WANT, known: LoadedModel | None = None
    ) -> LoadedModel:
        """What a loader would report."""
        running, costs = await sizing.settle(want, self.running(NAME), FOLDER, manifest(), known)
        assert running == self.running(NAME)
        return LoadedModel(
            ref=PACKAGE, costs=costs, instances=running.instances, threads=running.threads
        )


@pytest.mark.parametrize(
    ("rows", "cores", "chosen"),
    [
        ({(2, 1): 100.0, (1, 2): 80.0}, 2, (2, 1)),
        ({(2, 1): 80.0, (1, 2): 100.0}, 2, (1, 2)),
        ({(16, 1): 100.0, (8, 2): 90.0, (4, 4): 80.0}, 16, (16, 1)),
        ({(16, 1): 60.0, (8, 2): 100.0, (4, 4): 80.0}, 16, (8, 2)),
        ({(16, 1): 60.0, (8, 2): 90.0, (4, 4): 100.0}, 16, (4, 4)),
    ],
)
async def test_what_does_most_is_chosen_and_its_costs_are_told(
    rows: Mapping[tuple[int, int], float], cores: int, chosen: tuple[int, int]
) -> None:
    machine = Machine(rows)
    report = await machine.settle(machine.sizing(cores))
    assert (report.instances, report.threads) == chosen
    assert set(machine.tried) == set(splits.candidates(cores, cores))
    for cost in report.costs:
        assert cost.milliseconds == pytest.approx(1000 * cost.batch / rows[chosen])


async def test_what_was_chosen_stays_and_is_not_measured_again() -> None:
    machine = Machine({(2, 1): 80.0, (1, 2): 100.0})
    sizing = machine.sizing(2)
    report = await machine.settle(sizing)
    assert not sizing.differs(WANT, machine.running(NAME), report)
    machine.rows, machine.tried = {(2, 1): 100.0, (1, 2): 1.0}, []
    assert await machine.settle(sizing, known=report) == report
    assert machine.tried == []
    assert sizing.first(WANT, manifest(), report, on_gpu=False) == (1, 2)


@pytest.mark.parametrize("cores", [1, 4, 16])
async def test_what_was_chosen_for_other_cores_is_chosen_anew(cores: int) -> None:
    machine = Machine({(2, 1): 100.0})
    report = await machine.settle(machine.sizing(2))
    assert (report.instances, report.threads) == (2, 1)
    sizing = machine.sizing(cores)
    assert sizing.differs(WANT, machine.running(NAME), report)
    assert splits.suits(InstanceSplit(*_split(await machine.settle(sizing, known=report))), cores)


async def test_a_report_that_says_nothing_of_threads_is_made_anew() -> None:
    machine = Machine({})
    machine.copies[NAME] = 2
    old = LoadedModel(ref=PACKAGE, instances=2)
    sizing = machine.sizing(2)
    assert sizing.differs(WANT, machine.running(NAME), old)
    assert (await machine.settle(sizing, known=old)).threads > 0


async def test_a_split_that_triton_refuses_is_left_out() -> None:
    machine = Machine({(16, 1): 100.0, (8, 2): 90.0, (4, 4): 50.0})
    machine.most_copies = 8
    report = await machine.settle(machine.sizing(16))
    assert _split(report) == (8, 2)


async def test_the_refusal_of_every_split_is_told() -> None:
    machine = Machine({})
    machine.most_copies = 0
    with pytest.raises(TritonRefusedError, match="no room"):
        await machine.settle(machine.sizing(16))


@pytest.mark.parametrize("by_flag", [False, True])
async def test_copies_that_are_asked_for_stay_and_their_threads_are_measured(by_flag: bool) -> None:
    machine = Machine({(2, 1): 50.0, (2, 4): 100.0})
    want = WANT if by_flag else replace(WANT, instances=2)
    report = await machine.settle(machine.sizing(8, auto_instances=2 if by_flag else 0), want)
    assert _split(report) == (2, 4)
    assert set(machine.tried) == {(2, 1), (2, 4)}


async def test_memory_bounds_the_copies() -> None:
    machine = Machine({})
    report = await machine.settle(machine.sizing(16, memory_bytes=600 * 1024**2))
    assert set(machine.tried) == {(2, 8), (1, 16)}
    assert report.instances <= 2


@pytest.mark.parametrize("auto", [0, 8])
async def test_the_operator_bounds_the_copies_that_nobody_asked_for(auto: int) -> None:
    machine = Machine({(16, 1): 900.0, (8, 2): 800.0})
    unbounded = await machine.settle(machine.sizing(16, auto))
    assert unbounded.instances > 2
    bounded = machine.sizing(16, auto, most_instances=2)
    report = await machine.settle(bounded, known=unbounded)
    assert report.instances <= 2


async def test_one_core_leaves_nothing_to_measure() -> None:
    machine = Machine({})
    assert _split(await machine.settle(machine.sizing(1))) == (1, 1)
    assert machine.tried == []


@pytest.mark.parametrize(("asked", "copies"), [(None, 1), (3, 3)])
async def test_a_gpu_runs_one_copy_or_as_many_as_are_asked_for(
    asked: int | None, copies: int
) -> None:
    machine = Machine({})
    machine.gpus = 2
    sizing, want = machine.sizing(16), replace(WANT, instances=asked)
    assert sizing.first(want, manifest(), None, on_gpu=None).copies == copies
    report = await machine.settle(sizing, want)
    assert report.instances == 2 * copies
    assert not sizing.differs(want, machine.running(NAME), report)


@pytest.mark.parametrize("gpus", [0, 1, 2])
@pytest.mark.parametrize("asked", [None, 3])
async def test_a_packed_engine_runs_as_one_copy_whatever_is_asked(
    asked: int | None, gpus: int
) -> None:
    packed = manifest().model_copy(update={"engine": EngineKind.PACKED})
    machine = Machine({})
    machine.gpus = gpus
    sizing, want = machine.sizing(8, auto_instances=4), replace(WANT, instances=asked)
    assert sizing.first(want, packed, None, on_gpu=gpus > 0) == InstanceSplit(1, 1 if gpus else 8)
    machine.threads[NAME] = 1 if gpus else 8
    running, costs = await sizing.settle(want, machine.running(NAME), FOLDER, packed, None)
    assert (running.copies, running.instances) == (1, max(1, gpus))
    assert machine.tried == []
    report = LoadedModel(
        ref=PACKAGE, costs=costs, instances=running.instances, threads=running.threads
    )
    assert not sizing.differs(want, machine.running(NAME), report)


@given(st.integers(1, 32), st.none() | st.integers(1, 8), st.data())
async def test_a_settled_package_stays_as_it_is(
    cores: int, asked: int | None, data: st.DataObject
) -> None:
    open_ = splits.candidates(cores, 99, asked)
    machine = Machine({split: data.draw(st.floats(1.0, 100.0)) for split in open_})
    sizing, want = machine.sizing(cores), replace(WANT, instances=asked)
    report = await machine.settle(sizing, want)
    assert not sizing.differs(want, machine.running(NAME), report)
    assert machine.rows[_split(report)] >= 0.94 * max(machine.rows.values())


def _split(report: LoadedModel) -> tuple[int, int]:
    return report.instances, report.threads

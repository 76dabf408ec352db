"""Versions are converted for what their pool computes on, and move with their callers."""

import random
from pathlib import Path
from typing import ClassVar

import pytest
from controller_harness import ControllerHarness
from registry_fakes import candidate_of, endpoint, packed, refusal, report
from registry_fakes import manifest as made_manifest

from contracts.endpoint import EndpointSpec, EndpointStatus, Phase, Precision
from contracts.loading import Device, DeviceKind, LoadFailure
from contracts.model import ModelRef
from contracts.rollout import RolloutSpec, RolloutState, Strategy
from registry.conversions.messages import PublishedPackage

CPU, GPU = DeviceKind.CPU, DeviceKind.GPU
DIRECT = RolloutSpec(strategy=Strategy.DIRECT)


class DeviceHarness(ControllerHarness):
    """A controller, a pool of CPUs called default, and one of GPUs called gpu."""

    def say(
        self,
        pool: str,
        kind: DeviceKind | None,
        *refs: ModelRef,
        loader: str = "",
        ready: bool = True,
        failed: tuple[LoadFailure, ...] = (),
    ) -> None:
        """A loader's report, from now on."""
        told = report(*refs, loader=loader or pool, at=self.time, ready=ready, failed=failed)
        device = None if kind is None else Device(kind=kind)
        self.reports.put(told.model_copy(update={"pool": pool, "device": device}))

    def ask_for_pool(self, pool: str, name: str = "e", rollout: RolloutSpec = DIRECT) -> None:
        stored = self.endpoints.get(name)
        assert stored is not None
        spec = stored.spec.model_copy(update={"pool": pool, "rollout": rollout})
        self.endpoints.put(stored.model_copy(update={"spec": spec}))

    def made(self, number: str, device: DeviceKind) -> ModelRef:
        """What a conversion for a kind of device leaves in the store."""
        files = packed(self.folder / "source").files
        precision = Precision.FP16 if device is GPU else Precision.INT8
        update = {"files": files, "precision": precision}
        made = made_manifest(number).model_copy(update=update)
        return self.store.publish(self.folder / "source", made)

    def kind_of(self, ref: ModelRef) -> DeviceKind:
        """The kind of device that a package is for."""
        return GPU if self.store.manifest(ref.package).precision is Precision.FP16 else CPU

    async def finish(self) -> ModelRef:
        """The running conversion ends well, with a package for what it was asked to make."""
        asked = self.launcher.requests[-1]
        ref = self.made(asked.version, asked.device)
        self.changed.clear()
        self.launcher.end(PublishedPackage(ref=ref))
        await self.settle_jobs()
        return ref

    async def serve_on_cpus(self) -> ModelRef:
        """Version 1 answers from the pool of CPUs, and the one of GPUs is there."""
        self.say("default", CPU)
        self.say("gpu", GPU)
        self.ask_for_pool("default")
        self.registry.register("m", "1")
        await self.settle()
        ref = await self.finish()
        await self.settle()
        self.say("default", CPU, ref)
        status = await self.settle()
        assert (status.stable, status.device) == (ref, CPU)
        return ref

    def status(self, name: str = "e") -> EndpointStatus:
        stored = self.endpoints.get(name)
        assert stored is not None
        return stored.status


@pytest.fixture
def devices(tmp_path: Path) -> DeviceHarness:
    return DeviceHarness(tmp_path)


async def test_a_first_version_is_converted_for_what_its_pool_computes_on(
    devices: DeviceHarness,
) -> None:
    devices.say("gpu", GPU)
    devices.ask_for_pool("gpu")
    devices.registry.register("m", "1")
    await devices.settle()
    (asked,) = devices.launcher.requests
    assert asked.device is GPU
    ref = await devices.finish()
    await devices.settle()
    devices.say("gpu", GPU, ref)
    status = await devices.settle()
    assert (status.stable, status.pool, status.device) == (ref, "gpu", GPU)


async def test_a_pool_without_a_triton_is_converted_for_as_cpus(devices: DeviceHarness) -> None:
    devices.registry.register("m", "1")
    await devices.settle()
    assert [asked.device for asked in devices.launcher.requests] == [CPU]


async def test_a_conversion_waits_for_tritons_that_start_and_have_not_said_what_they_are(
    devices: DeviceHarness,
) -> None:
    devices.say("default", None, ready=False)
    devices.registry.register("m", "1")
    status = await devices.settle()
    shown = candidate_of(status)
    said = "no Triton of the pool default has said yet what it computes on"
    assert (shown.phase, shown.reason) == (Phase.WAITING, said)
    assert devices.launcher.requests == []
    devices.say("default", GPU, ready=False)
    await devices.settle()
    assert [asked.device for asked in devices.launcher.requests] == [GPU]


async def test_ready_tritons_which_do_not_say_it_are_taken_for_cpus(
    devices: DeviceHarness,
) -> None:
    devices.say("default", None)
    devices.registry.register("m", "1")
    await devices.settle()
    assert [asked.device for asked in devices.launcher.requests] == [CPU]


async def test_a_pool_whose_tritons_are_away_keeps_its_kind_of_device(
    devices: DeviceHarness,
) -> None:
    devices.say("gpu", GPU)
    devices.ask_for_pool("gpu")
    devices.registry.register("m", "1")
    await devices.settle()
    ref = await devices.finish()
    await devices.settle()
    devices.say("gpu", GPU, ref)
    await devices.settle()
    devices.time += 1e4
    status = await devices.settle()
    assert (status.device, status.stable) == (GPU, ref)
    devices.say("gpu", None, ready=False)  # they come back, and have yet to say what they are
    assert (await devices.settle()).stable == ref
    assert len(devices.launcher.requests) == 1


async def test_two_endpoints_serve_one_model_from_pools_of_both_kinds(
    devices: DeviceHarness,
) -> None:
    on_cpus = await devices.serve_on_cpus()
    spec = EndpointSpec(model="m", pool="gpu", rollout=DIRECT)
    devices.endpoints.put(endpoint(name="fast", spec=spec))
    await devices.settle()
    on_gpus = await devices.finish()
    await devices.settle()
    devices.say("gpu", GPU, on_gpus)
    await devices.settle()
    assert (devices.status("e").stable, devices.status("fast").stable) == (on_cpus, on_gpus)
    assert devices.status("e").packages == (on_cpus,)
    assert devices.status("fast").packages == (on_gpus,)
    assert on_cpus != on_gpus
    assert [devices.kind_of(ref) for ref in (on_cpus, on_gpus)] == [CPU, GPU]


async def test_callers_move_to_another_kind_of_device_once_their_version_is_there(
    devices: DeviceHarness,
) -> None:
    before = await devices.serve_on_cpus()
    devices.ask_for_pool("gpu")
    status = await devices.settle()
    assert devices.launcher.requests[-1].device is GPU
    assert (status.pool, status.pools, status.stable) == ("default", ("default",), before)
    (note,) = status.notes
    assert note == (
        "the pool gpu computes on GPUs: version 1 is converted for them first, and default goes "
        "on answering until then"
    )
    after = await devices.finish()
    status = await devices.settle()
    assert (status.pools, status.stable) == (("default", "gpu"), before)
    assert (status.held_in("default"), status.held_in("gpu")) == ((before, before), (after,))
    assert candidate_of(status).reason == "the pool gpu loads it, and default goes on answering"
    generation = status.generation
    devices.say("gpu", GPU, after)
    status = await devices.settle()
    assert (status.pools, status.stable, status.packages) == (("gpu",), after, (after,))
    assert (status.device, status.next_packages, status.candidate) == (GPU, (), None)
    assert status.generation > generation
    assert status.notes == ()


async def test_callers_move_back_without_a_conversion_of_what_was_converted_before(
    devices: DeviceHarness,
) -> None:
    before = await devices.serve_on_cpus()
    devices.ask_for_pool("gpu")
    await devices.settle()
    after = await devices.finish()
    await devices.settle()
    devices.say("gpu", GPU, after)
    await devices.settle()
    devices.ask_for_pool("default")
    assert (await devices.settle()).stable == before  # its Tritons hold it still
    assert devices.status().pools == ("default",)
    assert len(devices.launcher.requests) == 2


async def test_a_wish_that_is_taken_back_ends_the_move(devices: DeviceHarness) -> None:
    before = await devices.serve_on_cpus()
    devices.ask_for_pool("gpu")
    await devices.settle()
    await devices.finish()
    assert (await devices.settle()).next_packages
    devices.ask_for_pool("default")
    status = await devices.settle()
    assert (status.pools, status.next_packages, status.candidate) == (("default",), (), None)
    assert status.stable == before


async def test_a_move_waits_for_the_end_of_a_rollout(devices: DeviceHarness) -> None:
    before = await devices.serve_on_cpus()
    rollout = RolloutState(
        id="r", candidate=devices.made("2", CPU), stable=before, began=0.0, step_began=0.0
    )
    devices.endpoints.show(devices.status().model_copy(update={"rollout": rollout}))
    devices.ask_for_pool("gpu")
    status = await devices.settle()
    assert (status.pools, status.next_packages) == (("default",), ())
    (note,) = status.notes
    assert note == (
        "it moves to the pool gpu when its rollout has ended, and default goes on answering until "
        "then"
    )
    assert len(devices.launcher.requests) == 1
    devices.endpoints.show(devices.status().model_copy(update={"rollout": None}))
    await devices.settle()
    assert devices.launcher.requests[-1].device is GPU


@pytest.mark.parametrize("by_triton", [False, True])
async def test_a_version_that_gpus_can_not_serve_stays_and_says_why_and_others_follow(
    devices: DeviceHarness, *, by_triton: bool
) -> None:
    before = await devices.serve_on_cpus()
    devices.ask_for_pool("gpu")
    await devices.settle()
    if by_triton:
        refused = await devices.finish()
        await devices.settle()
        failure = refusal(refused, "it strays")
        devices.say("gpu", GPU, failed=(failure,))
        why = "Triton refused it: it strays"
    else:
        devices.changed.clear()
        await devices.fail("it strays", by_version=True)
        why = "it strays"
    status = await devices.settle()
    assert (status.stable, status.pools, status.next_packages) == (before, ("default",), ())
    assert status.notes == (
        f"version 1 can't be served in the pool gpu, and default goes on answering: {why}",
    )
    devices.registry.register("m", "2")
    await devices.settle()
    asked = devices.launcher.requests[-1]
    assert (asked.version, asked.device) == ("2", CPU)


async def test_a_pool_that_lacks_room_is_named_and_callers_stay(devices: DeviceHarness) -> None:
    before = await devices.serve_on_cpus()
    devices.ask_for_pool("gpu")
    await devices.settle()
    after = await devices.finish()
    await devices.settle()
    failure = LoadFailure(ref=after, reason="it needs 9 GB", by_version=False)
    devices.say("gpu", GPU, failed=(failure,))
    status = await devices.settle()
    assert status.stable == before
    shown = candidate_of(status)
    assert (shown.phase, shown.reason) == (
        Phase.BLOCKED,
        "the pool gpu can't load it, and default goes on answering: it needs 9 GB",
    )


async def test_a_package_that_suits_both_kinds_moves_as_it_is(devices: DeviceHarness) -> None:
    """A model of tables, or one that writes, has one package."""
    ref = await devices.serve_on_cpus()
    devices.ask_for_pool("gpu")
    await devices.settle()
    devices.changed.clear()
    devices.launcher.end(PublishedPackage(ref=ref))
    await devices.settle_jobs()
    status = await devices.settle()
    assert (status.pools, status.next_packages) == (("default", "gpu"), ())
    devices.say("gpu", GPU, ref)
    status = await devices.settle()
    assert (status.pools, status.device, status.stable) == (("gpu",), GPU, ref)


async def test_a_pool_of_both_kinds_is_told_to_be_divided(devices: DeviceHarness) -> None:
    await devices.serve_on_cpus()
    devices.say("default", GPU, loader="other")
    status = await devices.settle()
    assert status.device is CPU
    assert (
        "the Tritons of the pool default compute on CPUs and on GPUs, and versions are converted "
        "for CPUs: give each kind of device a pool of its own"
    ) in status.notes


async def test_figures_of_a_device_that_change_are_no_news(devices: DeviceHarness) -> None:
    ref = await devices.serve_on_cpus()
    devices.say("default", CPU, ref)
    await devices.settle()
    revision = devices.controller._held.of("default").revision
    told = report(ref, loader="default", at=devices.time)
    busy = Device(kind=CPU, busy=0.9, free_bytes=7)
    devices.reports.put(told.model_copy(update={"device": busy}))
    await devices.settle()
    assert devices.controller._held.of("default").revision == revision


class RandomWalk:
    """Whatever may happen to an endpoint and its Tritons, in any order."""

    kinds: ClassVar[dict[str, DeviceKind]] = {"default": CPU, "gpu": GPU}

    def __init__(self, devices: DeviceHarness, seed: int) -> None:
        self._devices = devices
        self._chance = random.Random(seed)
        self._versions = 1
        self.held: dict[str, set[ModelRef]] = {pool: set() for pool in self.kinds}
        self._take()

    async def step(self) -> EndpointStatus:
        """One event, and what the controller makes of it."""
        events = (self._move, self._finish, self._fail, self._take, self._take, self._register)
        event = self._chance.choice((*events, self._drop))
        happened = event()
        if happened is not None:
            await happened
        self._devices.time += 1.0
        for pool, kind in self.kinds.items():
            self._devices.say(pool, kind, *sorted(self.held[pool], key=str))
        return await self._devices.settle()

    def _move(self) -> None:
        self._devices.ask_for_pool(self._chance.choice(tuple(self.kinds)))

    async def _finish(self) -> None:
        if self._devices.launcher.running:
            await self._devices.finish()

    async def _fail(self) -> None:
        if self._devices.launcher.running:
            self._devices.changed.clear()
            await self._devices.fail("no room", by_version=False)
            self._devices.time += 400.0

    def _register(self) -> None:
        if self._versions < 4:
            self._versions += 1
            self._devices.registry.register("m", str(self._versions))

    def _take(self) -> None:
        status = self._devices.status()
        for pool in status.pools:
            self.held[pool] |= set(status.held_in(pool))

    def _drop(self) -> None:
        status = self._devices.status()
        for pool in self.kinds:
            self.held[pool] &= set(status.held_in(pool) if pool in status.pools else ())


@pytest.mark.parametrize("seed", range(12))
async def test_no_pool_is_ever_asked_for_a_package_of_another_kind_and_callers_never_fail(
    devices: DeviceHarness, seed: int
) -> None:
    await devices.serve_on_cpus()
    walk = RandomWalk(devices, seed)
    for _ in range(40):
        status = await walk.step()
        for pool in status.pools:
            asked = {devices.kind_of(ref) for ref in status.held_in(pool)}
            assert asked == {walk.kinds[pool]}
        assert status.device is walk.kinds[status.pool]
        assert status.stable in walk.held[status.pool]

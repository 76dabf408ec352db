"""Keeps one Triton's models as the endpoints say: the loader, one beside each Triton.

One loop compares what the endpoints name with what Triton holds and mends one difference at a time;
a restart of Triton, of the store or of itself is only another difference. It decides nothing about
versions, serves no prediction, and unloads only what it, or a loader before it, put there.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from contracts.endpoint import ModelEndpoint
from contracts.loading import (
    CostPoint,
    DeviceKind,
    FailureCause,
    LoadedModel,
    LoaderReport,
    Trouble,
    WakeAnswer,
)
from contracts.manifest import CONFIG_ONNXRUNTIME, MANIFEST, Manifest
from contracts.model import ModelRef
from registry import metrics
from registry.errors import (
    BackendMissingError,
    ModelProcessGoneError,
    PyfuncNotAllowedError,
    RegistryError,
    TritonLateError,
    TritonRefusedError,
    TritonUnavailableError,
)
from registry.loading import desired, device_check, refusals
from registry.loading.desired import Role, Want
from registry.loading.devices import Devices
from registry.loading.failures import Failures
from registry.loading.idling import Demand, IdleTimes
from registry.loading.ledger_file import LedgerFile
from registry.loading.load_stall import LoadStall
from registry.loading.options import LoaderOptions
from registry.loading.placement import Placement
from registry.loading.reporter import Reporter
from registry.loading.room import NoRoomError
from registry.loading.sizing import ModelSizer
from registry.loading.triton_client import ModelInstances, Triton
from registry.loading.weighing import PackageWeigher
from registry.loading.witness import Witness
from registry.packages.cache import PackageBrokenError, PackageCache
from registry.packages.triton_config import BACKEND_PYTHON
from registry.stores.endpoints import EndpointStore
from registry.stores.reports import Reports

log = logging.getLogger(__name__)

_LONGEST_TROUBLE = 300  # characters
_SILENT_SECONDS = 120.0
_LATE_PAUSES = 4.0  # to the next try of a load that took too long, for each second of it
_START_SECONDS = 480.0  # more for the first answer: Triton's image may be pulled meanwhile


class Loader:
    """One loop, one owner of everything below."""

    def __init__(
        self,
        options: LoaderOptions,
        *,
        endpoints: EndpointStore,
        packages: PackageCache,
        triton: Triton,
        placement: Placement,
        reports: Reports,
        devices: Devices,
        demand: Demand | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._demand = demand
        idle_seconds = 0.0 if demand is None else options.idle_seconds
        self._idling = IdleTimes(idle_seconds, options.settle_seconds, now)
        self._leaving = ""  # Triton's name of a model that it is unloading for want of callers
        self._load_seconds: dict[str, float] = {}  # of the last load, by Triton's name
        self._stable: frozenset[str] = frozenset()  # Triton's names of all stable packages
        self._news = asyncio.Event()  # a pass may find something to do before the next is due
        self._loop: asyncio.AbstractEventLoop | None = None
        self._endpoints = endpoints
        self._packages = packages
        self._triton = triton
        self._placement = placement
        self._sizing = ModelSizer(
            triton,
            placement,
            cores=options.cores,
            memory_bytes=options.memory_bytes,
            auto_instances=options.auto_instances,
            most_instances=options.ceilings.instances,
            measure_seconds=options.warmup_seconds,
        )
        self._reporter = Reporter(reports, options.name, options.heartbeat_seconds, now)
        self._now = now
        self._known: tuple[ModelEndpoint, ...] = ()
        self._loaded: dict[str, LoadedModel] = {}
        self._measured: dict[str, LoadedModel] = {}
        self._failures = Failures(now)
        self._witness = Witness(triton, placement, packages)
        self._cordoned = False
        self._troubles: dict[ModelRef, Trouble] = {}
        self._weighing = PackageWeigher(options.room, packages.manifest)
        self._devices = devices
        self._gone: set[str] = set()  # Triton's names of models without a process
        self._stall = LoadStall(now)
        self._backend: str | None = None
        self._on_gpu: bool | None = None
        self._answers = False
        self._away_since = now() + _START_SECONDS  # unless it answers
        self._read_once = False
        self._complete = False  # stays while Triton loses nothing
        self._awaited: tuple[ModelRef, ...] = ()
        self._missing: tuple[ModelRef, ...] = ()
        self._book = LedgerFile(options.ledger_file, now)
        self._restored: Mapping[str, float] = {}
        self._restore(reports.get(options.name))

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until told to stop. Nothing that is away ends it."""
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            heartbeats = tasks.create_task(self._reporter.run(self._look))
            stopping = tasks.create_task(_set_after(stop, self._news))
            while not stop.is_set():
                try:
                    busy = await self.step()
                except (RegistryError, OSError) as error:
                    log.warning("the loader's pass was cut short: %s", error)
                    busy = False
                if not busy:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._options.poll_seconds):
                            await self._news.wait()
                self._news.clear()
            heartbeats.cancel()
            stopping.cancel()
        self.leave()

    def leave(self) -> None:
        """Notes that this loader ended as it was told to, so that the next one blames nobody."""
        try:
            self._book.write(self._book.ledger.close(in_order=True))
        except OSError as error:
            log.warning("the ledger can't be written: %s", error)
        self._reporter.leave()

    def unready(self) -> str:
        """Why this Triton should get no requests yet; empty if it may.

        Once it held every stable package that it can it stays ready while it loses none: a version
        that is promoted later never takes a serving Triton out.
        """
        if not self._answers:
            return "Triton does not answer"
        if fault := self.fault() or self._devices.fault():
            return fault
        if self._cordoned:
            return "the controller took this Triton out of service: it fails at what others hold"
        if self._complete:
            return ""
        why = "; ".join(map(self._describe, self._awaited)) or "no endpoint was read yet"
        return f"a stable version is not loaded yet: {why}"

    def fault(self) -> str:
        """Why Triton, which answers, should be restarted; empty if it should not."""
        return self._stall.fault()

    def note_gone(self, ref: ModelRef) -> bool:
        """Has a model without a process loaded again; false if that is still to be done."""
        if ref.triton_model in self._gone:
            return False
        self._gone.add(ref.triton_model)
        self._news.set()
        return True

    def note_trouble(self, ref: ModelRef, why: str, fails: bool = False) -> None:  # noqa: FBT001, FBT002
        """Takes in why a package that Triton holds refuses its probe; empty if it answers."""
        self._troubles.pop(ref, None)
        if why:
            self._troubles[ref] = Trouble(ref=ref, reason=why[:_LONGEST_TROUBLE], fails=fails)

    def note_lost(self, words: str) -> None:
        """Takes in by what words Triton's own process lost its GPU; empty if it did not."""
        if self._devices.lose(words):
            self._news.set()

    def stable(self) -> tuple[ModelRef, ...]:
        """The stable packages that Triton holds now, but for one that is leaving."""
        return tuple(want.ref for want in self._list_staying() if want.role is Role.STABLE)

    def others(self) -> tuple[ModelRef, ...]:
        """The other packages that Triton holds now and that are wanted."""
        return tuple(want.ref for want in self._list_staying() if want.role is not Role.STABLE)

    def _list_staying(self) -> Iterable[Want]:
        wants = self._list_wanted() if self._answers else ()
        here = self._loaded.keys() - {self._leaving}
        return (want for want in wants if want.ref.triton_model in here)

    def wake(self, name: str) -> WakeAnswer:
        """Somebody asks for a model by Triton's name of it. Any thread may call this.

        Returns:
            What becomes of it.
        """
        if name not in self._stable:
            return WakeAnswer.UNKNOWN
        # Noted before it is looked at, as the one who unloads looks after it has said so.
        self._idling.note_request(name)
        if name == self._leaving:
            return WakeAnswer.LEAVING
        if name in self._loaded and self._answers:
            return WakeAnswer.HELD
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._news.set)
        failure = self._failures.get(name)
        return WakeAnswer.NO_ROOM if failure is not None and failure.no_room else WakeAnswer.COMING

    async def step(self) -> bool:
        """One pass; returns whether there may be more to do at once."""
        await self._read_endpoints()
        wants = self._list_wanted()
        try:
            held = await self._triton.held(self._names(wants))
            held = await self._unload_gone(held)
        except TritonUnavailableError as error:
            self._triton_is_away(str(error))
            await self._report(wants)
            return False
        self._take_in(held, wants)
        await self._devices.look()
        if self._idling.look_due:
            await self._look_at_demand()
            wants = self._list_wanted()
        all_read = self._read_once and not self._endpoints.unreadable
        if all_read:  # else who knows what is unwanted
            self._book.write(self._book.ledger.with_unwanted(wants, self._now()))
        want = self._next_load(wants)
        changed = self._next_resize(wants, held)
        if want is not None:
            await self._load(want, held.get(want.ref.triton_model))
        elif changed is not None:
            await self._resize(changed, held[changed.ref.triton_model])
        elif (unproven := self._failures.find_unproven()) is not None:
            await self._ask_witness(unproven)
        elif all_read and not await self._let_one_sleep(wants):
            await self._unload_expired()
        await self._report(wants)
        return want is not None or changed is not None

    # What is

    async def _read_endpoints(self) -> None:
        try:
            found = await asyncio.to_thread(self._endpoints.list)
            self._known = tuple(map(self._options.ceilings.bounded_endpoint, found))
            me, pool = self._options.name, self._options.pool
            statuses = [each.status for each in self._known if pool in each.status.pools]
            self._cordoned = any(me in status.cordoned for status in statuses)
            self._read_once = True
        except OSError as error:
            log.warning("endpoints can't be read, going on with the last ones: %s", error)

    def _list_wanted(self) -> tuple[Want, ...]:
        wants = desired.list_wanted(self._known, self._options.pool, self._options.name)
        self._stable = frozenset(w.ref.triton_model for w in wants if w.role is Role.STABLE)
        return self._idling.resolve(wants)

    async def _look_at_demand(self) -> None:
        """Counts what others asked since the last time; if that fails, they may have asked."""
        counts: Mapping[str, int | None] = {}
        try:
            if self._demand is not None:
                counts = await self._demand.requests()
        except (TritonUnavailableError, TritonRefusedError) as error:
            log.warning("Triton's statistics can't be read, so that nothing is idle: %s", error)
        self._idling.note_counts(counts, tuple(self._loaded))

    def _names(self, wants: tuple[Want, ...]) -> set[str]:
        """Every model whose presence matters here."""
        wanted = {want.ref.triton_model for want in wants}
        return wanted | set(self._loaded) | set(self._book.ledger.entries)

    def _restore(self, report: LoaderReport | None) -> None:
        """Costs that this loader measured before it was restarted still hold."""
        for model in report.loaded if report else ():
            self._measured[model.ref.triton_model] = model
            self._loaded[model.ref.triton_model] = model
            self._idling.note_request(model.ref.triton_model)
        # By package, as the names of those that sleep are not in the report.
        self._restored = dict(report.asleep) if report else {}

    async def _unload_gone(
        self, held: Mapping[str, ModelInstances]
    ) -> Mapping[str, ModelInstances]:
        """Unloads the models that have no process, so that this pass loads them again.

        Triton goes on to say that such a model is ready, and starts no other process for it.

        Raises:
            TritonUnavailableError: Triton does not answer.
        """
        gone, self._gone = self._gone & held.keys(), set()
        for name in gone:
            try:
                await self._triton.unload(name)
            except TritonRefusedError as refusal:
                log.warning("%s can't be unloaded: %s", name, refusal)
            self._loaded.pop(name, None)
            log.warning("%s has no process any more and is loaded again", name)
        return {name: running for name, running in held.items() if name not in gone}

    def _triton_is_away(self, reason: str) -> None:
        if self._answers:
            self._away_since = self._now()
            log.warning("%s", reason)
        self._devices.away()
        self._stall.away()
        self._answers = False
        self._backend = None
        self._book.away()

    def _take_in(self, held: Mapping[str, ModelInstances], wants: tuple[Want, ...]) -> None:
        """Takes in what Triton holds; what it lost shows that it was restarted."""
        self._answers = True
        self._learn(held.values())
        self._idling.note_held(held)
        lost = set(self._loaded) - held.keys()
        if lost:
            log.warning("Triton lost %s: it was restarted", ", ".join(sorted(lost)))
            metrics.TRITON_RESTARTS.inc()
            self._backend = None
            self._devices.away()
            self._complete = False
            if not self._book.ledger.in_order:
                self._book.record_crash(lost, wants)
        self._book.count_uptime(held, wants)
        found = self._book.ledger.adopt(held.keys(), wants)
        self._book.write(found.close(in_order=False))
        self._loaded = {name: model for name, model in self._loaded.items() if name in held}
        if self._holds_any(wants) or not desired.find_missing_stable(wants, ()):
            self._stall.note_end()
        self._keep_failures(wants, held)
        for want in wants:
            reason = self._book.ledger.crash_reason(want.ref) if want.on_trial else ""
            known = self._failures.get(want.ref.triton_model)
            recorded = known is not None and known.cause is FailureCause.CRASHED
            if reason and not recorded:
                # Ends while it was held are too many for chance; those of its loads may be.
                held_it = self._book.ledger.confirm_loaded(want.ref).crash_reason(want.ref)
                pause = math.inf if held_it else 0.0
                self._failures.add(want, reason, FailureCause.CRASHED, pause)

    def _learn(self, running: Iterable[ModelInstances]) -> None:
        """Whether this Triton runs models on GPUs; it says so of what it holds."""
        for how in running:
            self._on_gpu = how.on_gpu

    def _keep_failures(self, wants: tuple[Want, ...], held: Mapping[str, ModelInstances]) -> None:
        """Forgets failures at what nobody wants any more, or wants as it is by now."""
        missing = {
            want.ref.triton_model
            for want in wants
            if not want.asleep
            and (want.ref.triton_model not in self._loaded or self._differs(want, held))
        }
        self._failures.keep(wants, missing)

    # What to do

    def _next_load(self, wants: tuple[Want, ...]) -> Want | None:
        now = self._now()
        for want in wants:
            name = want.ref.triton_model
            if want.waits or want.asleep or name in self._loaded:
                continue
            if desired.may_try(want, self._failures.get(name), now):
                return want
        return None

    def _next_resize(
        self, wants: tuple[Want, ...], held: Mapping[str, ModelInstances]
    ) -> Want | None:
        """A package that is loaded, with other copies than are wanted, or than were measured."""
        now = self._now()
        for want in wants:
            known = self._failures.get(want.ref.triton_model)
            if desired.may_try(want, known, now) and self._differs(want, held):
                return want
        return None

    def _holds_any(self, wants: Iterable[Want]) -> bool:
        return any(want.ref.triton_model in self._loaded for want in wants)

    def _differs(self, want: Want, held: Mapping[str, ModelInstances]) -> bool:
        name = want.ref.triton_model
        running, loaded = held.get(name), self._loaded.get(name)
        if running is None or loaded is None:
            return False
        return self._sizing.differs(want, running, loaded)

    async def _load(self, want: Want, running: ModelInstances | None) -> None:
        name = want.ref.triton_model
        started = time.monotonic()
        try:
            free_before = await self._devices.free_now() if running is None else None
            if running is None:
                await asyncio.to_thread(self._check_room, want)
            package = await asyncio.to_thread(self._packages.fetch, want.ref)
            manifest = Manifest.model_validate_json((package / MANIFEST).read_bytes())
            if manifest.pyfunc and not self._options.pyfunc:
                raise PyfuncNotAllowedError(
                    "it is Python of its users' own, which this loader does not let Triton run: "
                    "--pyfunc (triton.pyfunc.enabled in the chart) lets it"
                )
            if running is None:
                running = await self._place_and_load(want, package, manifest)
                self._load_seconds[name] = time.monotonic() - started
            await device_check.check(self._triton, name, package, manifest, self._devices.device)
            known = self._measured.get(name)
            running, costs = await self._sizing.settle(want, running, package, manifest, known)
            if running.on_gpu:
                free = await self._devices.free_now()
                self._weighing.grew(name, free_before, free, self._devices.held_bytes(name))
        except TritonUnavailableError as error:
            await self._note_silence(want, error, time.monotonic() - started)
        except TritonRefusedError as error:
            await self._note_refusal(want, error)
        except (RegistryError, OSError, ValueError) as error:
            self._failures.add(want, str(error), _cause(error))
        else:
            self._record_loaded(want, running, costs)
            seconds = time.monotonic() - started
            metrics.LOAD_SECONDS.observe(seconds)
            log.info("loaded %s", name, extra={"seconds": round(seconds, 3)})

    async def _note_silence(
        self, want: Want, error: TritonUnavailableError, seconds: float
    ) -> None:
        """Records a load without an answer: Triton ended, or took too long and goes on.

        Some loads never end: a backend's process may not come up. Other packages wait for each try.
        If Triton held nothing, only the connection, which breaks as it ends, tells the two apart.
        """
        goes_on = bool(self._loaded) or isinstance(error, TritonLateError)
        try:
            goes_on &= (await self._triton.held(self._loaded)).keys() >= self._loaded.keys()
        except TritonUnavailableError:
            goes_on = False
        if goes_on:
            # Callers wait for a stable one, which Triton may hold by now.
            pause = 0.0 if want.role is Role.STABLE else _LATE_PAUSES * seconds
            await self._note_refusal(want, TritonRefusedError(str(error)), pause)
            return
        self._triton_is_away(str(error))
        self._failures.add(want, str(error), FailureCause.AWAY)
        if want.on_trial:
            self._book.write(self._book.ledger.count_end_of_load(want.ref))

    def _check_room(self, want: Want) -> None:
        """Refuses a package that does not fit, but for a stable one: callers have no other.

        One that comes back after a sleep is weighed too, since what was loaded meanwhile may have
        its room: a Triton that ends for want of memory takes all that it holds with it.

        Raises:
            NoRoomError: it does not fit.
            RegistryError: its manifest can't be had, or its device can't run it.
        """
        if want.role is Role.STABLE and not want.returns:
            return
        self._weigh(want.ref, want.instances)

    def _weigh(self, ref: ModelRef, copies_of_it: int | None) -> DeviceKind | None:
        """Where a package runs beside all that Triton holds; raises as ``_check_room``."""
        copies = {item.ref.triton_model: item.instances for item in self._list_wanted()}
        backend = self._backend or self._options.backends[0]
        kind = self._devices.kind_for(self._packages.manifest(ref), backend)
        self._weighing.check(
            ref,
            copies_of_it,
            [
                (model.ref, copies.get(name))
                for name, model in self._loaded.items()
                if name != ref.triton_model
            ],
            in_process=self._backend == BACKEND_PYTHON,
            on_gpu=self._on_gpu is True if kind is None else kind is DeviceKind.GPU,
            gpu_free_bytes=self._devices.free_bytes(),
        )
        return kind

    async def _note_refusal(
        self, want: Want, error: TritonRefusedError, pause: float = 0.0
    ) -> None:
        """Records a refusal; a package that has no process any more is taken out.

        Triton goes on to say that such a package is ready, and starts no other process for it
        before it is loaded again.
        """
        said = str(error)
        failure = self._failures.add(want, said, refusals.cause_of(said), pause)
        if isinstance(error, ModelProcessGoneError):
            try:
                await self._triton.unload(want.ref.triton_model)
            except TritonUnavailableError as unavailable:
                self._triton_is_away(str(unavailable))
            except TritonRefusedError as refusal:
                log.warning("%s can't be unloaded: %s", want.ref.triton_model, refusal)
        environment = not failure.blames_model and not isinstance(error, BackendMissingError)
        if environment and want.role is Role.STABLE and not want.on_trial and self._answers:
            self._stall.note_refusal(said)
        if self._answers and (unproven := self._failures.find_unproven()) is not None:
            await self._ask_witness(unproven)

    async def _ask_witness(self, ref: ModelRef) -> None:
        """Finds out whether Triton, which refused ``ref``, still loads what is known to be good."""
        stable = [each for each in self.stable() if each != ref]
        backends = (self._backend,) if self._backend else self._options.backends
        kind = {True: DeviceKind.GPU, False: DeviceKind.CPU, None: None}[self._on_gpu]
        answer = await self._witness.ask(stable, lambda each: self._weigh(each, 1), backends, kind)
        self._failures.note_witness(ref, answer)

    def _record_loaded(
        self, want: Want, running: ModelInstances, costs: tuple[CostPoint, ...]
    ) -> None:
        name = want.ref.triton_model
        self._failures.drop(name)
        self._gone.discard(name)  # it was told again while the one without a process was unloaded
        self._idling.note_request(name)
        self._book.write(self._book.ledger.confirm_loaded(want.ref))
        model = LoadedModel(
            ref=want.ref, costs=costs, instances=running.instances, threads=running.threads
        )
        self._loaded[name] = self._measured[name] = model

    async def _resize(self, want: Want, running: ModelInstances) -> None:
        """Runs another number of copies of a package, which answers meanwhile as it was.

        Costs are measured again, because a batch takes longer while others run beside it. A failure
        is never the version's fault: it goes on with the copies that it has.
        """
        known = self._measured.get(want.ref.triton_model)
        try:
            package = await asyncio.to_thread(self._packages.fetch, want.ref)
            manifest = Manifest.model_validate_json((package / MANIFEST).read_bytes())
            settled, costs = await self._sizing.settle(want, running, package, manifest, known)
        except TritonUnavailableError as error:
            self._triton_is_away(str(error))
            self._failures.add(want, str(error), FailureCause.AWAY)
        except (RegistryError, OSError, ValueError) as error:
            wished = "" if want.instances is None else f" in place of {want.instances}"
            reason = f"it goes on with {running.copies} copies{wished}: {error}"
            self._failures.add(want, reason, _cause(error))
        else:
            self._record_loaded(want, settled, costs)

    async def _place_and_load(
        self, want: Want, package: Path, manifest: Manifest
    ) -> ModelInstances:
        """Loads by the first backend that this Triton has; returns how it is run."""
        name = want.ref.triton_model
        self._book.write(self._book.ledger.place(want.ref))
        is_free = CONFIG_ONNXRUNTIME in manifest.files  # to be run by either
        backends = (self._backend,) if self._backend else self._options.backends
        if not is_free:
            backends = (BACKEND_PYTHON,)
        for position, backend in enumerate(backends, start=1):
            kind = self._devices.kind_for(manifest, backend)
            on_gpu = self._on_gpu if kind is None else kind is DeviceKind.GPU
            split = self._sizing.first(want, manifest, self._measured.get(name), on_gpu=on_gpu)
            place = self._placement.place
            overrides = await asyncio.to_thread(place, name, package, backend, split, kind)
            try:
                await self._triton.load(name, overrides)
            except BackendMissingError:
                if position == len(backends):
                    raise
            else:
                if is_free:
                    self._backend = backend
                break
        running = await self._sizing.read_instances(name)
        self._learn((running,))
        return running

    async def _let_one_sleep(self, wants: tuple[Want, ...]) -> bool:
        """Unloads one idle model, if there is one; its files stay for its return.

        Returns:
            Whether one was unloaded.
        """
        want = self._idling.find_leaving(wants, self._loaded)
        if want is None:
            return False
        name = want.ref.triton_model
        await self._look_at_demand()
        self._leaving = name
        try:
            if not self._idling.is_idle(name):  # a caller came meanwhile
                return False
            await self._triton.unload(name)
            await asyncio.to_thread(self._placement.remove, name)
            self._loaded.pop(name, None)
        finally:
            self._leaving = ""
        self._failures.retry_what_did_not_fit()
        metrics.LEFT.inc()
        log.info("unloaded %s, which is idle", name)
        return True

    async def _unload_expired(self) -> None:
        expired = self._book.ledger.find_expired(self._now(), self._options.unload_after_seconds)
        for name in expired:
            await self._triton.unload(name)
            await asyncio.to_thread(self._placement.remove, name)
            await asyncio.to_thread(self._packages.forget, self._book.ledger.entries[name].ref)
            self._book.write(self._book.ledger.without(name))
            for memory in (self._loaded, self._measured, self._load_seconds):
                memory.pop(name, None)
            self._weighing.forget(name)
            self._idling.forget(name)
            self._failures.retry_what_did_not_fit()
            log.info("unloaded %s, which no endpoint names any more", name)

    # What is reported and kept

    async def _report(self, wants: tuple[Want, ...]) -> None:
        await self._reporter.report(self._describe_triton(wants))

    async def _look(self) -> LoaderReport:
        """What is so in the middle of a pass that takes long."""
        await self._read_endpoints()
        return self._describe_triton(self._list_wanted())

    def _describe_triton(self, wants: tuple[Want, ...]) -> LoaderReport:
        loaded = tuple(self._loaded.values()) if self._answers else ()
        self._update_readiness(wants)
        # What no endpoint names any more is not probed either: nothing would say that it is well.
        probed = {want.ref for want in wants}
        self._troubles = {ref: each for ref, each in self._troubles.items() if ref in probed}
        return LoaderReport(
            loader=self._options.name,
            triton_grpc=self._options.triton_grpc,
            pool=self._options.pool,
            device=self._devices.device,
            at=self._now(),
            ended_at=self._book.ended_at,
            ready=self._answers and not (self._awaited or self._devices.fault() or self._cordoned),
            silent=not self._answers and self._now() - self._away_since >= _SILENT_SECONDS,
            loaded=loaded,
            failed=self._failures.list_reported(),
            cordoned=self._cordoned,
            troubles=tuple(
                each
                for each in sorted(self._troubles.values(), key=lambda item: item.ref.package)
                if each.ref.triton_model in self._loaded
            ),
            idle=tuple(
                model.ref.package
                for name, model in sorted(self._loaded.items())
                if self._idling.is_idle(name)
            ),
            asleep=self._list_sleeping(wants),
            wake_address=self._options.wake_address,
            wake_key=self._options.wake_key,
        )

    def _list_sleeping(self, wants: tuple[Want, ...]) -> dict[str, float]:
        """What sleeps, and how long its last load took, seconds; 0 if that is not known."""
        found = {}
        for want in wants:
            name, package = want.ref.triton_model, want.ref.package
            if want.asleep and name not in self._loaded:
                known = self._restored.get(package, 0.0)
                found[package] = round(self._load_seconds.get(name, known), 1)
        metrics.ASLEEP.set(len(found))
        return found

    def _update_readiness(self, wants: tuple[Want, ...]) -> None:
        held = self._loaded if self._answers else {}
        missing = desired.find_missing_stable(wants, held)
        metrics.MISSING_STABLE.set(len(missing))
        self._awaited = desired.find_awaited(wants, held, self._failures.all, self._now())
        self._complete |= self._answers and self._read_once and not self._awaited
        given_up = () if self._awaited else missing
        if given_up and given_up != self._missing:
            why = "; ".join(map(self._describe, given_up))
            log.warning("Triton gets requests for what it holds, without %s", why)
        self._missing = given_up

    def _describe(self, ref: ModelRef) -> str:
        failure = self._failures.get(ref.triton_model)
        return f"{ref.triton_model} ({failure.reason})" if failure else ref.triton_model


def _cause(error: Exception) -> FailureCause:
    """Of a failure that Triton did not speak of."""
    if isinstance(error, NoRoomError):
        return FailureCause.ROOM
    return FailureCause.DAMAGED if isinstance(error, PackageBrokenError) else FailureCause.AWAY


async def _set_after(first: asyncio.Event, then: asyncio.Event) -> None:
    await first.wait()
    then.set()

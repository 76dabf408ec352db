"""The loader's process: ``python -P -m registry.loader_main --help``.

One runs beside each Triton. It reads the environment once, here, builds its parts, and keeps the
loop going until SIGTERM. It leaves Triton's models as they are when it ends.
"""

import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path

from contracts.loading import WAKE_PATH, WakeAnswer
from contracts.manifest import MANIFEST, Manifest
from contracts.model import ModelRef
from registry import metrics
from registry.loading.devices import Devices, Promise
from registry.loading.loader import Loader
from registry.loading.options import LoaderOptions
from registry.loading.placement import Placement, SharedRepository, UploadedFiles
from registry.loading.prober import Prober, ProberPace
from registry.loading.room import Room
from registry.loading.triton_client import GrpcTriton
from registry.packages.cache import LocalPackages
from registry.packages.store import PackageStore, StoreUnavailableError
from registry.packages.triton_config import BACKEND_ONNXRUNTIME, BACKEND_PYTHON
from registry.settings import LoaderSettings
from registry.stores import opening
from service import flags, logs, machine, pages
from service.cluster.errors import AccessError
from service.mutual_tls import MutualTls
from service.steady_clock import API_SERVER, SteadyClock

log = logging.getLogger(__name__)

PACE = ProberPace()


def main() -> int:
    """Runs until SIGTERM or SIGINT."""
    settings = flags.parse(LoaderSettings, sys.argv[1:], os.environ, program="registry.loader_main")
    logs.configure("loader", settings.log_level)
    log.info("the loader starts")
    try:
        asyncio.run(_run(settings, os.environ))
    except (AccessError, StoreUnavailableError) as error:
        log.error("%s", error)
        return 1
    return 0


async def _run(settings: LoaderSettings, environment: Mapping[str, str]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tls = MutualTls.of(settings.triton_tls_folder, settings.triton_tls_name)
    triton = GrpcTriton(
        settings.triton_grpc,
        call_seconds=settings.call_timeout_seconds,
        load_seconds=settings.load_timeout_seconds,
        key_file=None if not settings.triton_key_file else Path(settings.triton_key_file),
        tls=tls,
    )
    # Apart, with more patience: who restarts a Triton for a slow answer gives a busy machine more
    # to do.
    probed = GrpcTriton(
        settings.triton_grpc,
        call_seconds=PACE.deadline_seconds,
        load_seconds=settings.load_timeout_seconds,
        tls=tls,
        own=triton.own,
    )
    packages = LocalPackages(PackageStore(settings.store_url), settings.state_dir / "packages")
    key = secrets.token_urlsafe(24)
    try:
        loader = build(settings, triton, packages, environment, wake_key=key)
        prober = Prober(
            probed,
            loader.stable,
            partial(_manifest, packages),
            PACE,
            told=loader.note_trouble,
            gone=loader.note_gone,
            executed=probed.count_executed,
            refused=probed.count_refused,
            others=loader.others,
            lost=loader.note_lost,
        )

        def fault() -> str:
            return prober.fault() or loader.fault()

        metrics.TRITON_FAULT.set_function(lambda: float(bool(fault())))
        if settings.metrics_port:
            probes = {"/readyz": loader.unready, "/triton/livez": fault}
            actions = {WAKE_PATH: answer_waking(loader, key)} if settings.idle_seconds else {}
            pages.serve(settings.metrics_host, settings.metrics_port, probes, actions)
        async with asyncio.TaskGroup() as tasks:
            probing = tasks.create_task(prober.run())
            await loader.run(stop)
            probing.cancel()
    finally:
        await triton.close()
        await probed.close()


def _manifest(packages: LocalPackages, ref: ModelRef) -> Manifest:
    """The manifest of a package that is on this disk already."""
    return Manifest.model_validate_json((packages.fetch(ref) / MANIFEST).read_bytes())


def build(
    settings: LoaderSettings,
    triton: GrpcTriton,
    packages: LocalPackages,
    environment: Mapping[str, str],
    *,
    wake_key: str = "",
) -> Loader:
    """The loader on endpoints, a package store and a Triton; raises ``AccessError``.

    Without an address at which gateways could ask for it again, no model leaves.
    """
    idle_seconds, address = settings.idle_seconds, settings.wake_address
    if idle_seconds and not address:
        log.warning("--idle-seconds has no effect without --wake-address: models stay loaded")
        idle_seconds = 0.0
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    backends = (BACKEND_ONNXRUNTIME, BACKEND_PYTHON)
    options = LoaderOptions(
        name=settings.loader_name,
        triton_grpc=settings.advertise_grpc or settings.triton_grpc,
        pool=settings.pool,
        ledger_file=settings.state_dir / f"{settings.loader_name}.json",
        backends=backends if settings.backend == "auto" else (settings.backend,),
        poll_seconds=settings.poll_seconds,
        heartbeat_seconds=settings.heartbeat_seconds,
        unload_after_seconds=settings.unload_after_seconds,
        warmup_seconds=settings.warmup_seconds,
        auto_instances=settings.auto_instances,
        ceilings=settings.ceilings,
        cores=settings.cores or machine.cores(),
        pyfunc=settings.pyfunc,
        memory_bytes=settings.memory_megabytes * 1024 * 1024 or machine.memory_bytes(),
        room=room(settings),
        idle_seconds=idle_seconds,
        wake_address=address if idle_seconds else "",
        wake_key=wake_key if idle_seconds else "",
    )
    placement: Placement = UploadedFiles(settings.pyfunc_limits)
    if settings.model_repository:
        placement = SharedRepository(Path(settings.model_repository), settings.pyfunc_limits)
    return Loader(
        options,
        endpoints=opening.endpoints(settings.endpoints, environment),
        packages=packages,
        triton=triton,
        placement=placement,
        reports=opening.reports(settings.reports, environment),
        demand=triton,
        now=SteadyClock(witness=API_SERVER),
        devices=Devices(triton, placement.place_probe, Promise(settings.device)),
    )


_WAKE_SENTENCES = {
    WakeAnswer.HELD: "held",
    WakeAnswer.COMING: "coming",
    WakeAnswer.LEAVING: "leaving",
    WakeAnswer.NO_ROOM: "no room",
    WakeAnswer.UNKNOWN: "no stable version has this name",
}


def answer_waking(loader: Loader, key: str) -> pages.Action:
    """What answers gateways that ask for a model, by Triton's name of it."""

    def answer(name: str, shown: str) -> tuple[HTTPStatus, str]:
        if not secrets.compare_digest(shown.encode(), key.encode()):
            return HTTPStatus.FORBIDDEN, "another key is in this loader's report"
        woken = loader.wake(name)
        return woken.value, _WAKE_SENTENCES[woken]

    return answer


def room(settings: LoaderSettings) -> Room:
    """What Triton's models may take; a Triton that shares no folder has a memory of its own."""
    memory = settings.memory_megabytes * 1024 * 1024
    beside = machine.memory_bytes() if settings.model_repository else None
    disk = settings.disk_megabytes * 1024 * 1024
    return Room(memory or beside, disk or None, settings.state_dir / "packages")


if __name__ == "__main__":
    sys.exit(main())

"""The controller's own process, with real conversions: from a registered version to its package."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes, write_kubeconfig
from fake_mlflow import FakeMlflow, serve
from network_calls import addresses, traced
from registry_fakes import endpoint, manifest
from tiny_models import write_onnx_version
from waiting import until

from contracts.controller import ControllerBeat
from contracts.endpoint import Arm, Candidate, EndpointSpec, EndpointStatus, Phase, Route
from contracts.model import ModelRef
from contracts.rollout import COMMAND_PREFIX, RolloutState
from registry.errors import EndpointConflictError
from registry.packages.store import PackageStore
from registry.packages.store_mark import StoreMark
from registry.reconcile.release_claim import ReleaseClaim
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from registry.stores.endpoints import EndpointStore, FileEndpointStore
from registry.stores.heartbeats import FileHeartbeats, KubernetesHeartbeats
from service.key_files import read_keys

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]
MISLED = Path(__file__).parents[1] / "support" / "misled_program.py"


def flags_of(folder: Path, mlflow: str = "http://127.0.0.1:9") -> list[str]:
    """Of a controller that keeps all in a folder, and whose Kafka is away."""
    flags = {
        "endpoints": folder / "endpoints",
        "reports": folder / "reports",
        "store-url": (folder / "store").as_uri(),
        "work-dir": folder / "work",
        "mlflow-uri": mlflow,
        "kafka-bootstrap": "127.0.0.1:9",
    }
    return [f"--{name}={value}" for name, value in flags.items()]


def converted(tmp_path: Path, record: Path | None = None) -> tuple[ModelRef, set[tuple[str, int]]]:
    """A version's package and the addresses that the controller was given, once it has ended."""
    (tmp_path / "reports").mkdir()
    endpoints = FileEndpointStore(tmp_path / "endpoints")
    endpoints.put(endpoint(spec=EndpointSpec(model="tiny")))
    write_onnx_version(tmp_path / "artifacts" / "version")
    with serve(FakeMlflow(tmp_path / "artifacts")) as fake, (tmp_path / "log").open("wb") as log:
        fake.register("tiny", "mlflow-artifacts:/version", run_id="r1")
        fake.log_run("r1", "mlflow-artifacts:/run")
        program = [sys.executable, "-P", "-m", "controller.main", *flags_of(tmp_path, fake.uri)]
        process = subprocess.Popen(
            traced(program, record) if record else program,
            stderr=log,
            stdout=log,
            env={**os.environ, "HOME": str(tmp_path / "home")},
        )
        try:
            (ref,) = until(
                f"a package is to be loaded: {tmp_path / 'log'}",
                900,
                lambda: endpoints.list()[0].status.packages,
                every_seconds=0.5,
            )
        finally:
            process.terminate()
            process.wait(60)
    port = urlsplit(fake.uri).port
    assert port is not None
    return ref, {("127.0.0.1", port), ("127.0.0.1", 9)}


def test_a_version_gets_through_a_folder_of_its_own_into_the_store_and_the_signed_index(
    tmp_path: Path,
) -> None:
    store, work = tmp_path / "store", tmp_path / "work"
    ref, _ = converted(tmp_path)
    assert PackageStore(store.as_uri()).packages() == [ref.package]
    assert not list((store / "staging").iterdir())
    assert sorted(file.suffix for file in (store / "index").iterdir()) == [".json", ".mac"]
    assert len(read_keys(work / "index-keys")) == 1
    assert [each.name for each in work.iterdir()] == ["index-keys"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_it_and_its_conversions_talk_to_nobody_but_those_that_they_were_told_of(
    tmp_path: Path,
) -> None:
    record = tmp_path / "calls"
    _, told = converted(tmp_path, record)
    assert addresses(record) == told
    assert not (tmp_path / "home").exists()


def test_a_second_releases_controller_does_not_start_beside_the_first_ones(tmp_path: Path) -> None:
    for name in ("endpoints", "reports"):
        (tmp_path / name).mkdir()
    beats, over = FileHeartbeats(tmp_path / "endpoints"), threading.Event()
    theirs = ReleaseClaim(beats, [b"t" * 32], "here").mark

    def beat() -> None:
        for count in itertools.count(1):
            beats.put(ControllerBeat(instance="theirs", count=count, at=0.0, release=theirs))
            if over.wait(0.1):
                return

    first = threading.Thread(target=beat)
    first.start()
    program = [sys.executable, "-P", "-m", "controller.main", *flags_of(tmp_path)]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    finally:
        over.set()
        first.join()
    assert done.returncode == 1
    assert "looked after by the controller of another release" in done.stderr + done.stdout


def test_a_second_releases_controller_does_not_start_on_the_first_ones_packages(
    tmp_path: Path,
) -> None:
    for name in ("endpoints", "reports"):
        (tmp_path / name).mkdir()
    StoreMark((tmp_path / "store").as_uri(), [b"t" * 32], owner="the first one").claim()
    program = [sys.executable, "-P", "-m", "controller.main", *flags_of(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "belongs to another release of Headrace (the first one" in done.stderr + done.stdout


def test_of_two_releases_with_one_key_the_second_does_not_start_on_the_first_ones_packages(
    tmp_path: Path,
) -> None:
    keys, store = tmp_path / "keys", (tmp_path / "store").as_uri()
    keys.write_text("ab" * 32)
    StoreMark(store, read_keys(keys), owner="before releases had names").claim()

    def program(release: str) -> list[str]:
        for name in ("endpoints", "reports"):
            (tmp_path / release / name).mkdir(parents=True)
        flags = {"store-url": store, "index-key-file": keys, "release": release}
        given = [f"--{name}={value}" for name, value in flags.items()]
        return [
            sys.executable,
            "-P",
            "-m",
            "controller.main",
            *flags_of(tmp_path / release),
            *given,
        ]

    beats = FileHeartbeats(tmp_path / "models/prod" / "endpoints")
    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen(program("models/prod"), stdout=log, stderr=log)
        try:
            until("it gives a sign of life", 300, beats.get)
        finally:
            first.terminate()
            first.wait(60)
    done = subprocess.run(
        program("models/trial"), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "belongs to another release of Headrace" in done.stderr + done.stdout


def in_shadow(began: float) -> EndpointStatus:
    """Of a rollout that began then."""
    stable, candidate = (manifest(version).ref() for version in ("1", "2"))
    return EndpointStatus(
        candidate=Candidate(version="2", ref=candidate, phase=Phase.SHADOW),
        packages=(stable, candidate),
        routes=(Route(arm=Arm.STABLE, ref=stable, weight=100),),
        rollout=RolloutState(
            id="r", candidate=candidate, stable=stable, began=began, step_began=began
        ),
    )


class MisledController:
    """A controller that judges one endpoint, and whose clock is ahead by what ``mislead`` says."""

    def __init__(self, folder: Path, endpoints: EndpointStore) -> None:
        self.folder = folder
        self.endpoints = endpoints
        (folder / "reports").mkdir()

    def mislead(self, days: float) -> None:
        (self.folder / "next").write_text(str(days * 86400.0))
        (self.folder / "next").replace(self.folder / "ahead")  # it is never read half

    @contextmanager
    def running(self, flags: list[str], **environment: str) -> Iterator[None]:
        program = [sys.executable, "-P", MISLED, self.folder / "ahead", "controller.main", *flags]
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                list(map(str, program)), stdout=log, stderr=log, env={**os.environ, **environment}
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    def after_a_pass(self) -> EndpointStatus:
        """Waits for a whole pass, which drops what is no command."""
        until("the endpoint is written", 600, self._ask)
        until("a pass", 600, lambda: not self.endpoints.list()[0].metadata.annotations)
        return self.endpoints.list()[0].status

    def _ask(self) -> bool:
        with suppress(EndpointConflictError):
            found = self.endpoints.list()[0]
            update = {"annotations": {f"{COMMAND_PREFIX}x": "no command"}}
            metadata = found.metadata.model_copy(update=update)
            return bool(self.endpoints.put(found.model_copy(update={"metadata": metadata})))
        return False


def test_a_clock_that_is_wrong_for_a_while_ends_no_rollout(tmp_path: Path) -> None:
    began = time.time()
    endpoints = FileEndpointStore(tmp_path / "endpoints")
    endpoints.put(endpoint(in_shadow(began)))
    controller = MisledController(tmp_path, endpoints)
    with controller.running(flags_of(tmp_path)):
        controller.after_a_pass()
        for days in (40, -40, 0):
            controller.mislead(days)
            controller.after_a_pass()  # it may have begun before
            found = controller.after_a_pass()
            assert found.rollout is not None
            assert found.rollout.began == began
            assert found.rejected == ()


@pytest.mark.parametrize("days", [40, -40])
def test_a_clock_that_is_wrong_from_the_start_on_ends_no_rollout_in_a_cluster(
    tmp_path: Path, days: float
) -> None:
    began = time.time()
    with fake_kubernetes() as fake:
        endpoints = KubernetesEndpointStore(fake.client(), NAMESPACE)
        endpoints.put(endpoint(in_shadow(began)))
        controller = MisledController(tmp_path, endpoints)
        controller.mislead(days)
        flags = [*flags_of(tmp_path), f"--endpoints=kubernetes://{NAMESPACE}"]
        config = write_kubeconfig(tmp_path, f"http://127.0.0.1:{fake.port}")
        with controller.running(flags, KUBECONFIG=str(config)):
            for _ in range(2):
                found = controller.after_a_pass()
                assert found.rollout is not None
                assert found.rejected == ()
            beat = KubernetesHeartbeats(fake.client(), NAMESPACE).get()
    assert beat is not None
    assert abs(beat.at - began) < 86400.0

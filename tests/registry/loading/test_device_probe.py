"""What ``triton/device_probe`` says of a machine, by an NVML whose answers are known."""

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
from loaded_script import loaded
from own_ports import own_ports

from registry.loading.devices import ProbeResult
from registry.packages.triton_files import triton_file

GIB = 1 << 30


class FakeNvml:
    """NVML of a machine with some GPUs, each with a UUID, free bytes and a share of busy time.

    ``xids`` are events that come next, each of a GPU and with a number; they are told once, of GPUs
    that were registered. ``refuses`` are functions that fail. ``processes`` hold bytes, by process
    id, by GPU; without them the library is one that lacks the function.
    """

    def __init__(
        self,
        *gpus: tuple[str, int, int],
        refuses: tuple[str, ...] = (),
        processes: Mapping[int, Mapping[int, int]] | None = None,
        xids: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.gpus = gpus
        self.refuses = refuses
        self.processes = processes
        self.xids = list(xids)
        self.registered: set[int] = set()
        self.closed = 0
        self.nvmlErrorString = ErrorString()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name in self.refuses:
                return 9
            return int(getattr(self, f"_{name}")(*arguments) or 0)

        return call

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's own name
        self.closed += 1

    def _nvmlInit_v2(self) -> None:  # noqa: N802
        return

    def _nvmlSystemGetDriverVersion(self, text: Any, _: int) -> None:  # noqa: N802
        text.value = b"580.95.05"

    def _nvmlSystemGetCudaDriverVersion_v2(self, number: Any) -> None:  # noqa: N802
        number._obj.value = 13020

    def _nvmlDeviceGetCount_v2(self, number: Any) -> None:  # noqa: N802
        number._obj.value = len(self.gpus)

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> None:  # noqa: N802
        handle._obj.value = index.value + 1

    def _nvmlDeviceGetUUID(self, handle: Any, text: Any, _: int) -> None:  # noqa: N802
        text.value = self.gpus[handle.value - 1][0].encode()

    def _nvmlDeviceGetName(self, handle: Any, text: Any, _: int) -> None:  # noqa: N802
        text.value = b"NVIDIA H200"

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> None:  # noqa: N802
        memory._obj.total, memory._obj.free = 140 * GIB, self.gpus[handle.value - 1][1]

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, used: Any) -> None:  # noqa: N802
        used._obj.gpu = self.gpus[handle.value - 1][2]

    def _nvmlEventSetCreate(self, events: Any) -> None:  # noqa: N802
        events._obj.value = 77

    def _nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, events: Any) -> None:  # noqa: N802
        assert (kinds.value, events.value) == (8, 77)  # nvmlEventTypeXidCriticalError
        self.registered.add(handle.value - 1)

    def _nvmlEventSetWait_v2(self, events: Any, data: Any, milliseconds: Any) -> int:  # noqa: N802
        assert (events.value, milliseconds.value) == (77, 0)
        while self.xids:
            gpu, number = self.xids.pop(0)
            if gpu in self.registered:
                data._obj.kind, data._obj.data = 8, number
                return 0
        return 10  # NVML_ERROR_TIMEOUT

    def _nvmlDeviceGetComputeRunningProcesses_v3(  # noqa: N802
        self, handle: Any, count: Any, found: Any
    ) -> None:
        if self.processes is None:
            raise AttributeError("undefined symbol")
        here = self.processes.get(handle.value - 1, {})
        count._obj.value = len(here)
        for place, (pid, used) in enumerate(here.items()):
            found[place].pid, found[place].used = pid, used


class ErrorString:
    """``nvmlErrorString``, whose type of answer is set like that of a real one."""

    restype: Any = None

    def __call__(self, code: int) -> bytes:
        return f"error {code}".encode()


@pytest.fixture
def probe() -> Iterator[ModuleType]:
    """The module, with an empty one in the place of Triton's own."""
    before = set(sys.modules)
    sys.modules["triton_python_backend_utils"] = ModuleType("triton_python_backend_utils")
    yield loaded(triton_file("device_probe"))
    for name in sys.modules.keys() - before:
        if name in {"triton_python_backend_utils", "device_probe_model"}:
            del sys.modules[name]


TWO = (("GPU-a", 100 * GIB, 30), ("GPU-b", 90 * GIB, 70))


def seen(probe: ModuleType, nvml: FakeNvml, **environment: str) -> ProbeResult:
    """What a loader makes of what the probe says."""
    return ProbeResult.of(probe.device(environment, lambda _: nvml))


def test_a_gpu_is_told_with_its_memory_its_driver_and_how_busy_it_is(probe: ModuleType) -> None:
    nvml = FakeNvml(*TWO)
    found = seen(probe, nvml)
    device = found.device
    assert (device.kind, device.name, device.count) == ("gpu", "NVIDIA H200", 2)
    assert (device.memory_bytes, device.free_bytes) == (140 * GIB, 90 * GIB)
    assert device.busy == 0.5
    assert (device.driver, found.cuda, found.why) == ("580.95.05", "13.2", "")
    assert nvml.closed == 1


def test_a_gpu_that_can_not_say_how_busy_it_is_is_one_all_the_same(probe: ModuleType) -> None:
    found = seen(probe, FakeNvml(*TWO, refuses=("nvmlDeviceGetUtilizationRates",)))
    assert (found.device.kind, found.device.busy) == ("gpu", 0.0)


@pytest.mark.parametrize(
    ("nvml", "why"),
    [
        (FakeNvml(*TWO, refuses=("nvmlInit_v2",)), "the driver does not answer: nvmlInit_v2"),
        (FakeNvml(*TWO, refuses=("nvmlDeviceGetMemoryInfo",)), "error 9"),
        (FakeNvml(), "the driver has no GPU"),
    ],
)
def test_a_gpu_that_can_not_be_used_is_told_with_the_reason(
    probe: ModuleType, nvml: FakeNvml, why: str
) -> None:
    found = seen(probe, nvml)
    assert found.device.kind == "cpu"
    assert why in found.why


def test_a_machine_without_a_driver_is_a_cpu(probe: ModuleType) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    found = ProbeResult.of(probe.device({}, missing))
    assert found.device.kind == "cpu"
    assert "libnvidia-ml.so.1 is not here" in found.why


@pytest.mark.parametrize(
    ("allowed", "count"), [("0", 1), ("GPU-b", 1), ("1,0", 2), ("GPU-b,-1,0", 1), ("MIG-x", 1)]
)
def test_gpus_that_cuda_is_not_shown_do_not_count(
    probe: ModuleType, allowed: str, count: int
) -> None:
    assert seen(probe, FakeNvml(*TWO), CUDA_VISIBLE_DEVICES=allowed).device.count == count


@pytest.mark.parametrize("allowed", ["", "-1", "7", "NoDevFiles"])
def test_a_machine_whose_gpus_are_all_hidden_is_a_cpu(probe: ModuleType, allowed: str) -> None:
    found = seen(probe, FakeNvml(*TWO), CUDA_VISIBLE_DEVICES=allowed)
    assert found.device.kind == "cpu"
    assert "hides every GPU" in found.why


def test_a_driver_that_fails_makes_the_answer_unsure_and_none_at_all_does_not(
    probe: ModuleType,
) -> None:
    assert seen(probe, FakeNvml(*TWO, refuses=("nvmlInit_v2",))).unsure
    assert seen(probe, FakeNvml(*TWO, refuses=("nvmlDeviceGetCount_v2",))).unsure
    assert not seen(probe, FakeNvml()).unsure
    assert not seen(probe, FakeNvml(*TWO)).unsure


STUB = "/backends/python/triton_python_backend_stub"
WORDS = {
    11: [STUB, "/models/m-1/1/model.py", "shm"],
    12: [STUB, "/models/other-2/1/model.py", "shm"],
    13: [STUB, "/models/m-1/1/model.py", "shm"],
    14: ["python3", "train.py"],
}
NOT_TOLD = (1 << 64) - 1


def test_what_each_model_holds_of_the_gpu_on_which_it_holds_most_is_told(probe: ModuleType) -> None:
    processes = {0: {11: 5 * GIB, 13: GIB, 14: 40 * GIB, 999: GIB}, 1: {11: GIB, 12: 2 * GIB}}
    nvml = FakeNvml(*TWO, processes=processes)
    told = probe.device({}, lambda _: nvml, lambda pid: WORDS.get(pid, []))
    assert ProbeResult.of(told).held == {"m-1": 6 * GIB, "other-2": 2 * GIB}


@pytest.mark.parametrize(
    "nvml",
    [
        FakeNvml(*TWO),
        FakeNvml(*TWO, processes={}, refuses=("nvmlDeviceGetComputeRunningProcesses_v3",)),
        FakeNvml(*TWO, processes={0: {11: NOT_TOLD}}),
    ],
    ids=["old driver", "not allowed", "not told"],
)
def test_where_the_driver_does_not_tell_processes_nothing_is_said_of_them(
    probe: ModuleType, nvml: FakeNvml
) -> None:
    told = probe.device({}, lambda _: nvml, lambda pid: WORDS.get(pid, []))
    assert ProbeResult.of(told).held == {}
    assert told["kind"] == "gpu"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["tritonserver"], ("127.0.0.1", 8002)),
        (
            ["tritonserver", "--metrics-port=9002", "--metrics-address=10.0.0.1"],
            ("10.0.0.1", 9002),
        ),
        (
            ["tritonserver", "--metrics-port", "9002", "--http-address", "0.0.0.0"],
            ("127.0.0.1", 9002),
        ),
        (["tritonserver", "--allow-metrics=false"], None),
        (["tritonserver", "--metrics-port=none"], None),
        ([], None),
    ],
)
def test_a_tritons_metrics_are_where_its_command_line_says(
    probe: ModuleType, words: list[str], place: tuple[str, int] | None
) -> None:
    assert probe.metrics_place(words) == place


METRICS = """# HELP headrace_packed_tokens_total Tokens.
# TYPE headrace_packed_tokens_total counter
headrace_packed_tokens_total{{model="m",version="1"}} {tokens}
headrace_packed_tokens_total{{model="n",version="1"}} 10
# TYPE headrace_packed_padding_tokens_total counter
headrace_packed_padding_tokens_total{{model="m",version="1"}} {padding}
"""


def test_the_share_of_useful_work_is_of_what_was_computed_since_the_question_before(
    probe: ModuleType, pages_at: Callable[[Callable[[], str]], int]
) -> None:
    counts = {"tokens": 80, "padding": 10}
    useful = probe.UsefulTokens(("127.0.0.1", pages_at(lambda: METRICS.format(**counts))))
    assert useful.look() == {"useful": 0.9}
    assert useful.look() == {}  # nothing was computed since
    counts.update(tokens=180, padding=110)
    assert useful.look() == {"useful": 0.5}


def test_a_triton_without_metrics_or_without_packed_engines_tells_no_useful_work(
    probe: ModuleType, pages_at: Callable[[Callable[[], str]], int]
) -> None:
    (port,) = own_ports(1)
    assert probe.UsefulTokens(None).look() == {}
    assert probe.UsefulTokens(("127.0.0.1", port)).look() == {}
    other = pages_at(lambda: "nv_gpu_utilization 0.5\n")
    assert probe.UsefulTokens(("127.0.0.1", other)).look() == {}


@pytest.fixture
def pages_at() -> Iterator[Callable[[Callable[[], str]], int]]:
    """Serves a text that is asked for anew each time; gives the port."""
    servers: list[ThreadingHTTPServer] = []

    def serve(text: Callable[[], str]) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = text().encode()
                self.send_response(200 if self.path == "/metrics" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return int(server.server_address[1])

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_packages_tell_the_cuda_that_they_were_built_for(
    probe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = '13.2'\n")
    capi = tmp_path / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    (tmp_path / "onnxruntime" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in ("torch", "onnxruntime"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert probe.packages() == {"torch": "13.2", "onnxruntime": ""}
    (capi / "libonnxruntime_providers_cuda.so").write_bytes(b"")
    assert probe.packages()["onnxruntime"] == "any"
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = None\n")
    assert probe.packages()["torch"] == ""


def test_what_the_driver_reports_of_its_gpus_is_told_from_then_on(probe: ModuleType) -> None:
    nvml = FakeNvml(*TWO)
    xids = probe.Xids(lambda _: nvml)
    assert xids.look({}) == {"xids": []}
    nvml.xids = [(0, 13), (1, 79)]
    assert xids.look({}) == {"xids": [13, 79]}
    nvml.xids = [(0, 13)]
    assert xids.look({}) == {"xids": [13, 79]}  # each number once
    assert nvml.closed == 0  # a closed library forgets what it was asked to tell


def test_what_is_reported_of_a_gpu_that_is_hidden_is_not_told(probe: ModuleType) -> None:
    nvml = FakeNvml(*TWO, xids=[(0, 79), (1, 48)])
    xids = probe.Xids(lambda _: nvml)
    assert xids.look({"CUDA_VISIBLE_DEVICES": "GPU-b"}) == {"xids": [48]}


@pytest.mark.parametrize(
    "refused", ["nvmlInit_v2", "nvmlEventSetCreate", "nvmlDeviceRegisterEvents"]
)
def test_a_driver_that_tells_no_events_is_asked_again_and_fails_nothing(
    probe: ModuleType, refused: str
) -> None:
    nvml = FakeNvml(*TWO, refuses=(refused,), xids=[(0, 79)])
    xids = probe.Xids(lambda _: nvml)
    assert xids.look({}) == {}
    assert nvml.closed == (refused != "nvmlInit_v2")
    nvml.refuses = ()
    assert xids.look({}) == {"xids": [79]}


def test_without_a_driver_nothing_is_reported(probe: ModuleType) -> None:
    def missing(_: str) -> ctypes.CDLL:
        raise OSError("no such file")

    assert probe.Xids(missing).look({}) == {}

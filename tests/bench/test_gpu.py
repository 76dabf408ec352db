"""The run on a GPU: what is pure in it, and that it ends with one sentence where there is none."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench import studies
from bench.gpu import command, device, grid, paths
from bench.gpu.device import Gpu, Layout
from bench.gpu.grid import Point
from bench.gpu.tables import Found, Results, tables
from bench.peers.comparison import Likeness
from bench.peers.entrants import ENSEMBLE, HEADRACE

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "performance.md"
MACHINE = {"processor": "AMD EPYC", "cores": [0, 1], "commit": "abc"}
LISTED = "NVIDIA A100-SXM4-80GB, 580.65.06, 81920 MiB\nNVIDIA A100, 580, 1 MiB\n"
SHOWN = "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0     |"
A100 = Gpu("NVIDIA A100-SXM4-80GB", "580.65.06", "81920 MiB", "13.0")


def a_round(texts_per_second: float, failed: int = 0) -> paths.Round:
    return paths.Round(texts_per_second, 5.0, 9.0, 0.5, failed)


def found() -> Found:
    like = {HEADRACE: Likeness(0.99, 0.97, 0.9)}
    made = Found("fp16", [Point(1, 16, 1.0), Point(4, 16, 2.0)], likeness=like)
    made.versions = {"Triton": "2.59.0"}
    made.add([paths.Path(HEADRACE, 2, 1, [a_round(100)])])
    return made


# The device


def test_the_first_gpu_is_read_with_its_driver_and_cuda() -> None:
    assert device.read(LISTED, SHOWN) == A100


def test_a_driver_that_lists_no_gpu_is_no_gpu() -> None:
    assert device.read("No devices were found\n", "") is None
    assert device.read("", "") is None


def test_without_a_gpu_it_ends_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi there
    document = tmp_path / "document.md"
    document.write_text("as it was", encoding="utf-8")
    assert command.main(["--document", str(document), "--json", str(tmp_path / "json")]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"{device.NO_GPU}\n")
    assert document.read_text(encoding="utf-8") == "as it was"
    assert not (tmp_path / "json").exists()


@pytest.mark.parametrize("flag", [["--device", "cpu"], ["--small"]])
def test_tables_of_the_cpu_or_of_a_little_are_never_written_into_a_document(
    flag: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main([*flag, "--document", str(tmp_path / "document.md")])
    assert "leave out --document" in capsys.readouterr().err


@pytest.mark.parametrize(("cores", "gateways"), [(4, 1), (5, 2), (8, 4), (13, 8), (16, 8)])
def test_each_part_has_cores_of_its_own_where_there_are_enough(cores: int, gateways: int) -> None:
    made = device.layout(range(cores), gateways)
    assert made is not None
    every = [*made.engine, *(core for own in made.gateways for core in own), *made.load]
    assert sorted(every) == list(range(cores))
    assert len(made.gateways) == gateways
    assert len(made.engine) >= 2


def test_more_gateways_than_the_cores_allow_are_left_out() -> None:
    assert device.layout(range(4), 2) is None
    assert device.layout(range(12), 8) is None
    assert device.layout([0], 1) is None


def test_on_two_cores_gateways_share_that_of_triton() -> None:
    assert device.layout([0, 1], 1) == Layout([0], [[0]], [1])
    assert device.layout([0, 1], 2, shared=True) == Layout([0], [[0], [0]], [1])


# The engine alone


def test_the_grid_goes_to_128_rows_and_512_tokens() -> None:
    whole = grid.grid()
    assert len(whole) == len(set(whole)) == 8 * 6
    assert (whole[0], whole[-1]) == ((1, 16), (128, 512))
    assert set(grid.grid(small=True)) <= set(whole)


def test_a_point_says_rows_and_tokens_a_second() -> None:
    point = Point(rows=4, tokens=32, milliseconds=2.0)
    assert (point.rows_per_second, point.tokens_per_second) == (2000, 64_000)


def test_an_engine_saturates_at_the_fewest_tokens_that_reach_nearly_the_most() -> None:
    few, enough, most = Point(1, 128, 1.0), Point(5, 128, 2.6), Point(128, 512, 256.0)
    assert grid.saturation([most, few, enough]) == enough
    assert grid.saturation([most, few, replace(enough, milliseconds=2.7)]) == most


# Tables


def test_rounds_of_one_load_are_one_row_with_its_spread_and_failures() -> None:
    made = found()
    made.add([paths.Path(HEADRACE, 2, 1, [a_round(300, failed=2)])])
    made.add([paths.Path(HEADRACE, 2, 1, [a_round(200)])])
    made.add([paths.Path(ENSEMBLE, 2, 1, [a_round(50)])])
    table = tables(Results(MACHINE, A100, [made]))["gpu-paths"]
    (ours,) = re.findall(rf".*{HEADRACE}.*", table)
    assert "| 200 (100 to 300); **2 failed** | 5.0 | 9.0 | 50 % | 0.9900 / 0.9700 |" in ours
    assert re.findall(rf".*{ENSEMBLE}.*", table)[0].endswith("| 50 | 5.0 | 9.0 | 50 % | - |")


def test_every_table_says_what_computed() -> None:
    on_cpu = tables(Results(MACHINE, None, [found()]))
    assert all(text.startswith("**On the CPU, not on a GPU**") for text in on_cpu.values())
    on_gpu = tables(Results(MACHINE, A100, [found()]))
    assert all(text.startswith("On a GPU: NVIDIA A100") for text in on_gpu.values())
    assert "driver 580.65.06, CUDA 13.0" in on_gpu["gpu-device"]
    assert "Saturated from 64 tokens a batch on (4 rows of 16)" in on_gpu["gpu-engine"]


def test_the_document_has_a_place_for_every_table() -> None:
    made = tables(Results(MACHINE, A100, [found()]))
    studies.written(DOCUMENT.read_text(encoding="utf-8"), made, "measured")


def test_the_gpu_computes_with_the_release_of_onnx_runtime_that_all_others_have() -> None:
    locks = ROOT / "locks"
    ours = re.search(r"^onnxruntime==(\S+)", (locks / "dev.txt").read_text("utf-8"), re.MULTILINE)
    its = re.search(
        r"^onnxruntime-gpu==(\S+)", (locks / "peers-gpu.txt").read_text("utf-8"), re.MULTILINE
    )
    assert ours is not None
    assert its is not None
    assert ours[1] == its[1]

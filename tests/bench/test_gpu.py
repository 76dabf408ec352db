"""The run on a GPU: what is pure in it, its budget, and that it ends with one sentence without."""

import re
import sys
import time
from pathlib import Path

import msgspec
import pytest
from registry_fakes import manifest
from tritonclient.grpc import service_pb2 as pb

from bench import documents
from bench.gpu import __main__ as command
from bench.gpu import alone, caller, device, loads
from bench.gpu.device import Busy, Gpu, Kind, Layout
from bench.gpu.found import (
    ENSEMBLE,
    LARGE,
    PACKED,
    PADDED,
    Alone,
    Caller,
    Like,
    Load,
    Part,
    Round,
    Run,
    Runs,
    parts_of,
    read,
    written,
)
from bench.gpu.loads import BASE64, BINARY, GRPC, JSON, OF_ENSEMBLE, Offer
from bench.gpu.tables import tables

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "bench" / "results" / "gpu.json"
LISTED = "NVIDIA A100-SXM4-80GB, 580.65.06, 81920 MiB\nNVIDIA A100, 580, 1 MiB\n"
SHOWN = "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0     |"
A100 = Gpu("NVIDIA A100-SXM4-80GB", "580.65.06", "81920 MiB", "13.0")


def a_load(engine: str, gateways: int, texts: int, form: str, *rates: float) -> Load:
    rounds = [
        Round(texts_per_second=rate, p50=1.0, p99=2.0, gpu_busy=0.99, useful=0.93) for rate in rates
    ]
    return Load(engine=engine, gateways=gateways, texts=texts, form=form, rounds=rounds)


def a_run(label: str = "now", **kept: object) -> Run:
    gpu = {"name": "NVIDIA A100", "memory": "81920 MiB", "driver": "580", "cuda": "13.0"}
    part = msgspec.convert({"step": "headrace", **kept}, Part, from_attributes=True)
    return Run(label=label, commit="abc", machine={"cores": [0, 1]}, gpu=gpu, parts=[part])


def row(table: str, begin: str) -> list[str]:
    """The cells of the one row that begins so."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


# The device


def test_the_first_gpu_is_read_with_its_driver_and_cuda() -> None:
    assert device.read(LISTED, SHOWN) == A100


def test_a_driver_that_lists_no_gpu_is_no_gpu() -> None:
    assert device.read("No devices were found\n", "") is None
    assert device.read("", "") is None


def test_how_busy_a_gpu_was_is_the_mean_of_what_was_said_since() -> None:
    busy = Busy()
    busy.read("100\n")
    mark = busy.mark
    assert busy.since(mark) is None
    for line in ("90", "[N/A]", "70\n"):
        busy.read(line)
    assert busy.since(mark) == pytest.approx(0.8)


def test_on_a_cpu_nobody_says_how_busy_a_gpu_is() -> None:
    with device.watched(Kind.CPU) as busy:
        assert busy.since(0) is None


def test_without_a_gpu_it_ends_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi there
    document = tmp_path / "document.md"
    document.write_text("as it was", encoding="utf-8")
    words = ["--document", str(document), "--json", str(tmp_path / "json")]
    assert command.main([*words, "--results", str(tmp_path / "results")]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"{device.NO_GPU}\n")
    assert document.read_text(encoding="utf-8") == "as it was"
    assert not (tmp_path / "json").exists()
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("flag", [["--device", "cpu"], ["--small"]])
def test_tables_of_the_cpu_or_of_a_little_are_never_written_into_a_document(
    flag: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main([*flag, "--document", str(tmp_path / "document.md")])
    assert "leave out --document" in capsys.readouterr().err


@pytest.mark.parametrize(("cores", "gateways"), [(4, 1), (5, 2), (8, 4), (15, 8), (16, 8)])
def test_each_part_has_cores_of_its_own_where_there_are_enough(cores: int, gateways: int) -> None:
    made = device.layout(range(cores), gateways)
    assert made is not None
    every = [*made.engine, *(core for own in made.gateways for core in own), *made.load]
    assert sorted(every) == list(range(cores))
    assert len(made.gateways) == gateways
    assert len(made.engine) >= 2


def test_more_gateways_than_the_cores_allow_are_left_out() -> None:
    assert device.layout(range(4), 2) is None
    assert device.layout(range(14), 8) is None
    assert device.layout([0], 1) is None
    assert [device.most_gateways(range(count)) for count in (2, 5, 14, 16)] == [1, 2, 4, 8]


def test_on_two_cores_gateways_share_that_of_triton() -> None:
    assert device.layout([0, 1], 1) == Layout([0], [[0]], [1])
    assert device.layout([0, 1], 2, shared=True) == Layout([0], [[0], [0]], [1])


# What is asked


def test_loads_hold_every_form_and_number_of_gateways_and_begin_with_the_most() -> None:
    every = loads.offers(8)
    assert len(every) == len(set(every))
    assert every[0].gateways == 8
    assert {each.gateways for each in every} == {1, 2, 4, 8}
    assert {each.form for each in every} == {JSON, BASE64, BINARY, GRPC}
    for form in (JSON, BASE64):
        assert {Offer(1, 16, form), Offer(8, 16, form)} <= set(every)


def test_with_one_gateway_no_load_is_offered_twice() -> None:
    every = loads.offers(1)
    assert len(every) == len(set(every))
    assert {each.gateways for each in every} == {1}


def test_rows_of_a_run_are_as_many_as_fit_and_one_at_least() -> None:
    rows = [[1] * 5, [2] * 4, [3] * 3]
    assert alone.first(rows, 9) == rows[:2]
    assert alone.first(rows, 1) == rows[:1]
    assert alone.first(rows, 100) == rows


# The budget


def test_a_step_that_goes_on_for_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = f"""
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
    try:
        time.sleep(600)
    finally:
        child.kill()
        pathlib.Path({str(told)!r}).write_text("ended")
"""
    began = time.monotonic()
    assert command.bounded([sys.executable, "-c", program], 2.0).startswith("was ended after")
    assert time.monotonic() - began < 60
    assert told.read_text(encoding="utf-8") == "ended"


def test_a_step_that_ends_by_itself_says_its_status() -> None:
    assert command.bounded([sys.executable, "-c", "raise SystemExit(3)"], 60.0).startswith(
        "exit status 3"
    )


def test_steps_for_which_no_time_is_left_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device", "cpu", "--small", "--budget", "1", "--results", str(tmp_path)]
    assert command.main(words) == 0
    said = capsys.readouterr().out
    assert [step for step in command.LIMITS if f"{step}: no time left" in said] == list(
        command.LIMITS
    )


def test_all_steps_together_are_bounded_by_what_a_gpu_is_lent_for() -> None:
    assert sum(command.LIMITS.values()) <= 12 * 60
    assert command.BUDGET < 10 * 60
    assert next(iter(command.LIMITS)) == "headrace"


# What is kept


def test_rounds_of_one_load_are_one_load_and_are_kept_at_once(tmp_path: Path) -> None:
    part = Part(step="headrace")
    for rate in (100.0, 300.0, 200.0):
        part.add(a_load(PACKED, 8, 1, JSON, rate))
    part.add(a_load(PACKED, 8, 16, JSON, 7.0))
    part.keep(tmp_path)
    (kept,) = parts_of(tmp_path)
    assert [len(each.rounds) for each in kept.loads] == [3, 1]
    assert kept.loads[0].texts_per_second == 200.0


def test_a_run_takes_the_place_of_the_one_that_has_its_label(tmp_path: Path) -> None:
    runs = Runs()
    for run in (a_run("before"), a_run("now"), a_run("before", failed="again")):
        runs.put(run)
    file = tmp_path / "gpu.json"
    file.write_bytes(written(runs))
    kept = read(file)
    assert [run.label for run in kept.runs] == ["before", "now"]
    assert kept.runs[0].parts[0].failed == "again"
    assert read(tmp_path / "none.json").runs == []


# Tables


def test_goals_stand_beside_what_each_run_reached() -> None:
    before = a_run(
        "before",
        loads=[a_load(PADDED, 8, 1, JSON, 8586.0), a_load(PADDED, 1, 1, JSON, 2619.0)],
        callers=[Caller(engine=PADDED, way=caller.HTTP, tokens=16, p50=3.3, p99=4.5, calls=9)],
    )
    before.engine = PADDED
    now = a_run(
        loads=[
            a_load(PACKED, 8, 16, BASE64, 90_000.0, 100_000.0, 130_000.0),
            a_load(PACKED, 8, 16, JSON, 70_000.0),
            a_load(ENSEMBLE, 8, 16, OF_ENSEMBLE, 10_000.0),
            a_load(LARGE, 8, 16, BASE64, 5.0),
        ],
        likeness=[Like(engine=PACKED, mean_cosine=0.999999, least_cosine=0.99999)],
    )
    table = tables([before, now])["gpu-goals"]
    assert row(table, "what") == ["what", "before", "now", "goal"]
    lone = row(table, "one caller, 16 tokens, HTTP")
    assert lone[1:] == ["3.30 / 4.50 ms", "-", "< 1.0 / 1.5 ms"]
    assert row(table, "8 gateways, 16 texts a request, vectors")[1:3] == [
        "-",
        "100,000 texts/s (90,000 to 130,000) (base64)",
    ]
    assert row(table, "the same to the ensemble's")[2] == "10.0 times (base64)"
    assert row(table, "8 gateways to 8 times one")[1:3] == ["0.41", "-"]
    assert row(table, "BERT-base")[2] == "93 %"
    assert row(table, "answers to the fp32")[2] == "0.999999 / 0.999990"


def test_another_engine_never_stands_in_for_the_one_that_a_run_is_about() -> None:
    run = a_run(loads=[a_load(PADDED, 8, 1, JSON, 8586.0)])
    assert row(tables([run])["gpu-goals"], "8 gateways, one text")[1] == "-"


def test_requests_that_failed_are_shown() -> None:
    failed = Round(texts_per_second=5.0, p50=1.0, p99=2.0, failed=2)
    load = Load(engine=PACKED, gateways=1, texts=1, form=JSON, rounds=[failed])
    assert row(tables([a_run(loads=[load])])["gpu-loads"], PACKED)[-1] == "5 texts/s; **2 failed**"


def test_what_ended_early_is_shown() -> None:
    table = tables([a_run(failed="no time left in round 2")])["gpu-device"]
    assert row(table, "what ended early")[1] == "headrace: no time left in round 2"


def test_tables_of_a_cpu_say_so() -> None:
    lone = Alone(engine=PACKED, mode="on the CPU", rows=1, tokens=16, milliseconds=2.0)
    run = a_run(alone=[lone])
    run.gpu = None
    made = tables([run]).values()
    assert all(text.startswith("**now: on the CPU, not on a GPU.**") for text in made)


def test_the_document_shows_the_runs_that_are_kept_and_no_other() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert documents.written(document, tables(read(RESULTS).runs), "measured") == document


# What is sent


def test_ids_go_to_a_padded_engine_as_rows_with_their_mask() -> None:
    message = pb.ModelInferRequest.FromString(caller.ids_message(manifest(), [5, 6, 7]))
    assert {(each.name, each.datatype, tuple(each.shape)) for each in message.inputs} >= {
        ("input_ids", "INT64", (1, 3)),
        ("attention_mask", "INT64", (1, 3)),
    }


def test_the_gpu_computes_with_the_release_of_onnx_runtime_that_all_others_have() -> None:
    locks = ROOT / "locks"
    ours = re.search(r"^onnxruntime==(\S+)", (locks / "dev.txt").read_text("utf-8"), re.MULTILINE)
    its = re.search(
        r"^onnxruntime-gpu==(\S+)", (locks / "peers-gpu.txt").read_text("utf-8"), re.MULTILINE
    )
    assert ours is not None
    assert its is not None
    assert ours[1] == its[1]

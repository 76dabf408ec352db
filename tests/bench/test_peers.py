"""The race of peers: what is pure in it."""

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from bench import studies
from bench.peers import comparison, findings, shares
from bench.peers.__main__ import versions
from bench.peers.entrants import ENSEMBLE, HEADRACE, SHARING, SUBJECTS, entrants
from bench.peers.findings import Answers, Failure, Finding, Results, Round
from bench.peers.plan import (
    DEADLINE_SECONDS,
    MANY,
    SHARES,
    TIMES,
    Engine,
    Entrant,
    Load,
    Timing,
    expected_seconds,
    rounds,
    timing,
)
from bench.peers.plots import draw, picture
from bench.peers.started import started
from bench.peers.tables import shares_table, tables
from bench.processes import free_port

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "performance.md"
BASE = Timing(0.3, 1.8)


def of(
    per_second: float, in_time: float | None = None, p99: float = 10.0, failed: int = 0
) -> Round:
    good = per_second if in_time is None else in_time
    return Round(per_second, good, 5.0, p99, per_second, 0.0, failed, 0.1)


def found(*per_subject: tuple[str, Engine, Load, list[Round]]) -> Results:
    return Results([Finding(*each) for each in per_subject])


def line(table: str, beginning: str) -> str:
    return next(each for each in table.splitlines() if each.startswith(f"| {beginning}"))


# The plan


def test_the_default_plan_stays_under_an_hour() -> None:
    assert expected_seconds(entrants(), 3, BASE) < 55 * 60


def test_everybody_has_a_turn_in_every_round_in_an_order_that_the_seed_makes() -> None:
    everybody = entrants()
    first = rounds(everybody, 3, seed=7)
    assert first == rounds(everybody, 3, seed=7)
    assert first != rounds(everybody, 3, seed=8)
    for each in first:
        assert sorted(e.subject + e.engine for e in each) == sorted(
            e.subject + e.engine for e in everybody
        )
    assert first[0] != first[1]


def test_what_is_in_flight_comes_round_while_a_load_is_warmed_up_and_while_it_is_measured() -> None:
    told = timing(Engine.REAL, Load(MANY, 16), BASE)
    assert told.warm_up_seconds == told.seconds == pytest.approx(16 * 16 / 60)
    assert timing(Engine.REAL, Load(1, 1), BASE) == BASE


def test_an_overload_is_measured_once_queues_are_as_long_as_they_get() -> None:
    assert timing(Engine.REAL, Load(times=4.0), BASE).warm_up_seconds >= 2 * DEADLINE_SECONDS
    assert timing(Engine.REAL, Load(times=0.8), BASE) == BASE


def test_a_floor_is_asked_for_one_text_under_closed_loads_alone() -> None:
    floor = Entrant("bare", Engine.SIMULATED, 1.0, floor=True)
    assert not floor.open
    assert {load.texts for load in floor.closed} == {1}
    assert len(Entrant("a", Engine.SIMULATED, 1.0).open) == len(TIMES)


@pytest.mark.slow
def test_what_a_peer_started_ends_with_it_though_it_is_left_behind(tmp_path: Path) -> None:
    port = free_port()
    script = (
        "import subprocess, sys, http.server as h\n"
        "print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
        "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()"
    )
    with started(
        [sys.executable, "-c", script, str(port)],
        environment={},
        folder=tmp_path / "peer",
        cores=sorted(os.sched_getaffinity(0)),
        ready=f"http://127.0.0.1:{port}/",
    ) as pid:
        log = (tmp_path / "peer" / "log.txt").read_text(encoding="utf-8")
        left = int(log.splitlines()[0])
        assert psutil.pid_exists(left)
    assert not psutil.pid_exists(pid)
    # It may wait for somebody to take its exit status, and for the processor before that.
    until = time.monotonic() + 30
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)


# The answers


def test_the_same_vectors_in_another_length_are_the_same_answer() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 16))
    likeness = comparison.compare(vectors, 3 * vectors)
    assert likeness.least_cosine == pytest.approx(1)
    assert likeness.overlap == 1
    assert likeness.right


def test_vectors_in_another_order_are_wrong_answers() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 16))
    likeness = comparison.compare(vectors, vectors[::-1])
    assert not likeness.right


def test_one_wrong_vector_is_enough() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 16))
    broken = vectors.copy()
    broken[7] = -broken[7]
    assert not comparison.compare(vectors, broken).right


@pytest.mark.parametrize("broken", [np.zeros((4, 3)), np.full((4, 3), np.nan), np.ones((3, 3))])
def test_what_is_no_vector_of_each_text_is_refused(broken: comparison.Vectors) -> None:
    with pytest.raises(ValueError, match="vector"):
        comparison.compare(np.ones((4, 3)), broken)


# The tables


def test_a_cell_holds_the_median_the_spread_and_what_failed() -> None:
    load = Load(1, 2)
    results = found(("mosec", Engine.REAL, load, [of(90), of(110, p99=30), of(100, failed=3)]))
    row = line(tables(results, {})["peers-real-one"], "mosec")
    assert "100 (90 to 110); 10 ms; **3 failed**" in row
    many = found(("mosec", Engine.REAL, Load(MANY, 2), [of(10)]))
    assert "| 160; 10 ms |" in line(tables(many, {})["peers-real-many"], "mosec")


def test_who_failed_stands_in_the_table_with_the_reason() -> None:
    results = Results(failures=[Failure("mosec", Engine.REAL, 0, "no wheel | for this machine")])
    row = line(tables(results, {})["peers-real-one"], "mosec")
    assert "not run: no wheel / for this machine" in row
    assert row.count("|") == 7
    assert "mosec on the real engine was out from round 1 on" in tables(results, {})["peers-who"]


def test_goodput_is_set_beside_the_peak_of_its_own_round() -> None:
    results = found(
        (HEADRACE, Engine.REAL, Load(1, 2), [of(100), of(50)]),
        (HEADRACE, Engine.REAL, Load(1, 16), [of(80), of(60)]),
        (HEADRACE, Engine.REAL, Load(times=4.0), [of(100, 90), of(60, 54)]),
    )
    made = tables(results, {})
    assert "72 (54 to 90); 0.90" in line(made["peers-real-open"], HEADRACE)


def test_goals_are_ratios_within_a_round_and_unfavourable_ones_are_shown() -> None:
    load = Load(1, 128)
    results = found(
        (HEADRACE, Engine.SIMULATED, load, [of(300), of(100)]),
        (ENSEMBLE, Engine.SIMULATED, load, [of(100), of(200)]),
        (HEADRACE, Engine.SIMULATED, Load(1, 1), [of(1), of(1)]),
        (ENSEMBLE, Engine.SIMULATED, Load(1, 1), [of(1), of(1)]),
    )
    goals = tables(results, {})["peers-goals"]
    assert "| ≥ 6 | 1.75 (0.50 to 3.00) |" in line(goals, "one text a request")
    assert "not run" in line(goals, "2 callers")


def test_the_likeness_of_answers_stands_beside_who_gave_them() -> None:
    results = Results(answers=[Answers("mosec", 0.98765, 0.9637, 0.934)])
    row = line(tables(results, {"mosec": "0.9.8"})["peers-who"], "mosec")
    assert "| 0.9.8 |" in row
    assert "| 0.9877 / 0.9637 | 93.4 % |" in row


def test_results_come_back_from_json_as_they_were() -> None:
    nothing = Round(0.0, 0.0, math.nan, math.nan, 9.0, 9.0, 0, 0.0)
    results = found(("mosec", Engine.REAL, Load(times=0.5), [of(1.5), nothing]))
    results.failures.append(Failure("BentoML", Engine.REAL, 1, "gone"))
    results.answers.append(Answers("mosec", 1.0, 1.0, 1.0))
    results.alone["1"] = [60.0]
    plain = json.loads(json.dumps(results.plain(), allow_nan=False))
    back = findings.read(plain)
    assert repr(back) == repr(results)


def test_the_document_has_a_place_for_every_table() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    written = studies.written(document, tables(Results(), {}), "measured")
    assert "not run" in written


def test_the_document_shows_the_results_that_are_kept() -> None:
    path = ROOT / "bench" / "results" / "peers.json"
    if not path.exists():
        pytest.skip("the race has not been run")
    kept = json.loads(path.read_text(encoding="utf-8"))
    document = DOCUMENT.read_text(encoding="utf-8")
    made = tables(findings.read(kept["results"]), kept["versions"])
    assert studies.written(document, made, "measured") == document


@pytest.mark.slow
def test_a_picture_is_drawn_for_each_engine_that_was_raced_on(tmp_path: Path) -> None:
    results = found((HEADRACE, Engine.REAL, Load(1, 2), [of(100)]))
    (path,) = draw(results, tmp_path)
    assert path.name == "peers-real.svg"
    assert "Headrace" in path.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("least", [0.3, 4.0, 700.0])
def test_the_axis_of_p99_holds_all_points_and_little_else(least: float) -> None:
    late = [least, 3 * least, 40 * least]
    results = found(
        *((HEADRACE, Engine.REAL, Load(1, callers), [of(100, p99=p99)])
          for callers, p99 in zip((1, 2, 16), late, strict=True)),
        ("mosec", Engine.REAL, Load(1, 64), [of(0, p99=math.nan)]),
    )  # fmt: skip
    rate, p99, _ = picture(results, Engine.REAL).axes
    assert p99.get_yscale() == "log"
    bottom, top = p99.get_ylim()
    assert late[0] / 10 < bottom < late[0]
    assert late[-1] < top < 10 * late[-1]
    assert rate.get_ylim()[0] == 0


def test_every_peer_has_a_lock_and_its_version_is_known() -> None:
    known = versions()
    assert set(known) == {each.name for each in SUBJECTS if each.lock is not None}
    assert all(known.values())


# Whose processor time a request takes


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("python -P -m gateway.main --http-port=1", shares.GATEWAY),
        ("python -P -m bench.peers.servers.sixty_lines 1 2", shares.GATEWAY),
        ("/a/tritonserver/bin/tritonserver --model-repository=/m", shares.TRITON),
        ("/a/tritonserver/backends/python/triton_python_backend_stub /m/minilm-v1/1/model.py x",
         shares.ENGINE),
        ("/a/tritonserver/backends/python/triton_python_backend_stub /m/tokenizer/1/model.py x",
         shares.TOKENISER),
        ("java -Xmx256m -cp libs kafka.Kafka server.properties", shares.KAFKA),
        ("python -P -m registry.loader_main", shares.REST),
    ],
)  # fmt: skip
def test_a_process_is_known_by_its_command_line(command: str, role: str) -> None:
    assert shares.role_of(command) == role


@pytest.mark.slow
def test_the_meter_counts_processes_below_this_one_and_those_that_have_ended() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass\n"
    meter = shares.Meter()
    assert meter.a_request(0) == {}
    subprocess.run([sys.executable, "-c", spin], check=True)
    wait = f"{spin}print(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", wait, "gateway.main"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = meter.a_request(100)
        process.communicate(b"\n")
    assert found[shares.GENERATOR] >= 2900  # microseconds of a hundredth of 0.3 s
    assert found[shares.GATEWAY] >= 2900


def test_shares_of_the_core_and_what_no_process_took_add_up_to_the_time_of_a_request() -> None:
    taken = {
        shares.ENGINE: 3000.0, shares.GATEWAY: 500.0, shares.GENERATOR: 70.0,
        shares.COMPUTES: 3100.0,
    }  # fmt: skip
    rounds_ = [replace(of(250), processor=taken), replace(of(200), processor=taken)]
    results = found((HEADRACE, Engine.REAL, Load(1, 64), rounds_))
    results.alone = {"1": [290.0], "4": [310.0]}
    made = shares_table(results)
    cells = [each.strip() for each in line(made["peers-shares"], HEADRACE).split("|")[2:-1]]
    # requests/s, p50 and p99, time of a request, five roles, nobody's, computing, other core
    assert cells == [
        "225", "5; 10", "4,444", "3,000", "-", "500", "-", "-", "1,000", "3,100", "70, -",
    ]  # fmt: skip
    assert "| 4 | 310 | 3,226 |" in made["peers-alone"]


def test_where_shares_are_asked_for_only_their_loads_are_made() -> None:
    chosen = entrants(shares=True)
    assert {each.subject for each in chosen} == set(SHARING)
    for each in chosen:
        assert each.closed == SHARES[each.engine]
        assert each.open == ()
        assert each.starts == 1


def test_the_document_shows_the_shares_that_are_kept() -> None:
    kept = json.loads((ROOT / "bench" / "results" / "shares.json").read_text(encoding="utf-8"))
    document = DOCUMENT.read_text(encoding="utf-8")
    made = shares_table(findings.read(kept["results"]))
    assert studies.written(document, made, "measured") == document

"""The measurement of a gateway's core: parts that are there, a table that adds up, answers."""

from pathlib import Path

import pytest

from bench import compiled
from bench.core.__main__ import THIS, Chunk, candidates, table
from bench.core.parts import PARTS, REST, part_of
from bench.core.subject import LOADS, Subject

ROOT = Path(__file__).resolve().parents[2]
OURS = ("gateway/", "preprocess/", "contracts/")


def test_every_file_and_function_that_a_part_names_is_there() -> None:
    places = [place for part in PARTS.values() for place in part if place.startswith(OURS)]
    assert len(places) > 20
    for place in places:
        file, _, function = place.partition(":")
        assert (ROOT / file).exists(), place
        assert f"def {function}" in (ROOT / file).read_text() if function else True, place


@pytest.mark.parametrize(
    ("path", "function", "part"),
    [
        ("/a/gateway/http/messages.py", "head_of", "HTTP: connection, parser, answer"),
        ("/a/gateway/http/messages.py", "decode", "JSON"),
        ("/a/gateway/app.py", "answer_post", "route, context, dialect"),
        ("/a/gateway/app.py", "_send", "HTTP: connection, parser, answer"),
        ("/a/gateway/batching/jobs.py", "fill", "batcher"),
        ("/a/site-packages/uvicorn/protocols/http/h.py", "x", "HTTP: connection, parser, answer"),
        ("/a/lib/asyncio/locks.py", "wait", None),
        ("/a/bench/core/subject.py", "turn", None),
    ],
)
def test_a_function_belongs_to_the_part_that_names_it_most_closely(
    path: str, function: str, part: str | None
) -> None:
    assert part_of(path, function) == part


def test_the_parts_and_other_threads_add_up_to_all() -> None:
    parts = dict.fromkeys(PARTS, 0.9 / len(PARTS)) | {REST: 0.1}
    chunk = Chunk(turns=[8e-5, 1e-4, 12e-5], loop=8e-5, blocks=40, collections=3, parts=parts)
    lines = table([{load.name: chunk for load in LOADS}]).splitlines()
    figures = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in lines[2:]}
    assert figures["**all**"] == "100.0"
    assert figures["other threads"] == "20.0"
    assert figures[REST] == "8.0"
    summed = sum(float(figures[part]) for part in (*PARTS, REST)) + 20
    assert summed == pytest.approx(100, abs=0.1 * len(PARTS))


def test_another_python_runs_this_checkout_and_what_it_compiles_itself() -> None:
    other, folder = Path("/other/python"), Path("/a/checkout")
    built: list[Path] = []

    def build(python: Path) -> Path:
        built.append(python)
        return Path(f"/built/{len(built)}")

    made = candidates([folder], [other], build)
    assert [(each.folder, each.python) for each in made] == [
        (None, THIS.python),
        (folder, THIS.python),
        (Path("/built/1"), THIS.python),
        (compiled.ROOT, other),
        (Path("/built/2"), other),
    ]
    assert built == [THIS.python, other]
    assert len({each.name for each in made}) == len(made)
    assert candidates([], [other])[1:] == [made[3]]


@pytest.mark.slow
async def test_the_gateway_answers_its_callers_and_its_time_is_counted(tmp_path: Path) -> None:
    subject = Subject(tmp_path, None)
    await subject.start()
    callers = subject.callers(LOADS[-1])
    for _ in range(3):
        cost = await callers.turn()
        assert 0 < cost.loop_seconds <= cost.seconds
    assert await subject.blocks_a_request(callers, LOADS[-1]) > 0
    callers.close()
    await subject.stop()

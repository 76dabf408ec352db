"""What runs in the process of a tokeniser."""

import hashlib
import io
import resource
from pathlib import Path

import pytest
from gateway_world import manifest_of, tokenizer_json

from preprocess.tokeniser_process.messages import Encode, Open, framed
from preprocess.tokeniser_process.serving import own_bytes, serve

ROLLUP = """5581-7ffe ---p 00000000 00:00 0 [rollup]
Rss:               40000 kB
Shared_Clean:      10000 kB
Private_Clean:       200 kB
Private_Dirty:      1000 kB
"""
SMAPS = ROLLUP + ROLLUP


@pytest.fixture
def words(tmp_path: Path) -> Open:
    """A tokeniser on the disk."""
    manifest, content = manifest_of(), tokenizer_json()
    (tmp_path / "tokenizer.json").write_bytes(content)
    return Open(
        path=str(tmp_path / "tokenizer.json"),
        sha256=hashlib.sha256(content).hexdigest(),
        task=manifest.task.value,
        spec=manifest.tokenizer.model_dump_json(),
    )


def test_memory_is_what_is_shared_with_no_other(tmp_path: Path) -> None:
    (tmp_path / "smaps_rollup").write_text(ROLLUP)
    (tmp_path / "smaps").write_text(SMAPS)
    assert own_bytes(tmp_path) == 1200 * 1024


@pytest.mark.parametrize("files", [{"smaps": SMAPS}, {"smaps": SMAPS, "smaps_rollup": ""}])
def test_a_kernel_that_does_not_add_up_is_added_up_for(
    tmp_path: Path, files: dict[str, str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert own_bytes(tmp_path) == 2400 * 1024


def test_where_nobody_says_what_is_shared_everything_counts(tmp_path: Path) -> None:
    assert own_bytes(tmp_path) > 1_000_000  # without /proc: this process at its largest
    (tmp_path / "statm").write_text("90000 4000 1000 1 0 5000 0")
    assert own_bytes(tmp_path) == 4000 * resource.getpagesize()


def test_the_kernel_ends_a_process_that_is_at_one_thing_for_ever(tmp_path: Path) -> None:
    """The library holds the interpreter's lock: nothing in the process could."""
    set_to: list[int] = []
    first = framed(Open(path=str(tmp_path / "away"), sha256="", task="embedding", spec="{}"))
    serve(io.BytesIO(first), io.BytesIO(), lambda: 0, set_to.append)
    assert set_to == [90], "it ends after it has said why it can't be opened"


def test_a_process_that_waits_for_a_question_waits_for_as_long_as_it_takes(
    tmp_path: Path, words: Open
) -> None:
    set_to: list[int] = []
    asked = framed(words) + framed(Encode(["w1"])) + framed(Encode(["w2"]))
    serve(io.BytesIO(asked), io.BytesIO(), lambda: 0, set_to.append)
    assert set_to == [90, 0] * 3

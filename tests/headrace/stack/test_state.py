import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import BrokenHomeError, HomeInUseError
from headrace.stack import state
from headrace.stack.state import Home, StackRecord, claim_home


def make(root: Path) -> Home:
    with claim_home(root) as home:
        return home


def record() -> StackRecord:
    return StackRecord(
        pid=os.getpid(),
        started_at=1.0,
        gateway_url="http://127.0.0.1:1",
        gateway_grpc="127.0.0.1:2",
        mlflow_url="http://127.0.0.1:3",
        kafka_bootstrap="127.0.0.1:4",
        triton_grpc="127.0.0.1:5",
        services={"gateway": 1},
    )


def test_an_empty_folder_becomes_a_home_and_a_home_opens_again(tmp_path: Path) -> None:
    home = make(tmp_path / "home")
    assert home.endpoints.is_dir()
    assert home.repository_of("triton").is_dir()
    assert make(tmp_path / "home").root == home.root


def test_a_home_whose_making_was_cut_short_is_completed(tmp_path: Path) -> None:
    home = make(tmp_path / "home")
    shutil.rmtree(home.endpoints)
    assert make(tmp_path / "home").endpoints.is_dir()


def test_a_home_whose_name_has_a_hash_opens_again_and_leaves_nothing_beside_it(
    tmp_path: Path,
) -> None:
    home = make(tmp_path / "c#" / "home")
    with closing(sqlite3.connect(home.mlflow / "mlflow.db")) as database:
        database.execute("create table half (made)")
    with pytest.raises(BrokenHomeError, match="half-written"):
        make(home.root)
    assert [path.name for path in tmp_path.iterdir()] == ["c#"]


def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BrokenHomeError, match="not a Headrace home"):
        make(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_place_of_the_home_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(BrokenHomeError, match="is a file"):
        make(tmp_path / "home")


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        *(
            ("headrace-home.json", content, "damaged")
            for content in ("", "{", '{"layout"', "[]", "{}")
        ),
        ("headrace-home.json", '{"layout": 99}', "layout 99"),
        ("endpoints/sentiment.json", "", r"sentiment\.json"),
        ("endpoints/sentiment.json", '{"apiVersion": "headrace.dev/v1alpha1", "ki', "sentiment"),
    ],
)
def test_a_file_that_is_damaged_or_of_another_version_is_a_sentence(
    tmp_path: Path, file: str, content: str, sentence: str
) -> None:
    home = make(tmp_path / "home")
    assert (home.root / file).parent.is_dir()
    (home.root / file).write_text(content)
    with pytest.raises(BrokenHomeError, match=sentence):
        make(home.root)


def test_a_database_that_is_none_is_named(tmp_path: Path) -> None:
    home = make(tmp_path / "home")
    (home.mlflow / "mlflow.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(BrokenHomeError, match=r"mlflow\.db"):
        make(home.root)


def test_a_database_whose_first_migration_was_cut_short_is_named(tmp_path: Path) -> None:
    home = make(tmp_path / "home")
    with closing(sqlite3.connect(home.mlflow / "mlflow.db")) as database:
        database.execute("create table experiments (id integer)")
        database.commit()
    with pytest.raises(BrokenHomeError, match="half-written"):
        make(home.root)


def test_a_second_owner_is_refused_with_the_first_ones_process_id(tmp_path: Path) -> None:
    with claim_home(tmp_path / "home"), pytest.raises(HomeInUseError, match=str(os.getpid())):
        make(tmp_path / "home")


def test_a_killed_owner_leaves_the_home_free(tmp_path: Path) -> None:
    make(tmp_path / "home")
    program = (
        "import pathlib, sys, signal, os\n"
        "from headrace.stack.state import claimed\n"
        "with claimed(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = str(tmp_path / "home")
    subprocess.run([sys.executable, "-P", "-c", program, root], check=False, timeout=60)
    make(tmp_path / "home")


def test_the_record_is_read_only_while_the_stack_runs(tmp_path: Path) -> None:
    with claim_home(tmp_path / "home") as home:
        assert state.read_record(home) is None
        state.write_record(home, record())
        assert state.read_record(home) == record()
    assert state.read_record(home) is None


def test_a_record_that_cannot_be_written_is_said_to_be_and_can_be_later(tmp_path: Path) -> None:
    with claim_home(tmp_path / "home") as home:
        home.stack_file.mkdir()  # stands for whatever keeps a file from being written
        assert not state.wrote_record(home, record())
        home.stack_file.rmdir()
        assert state.wrote_record(home, record())
        assert state.read_record(home) == record()


def test_a_record_that_can_not_be_read_counts_as_none(tmp_path: Path) -> None:
    with claim_home(tmp_path / "home") as home:
        home.stack_file.write_text('{"pid": 1')
        assert state.read_record(home) is None


def test_reports_of_loaders_that_the_stack_no_longer_has_are_forgotten(tmp_path: Path) -> None:
    with claim_home(tmp_path / "home") as home:
        for name in ("local", "local-2", "local-3"):
            (home.reports / f"{name}.json").write_text("{}")
        state.forget_other_loaders(home, {"local", "local-2"})
        assert sorted(path.stem for path in home.reports.iterdir()) == ["local", "local-2"]

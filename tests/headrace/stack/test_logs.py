"""Logs stay bounded under writers that never reopen them."""

from pathlib import Path

from headrace.stack import logs


def test_a_log_past_its_limit_moves_aside_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"old" * 10)
        logs.bound(log, 29)
        writer.write(b"new")
    assert log.read_bytes() == b"new"
    assert (tmp_path / "service.log.1").read_bytes() == b"old" * 10


def test_a_short_log_and_a_missing_one_stay_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    logs.bound(log, 10)
    log.write_bytes(b"short")
    logs.bound(log, 10)
    assert log.read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [log]

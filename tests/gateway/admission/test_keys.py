"""Who may ask what, and what becomes of keys when their file changes, breaks or goes away."""

import json
import logging
import stat
from pathlib import Path

import pytest

from gateway.admission.keys import KeyFileError, KeyRing, append, digest, issue, new_key, parse
from gateway.errors import ForbiddenError, UnauthenticatedError


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_without_a_file_anybody_may_ask() -> None:
    ring = KeyRing("")
    assert ring.authorise(None, "sentiment") is None
    assert ring.authorise("whatever", "sentiment") is None


def test_a_key_opens_its_endpoints_and_no_others(file: Path) -> None:
    key, record = issue("team", ["sentiment"])
    append(file, record)
    ring = KeyRing(file)
    assert ring.authorise(key, "sentiment") == "team"
    with pytest.raises(ForbiddenError, match="'team' is not for 'other'"):
        ring.authorise(key, "other")


@pytest.mark.parametrize("presented", [None, "", "hr_wrong", "\ud800", "x" * 100_000])
def test_no_key_and_unknown_keys_are_refused(file: Path, presented: str | None) -> None:
    append(file, issue("team")[1])
    with pytest.raises(UnauthenticatedError):
        KeyRing(file).authorise(presented, "sentiment")


def test_a_star_opens_every_endpoint(file: Path) -> None:
    key, record = issue("team", requests_per_second=2.5)
    append(file, record)
    ring = KeyRing(file)
    assert ring.authorise(key, "anything") == "team"
    assert ring.own_limit("team") == 2.5
    assert ring.own_limit("nobody") is None


def test_the_file_holds_no_key_and_is_its_owners_alone(file: Path) -> None:
    key, record = issue("team")
    append(file, record)
    assert key not in file.read_text()
    assert record.sha256 == digest(key)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_new_key_works_within_a_second_and_a_removed_one_ends(file: Path, clock: Clock) -> None:
    first, record = issue("first")
    append(file, record)
    ring = KeyRing(file, clock=clock)
    second, record = issue("second")
    append(file, record)
    clock.now = 1.0
    assert ring.authorise(second, "x") == "second"
    file.write_text(record.model_dump_json(by_alias=True))
    clock.now = 2.0
    with pytest.raises(UnauthenticatedError):
        ring.authorise(first, "x")


def test_a_broken_or_missing_file_keeps_the_old_keys_and_is_logged_once(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    key, record = issue("team")
    append(file, record)
    good = file.read_text()
    ring = KeyRing(file, clock=clock)
    file.write_text(good + '{"name": "half')
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.now += 1.0
            assert ring.authorise(key, "x") == "team"
    assert len(caplog.records) == 1
    file.unlink()
    clock.now += 1.0
    assert ring.authorise(key, "x") == "team"
    file.write_text(good)
    other, record = issue("other")
    append(file, record)
    clock.now += 1.0
    assert ring.authorise(other, "x") == "other"


def test_a_file_that_was_never_there_lets_nobody_in_until_it_comes(
    file: Path, clock: Clock
) -> None:
    ring = KeyRing(file, clock=clock)
    with pytest.raises(UnauthenticatedError):
        ring.authorise("hr_x", "sentiment")
    key, record = issue("team")
    append(file, record)
    clock.now = 1.0
    assert ring.authorise(key, "sentiment") == "team"


def test_the_file_is_looked_at_once_a_second_at_most(file: Path, clock: Clock) -> None:
    append(file, issue("first")[1])
    ring = KeyRing(file, clock=clock)
    second, record = issue("second")
    append(file, record)
    clock.now = 0.5
    with pytest.raises(UnauthenticatedError):
        ring.authorise(second, "x")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "line 2: the line"),
        ('{"name": "x"}', "line 2: sha256"),
        ('{"name": "", "sha256": "%s"}' % ("0" * 64), "line 2: name"),
        ('{"name": "x", "sha256": "%s", "requestsPerSecond": 0}' % ("0" * 64), "requestsPerSecond"),
        ('{"name": "x", "sha256": "%s", "scopes": []}' % ("0" * 64), "scopes"),
        ('{"name": "team", "sha256": "%s"}' % ("0" * 64), "earlier line"),
    ],
)
def test_a_broken_line_is_named_and_not_shown(line: str, reason: str) -> None:
    good = json.dumps({"name": "team", "sha256": "f" * 64})
    with pytest.raises(KeyFileError, match=reason) as broken:
        parse(f"{good}\n{line}")
    assert "0" * 64 not in str(broken.value)


def test_comments_and_empty_lines_are_passed_over() -> None:
    assert parse("# keys of the team\n\n   \n") == []


def test_a_name_is_given_once_and_a_broken_file_is_not_added_to(file: Path) -> None:
    append(file, issue("team")[1])
    with pytest.raises(KeyFileError, match="has a key named 'team' already"):
        append(file, issue("team")[1])
    file.write_text("nonsense")
    with pytest.raises(KeyFileError):
        append(file, issue("other")[1])
    assert file.read_text() == "nonsense"


def test_a_file_without_a_last_newline_is_added_to_on_a_line_of_its_own(file: Path) -> None:
    file.write_text(issue("first")[1].model_dump_json(by_alias=True))
    append(file, issue("second")[1])
    assert [record.name for record in parse(file.read_text())] == ["first", "second"]


def test_keys_are_long_random_and_recognisable() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith("hr_") and len(key) >= 43 for key in keys)

"""Who may ask what, and what becomes of keys when their file changes, breaks or goes away."""

import json
import logging
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.admission.key_file import (
    Grant,
    KeyFileError,
    append,
    digest,
    issue,
    new_key,
    parse,
    revoke,
    rotate,
)
from gateway.admission.keys import KeyRing
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


def test_a_key_that_opens_anything_is_recognised_before_it_is_known_what_is_asked(
    file: Path,
) -> None:
    KeyRing("").recognise(None)
    key, record = issue("ann", Grant(endpoints=("sentiment",)))
    append(file, record)
    ring = KeyRing(file)
    ring.recognise(key)
    for other in (None, "", new_key()):
        with pytest.raises(UnauthenticatedError):
            ring.recognise(other)


def test_work_that_was_left_here_is_done_by_any_valid_key_of_the_name(
    file: Path, clock: Clock
) -> None:
    assert KeyRing("").authorise_named(None, "sentiment") is None
    _, record = issue("ann", Grant(endpoints=("sentiment",)))
    append(file, record)
    ring = KeyRing(file, clock=clock)
    assert ring.authorise_named("ann", "sentiment") == "ann"
    with pytest.raises(ForbiddenError, match="not for 'minilm'"):
        ring.authorise_named("ann", "minilm")
    for name in ("bob", None):
        with pytest.raises(UnauthenticatedError, match="valid any more"):
            ring.authorise_named(name, "sentiment")
    revoke(file, "ann")
    clock.now += 2
    with pytest.raises(UnauthenticatedError, match="valid any more"):
        ring.authorise_named("ann", "sentiment")


def test_without_a_file_anybody_may_ask() -> None:
    ring = KeyRing("")
    assert ring.authorise(None, "sentiment") is None
    assert ring.authorise("whatever", "sentiment") is None


def test_a_key_opens_its_endpoints_and_no_others(file: Path) -> None:
    key, record = issue("team", Grant(("sentiment",)))
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
    key, record = issue("team", Grant(requests_per_second=2.5))
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


def test_a_missing_file_keeps_the_old_keys_and_is_logged_once(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    key, record = issue("team")
    append(file, record)
    good = file.read_text()
    ring = KeyRing(file, clock=clock)
    file.unlink()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.now += 1.0
            assert ring.authorise(key, "x") == "team"
    assert len(caplog.records) == 1
    file.write_text(good)
    other, record = issue("other")
    append(file, record)
    clock.now += 1.0
    assert ring.authorise(other, "x") == "other"


@pytest.mark.parametrize("line", ['{"name": "half', "[]", '{"name": "x", "expires": "soon"}'])
def test_a_broken_line_keeps_no_revoked_key_alive(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    (stays, kept), (revoked, gone) = issue("stays"), issue("revoked")
    append(file, kept)
    append(file, gone)
    ring = KeyRing(file, clock=clock)
    assert ring.authorise(revoked, "x") == "revoked"
    file.write_text(f"{line}\n{kept.model_dump_json(by_alias=True)}\n")
    clock.now = 1.0
    with caplog.at_level(logging.ERROR), pytest.raises(UnauthenticatedError):
        ring.authorise(revoked, "x")
    assert ring.authorise(stays, "x") == "stays"
    assert ring.broken_lines == 1
    (logged,) = caplog.records
    assert "line 1" in str(vars(logged)["reason"])


def test_a_key_expires(file: Path) -> None:
    end = datetime(2030, 1, 1, tzinfo=UTC)
    key, record = issue("team", Grant(expires=end))
    append(file, record)
    now = Clock()
    ring = KeyRing(file, wall_clock=now)
    now.now = end.timestamp() - 0.001
    assert ring.authorise(key, "x") == "team"
    now.now = end.timestamp()
    with pytest.raises(UnauthenticatedError, match="'team' expired at 2030-01-01T00:00:00"):
        ring.authorise(key, "x")


def test_rotation_gives_another_key_the_same_rights_and_ends_the_old_one(file: Path) -> None:
    grant = Grant(("sentiment",), requests_per_second=3.0, force_version=True)
    old, record = issue("team", grant)
    append(file, record)
    file.write_text("# ours\n" + file.read_text())
    bystander, record = issue("bystander")
    append(file, record)
    begun = datetime(2030, 1, 1, tzinfo=UTC)
    new, record = rotate(file, "team", now=begun, until=begun + timedelta(hours=1))
    assert Grant(record.endpoints, record.requests_per_second, record.force_version) == grant
    assert file.read_text().startswith("# ours\n")
    now = Clock()
    ring = KeyRing(file, wall_clock=now)
    now.now = begun.timestamp()
    assert {ring.authorise(key, "sentiment") for key in (old, new)} == {"team"}
    now.now += 3600
    assert ring.authorise(new, "sentiment", forces_version=True) == "team"
    assert ring.authorise(bystander, "x") == "bystander"
    with pytest.raises(UnauthenticatedError, match="expired"):
        ring.authorise(old, "sentiment")
    # A second rotation does not lengthen the life of a key that ends.
    rotate(file, "team", now=begun, until=begun + timedelta(days=9))
    assert parse(file.read_text())[0].expires == begun + timedelta(hours=1)


def test_revocation_ends_all_keys_of_a_name_and_no_others(file: Path, clock: Clock) -> None:
    (first, record), (other, other_record) = issue("team"), issue("other")
    append(file, record)
    append(file, other_record)
    second, _ = rotate(file, "team", now=datetime.now(UTC), until=datetime(2100, 1, 1, tzinfo=UTC))
    ring = KeyRing(file, clock=clock)
    assert revoke(file, "team") == 2
    clock.now = 1.0
    for key in (first, second):
        with pytest.raises(UnauthenticatedError, match="not known"):
            ring.authorise(key, "x")
    assert ring.authorise(other, "x") == "other"
    with pytest.raises(KeyFileError, match="no key named 'team'"):
        revoke(file, "team")


@given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
@example(name="team\u2028a")
@example(name="team\u2029a")
@example(name="team\x85a")
@example(name="team\r\n# a\x0b\x0c\x1c")
def test_keys_of_every_name_open_rotate_and_are_revoked_and_bar_no_other(name: str) -> None:
    now = datetime.now(UTC)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "keys.jsonl"
        key, record = issue(name, created=now)
        append(file, record)
        other, record = issue("x" * 13)
        append(file, record)
        ring = KeyRing(file)
        assert (ring.authorise(key, "e"), ring.authorise(other, "e")) == (name, "x" * 13)
        rotate(file, name, now=now, until=now)
        assert [each.name for each in parse(file.read_text())] == [name, "x" * 13, name]
        assert revoke(file, name) == 2
        assert [each.name for each in parse(file.read_text())] == ["x" * 13]


def test_a_change_keeps_the_files_mode_and_never_shows_half_a_file(file: Path) -> None:
    append(file, issue("team")[1])
    file.chmod(0o640)
    before = file.stat().st_ino
    revoke(file, "team")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.stat().st_ino != before  # replaced as a whole
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_only_a_key_with_the_right_names_a_version(file: Path) -> None:
    (plain, record), (trusted, other) = issue("a"), issue("b", Grant(force_version=True))
    append(file, record)
    append(file, other)
    ring = KeyRing(file)
    assert ring.authorise(trusted, "x", forces_version=True) == "b"
    assert ring.authorise(plain, "x") == "a"
    with pytest.raises(ForbiddenError, match="'a' may not name a version"):
        ring.authorise(plain, "x", forces_version=True)


def test_without_keys_anybody_may_name_a_version() -> None:
    assert KeyRing("").authorise(None, "x", forces_version=True) is None


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
        ('{"name": "x", "sha256": "%s"}' % ("f" * 64), "earlier line"),
        ('{"name": "x", "sha256": "%s", "expires": "2030-01-01T00:00"}' % ("0" * 64), "expires"),
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


def test_a_refusal_does_not_repeat_all_of_a_long_name(file: Path) -> None:
    key, record = issue("ann", Grant(endpoints=("sentiment",)))
    append(file, record)
    with pytest.raises(ForbiddenError) as refused:
        KeyRing(file).authorise(key, "x" * 10**6)
    assert len(refused.value.message) < 200

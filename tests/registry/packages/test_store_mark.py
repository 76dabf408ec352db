"""One release has a package store; another is told whose it is, since when, and what to do."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from fake_mlflow import FakeMlflow, serve
from hypothesis import given, settings
from hypothesis import strategies as st
from real_object_store import BUCKET
from registry_fakes import packed

from registry.conversions.index import ConversionIndex
from registry.packages.store import PackageStore, StoreUnavailableError
from registry.packages.store_mark import (
    FACTS,
    FILE,
    RENEW_SECONDS,
    STALE_SECONDS,
    StoreMark,
    free,
    read_facts,
)
from service.steady_clock import SteadyClock

OURS, NEWER, THEIRS = b"a" * 32, b"b" * 32, b"c" * 32
HOUR, DAY = 3600.0, 86400.0


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.time = 1_790_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture(params=["file", "memory", "mlflow", pytest.param("s3", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield str(tmp_path / "store")
    elif request.param == "memory":
        yield f"memory://marks-{uuid.uuid4().hex}"
    elif request.param == "s3":
        request.getfixturevalue("object_store")
        yield f"s3://{BUCKET}/{uuid.uuid4().hex}"
    else:
        with serve(FakeMlflow(tmp_path / "artifacts")) as mlflow:
            yield f"mlflow-artifacts+{mlflow.uri}/headrace/packages"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def mark(url: str, clock: Clock, *keys: bytes, owner: str = "") -> StoreMark:
    return StoreMark(url, keys, owner=owner, now=clock)


def test_the_first_release_has_the_store_and_the_second_is_told_whose_it_is(
    url: str, clock: Clock
) -> None:
    ours = mark(url, clock, OURS, owner="the controller of team-a")
    assert ours.claim() == ""
    assert ours.claim() == ""
    clock.time += DAY
    refused = mark(url, clock, THEIRS, owner="the controller of team-b").claim()
    assert "another release" in refused
    assert "the controller of team-a" in refused
    assert "since 2026-09-21 14:13:20 UTC" in refused
    assert "1d" in refused  # since its last sign of life
    assert f"headrace packages free --store {url}" in refused
    assert FILE in refused
    assert mark(url, clock, OURS).claim() == ""
    assert PackageStore(url).packages() == PackageStore(url).leftovers() == []


def test_a_release_keeps_its_store_when_its_key_is_rotated(url: str, clock: Clock) -> None:
    mark(url, clock, OURS).claim()
    assert mark(url, clock, NEWER, OURS).claim() == ""
    assert mark(url, clock, NEWER).claim() == ""
    assert mark(url, clock, OURS).claim() != ""


def test_a_release_keeps_its_date_and_says_who_it_is_now(url: str, clock: Clock) -> None:
    mark(url, clock, OURS, owner="before").claim()
    began = clock.time
    clock.time += 40 * DAY
    mark(url, clock, NEWER, OURS, owner="after").claim()
    facts = read_facts(url)
    assert facts is not None
    assert (facts.owner, facts.since, facts.seen) == ("after", began, clock.time)


def test_a_store_of_a_release_that_long_gave_no_sign_of_life_is_taken_over(
    url: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    mark(url, clock, OURS, owner="the controller of team-a").claim()
    clock.time += STALE_SECONDS - 1.0
    assert mark(url, clock, THEIRS).claim() != ""
    clock.time += 2.0
    assert mark(url, clock, THEIRS).claim() == ""
    assert "the controller of team-a" in caplog.text
    assert mark(url, clock, OURS).claim() != ""  # it came back, and has to have another


@pytest.mark.parametrize("ahead", [40 * DAY, -40 * DAY])
def test_a_clock_that_is_wrong_for_five_minutes_gives_no_store_away(
    url: str, clock: Clock, ahead: float
) -> None:
    """By the clock that the controller has; a plain one loses the store either way."""
    of_day = Clock()
    ours, theirs = (StoreMark(url, [key], now=SteadyClock(of_day, clock)) for key in (OURS, THEIRS))
    assert ours.claim() == ""
    for wrong in (ahead, ahead, 0.0):
        clock.time += 150.0
        of_day.time = clock.time + wrong
        assert theirs.claim() != ""
        assert ours.claim() == ""
        assert mark(url, clock, THEIRS).claim() != ""  # whose clock is right


def test_a_mark_of_which_nothing_is_known_is_never_taken_over_by_its_age(
    url: str, clock: Clock
) -> None:
    """As an earlier release left it, or one that ended between two writes."""
    mark(url, clock, OURS).claim()
    files, root = fsspec.core.url_to_fs(url)
    for damage in (None, b"{", b'{"mark": "of another", "seen": 1.0}'):
        path = f"{root}/{FACTS}"
        if damage is None:
            files.rm_file(path)
        else:
            files.pipe_file(path, damage)
        clock.time += 2 * STALE_SECONDS
        assert read_facts(url) is None
        refused = mark(url, clock, THEIRS).claim()
        assert "another release of Headrace, and each" in refused
    assert mark(url, clock, OURS, owner="here").claim() == ""
    facts = read_facts(url)
    assert facts is not None
    assert facts.owner == "here"


def test_a_store_that_was_freed_is_the_next_ones(url: str, clock: Clock) -> None:
    mark(url, clock, OURS).claim()
    free(url)
    assert read_facts(url) is None
    free(url)
    assert mark(url, clock, THEIRS).claim() == ""
    assert mark(url, clock, OURS).claim() != ""


def test_a_store_that_is_away_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"no folder")
    with pytest.raises(StoreUnavailableError):
        StoreMark(str(tmp_path / "store"), [OURS]).claim()
    with pytest.raises(StoreUnavailableError):
        free("gopher://store")


@pytest.mark.parametrize("left", ["nothing", "a bare mount point"])
def test_a_folder_that_is_not_mounted_any_more_is_away_and_nothing_is_written_there(
    tmp_path: Path, clock: Clock, left: str
) -> None:
    root, mounted = tmp_path / "store", tmp_path / "elsewhere"
    ours = mark(str(root), clock, OURS)
    store = PackageStore(str(root), check_mounted=ours.check_mounted)
    index = ConversionIndex(str(root), store, (OURS,))
    manifest = packed(tmp_path / "made")
    assert index.get("options") is None
    assert ours.claim() == ""
    package = index.put("options", store.publish(tmp_path / "made", manifest))
    root.rename(mounted)
    if left == "a bare mount point":
        root.mkdir()
    asked: list[Callable[[], object]] = [
        ours.claim,
        store.packages,
        lambda: store.manifest(package.ref.package),
        lambda: store.verify(package.ref.package),
        lambda: store.publish(tmp_path / "made", manifest),
        lambda: index.get("options"),
        lambda: index.get("others"),
        lambda: index.put("options", package.ref),
    ]
    for ask in asked:
        with pytest.raises(StoreUnavailableError, match="mounted"):
            ask()
    assert list(root.rglob("*")) == []
    if root.exists():
        root.rmdir()
    mounted.rename(root)
    assert ours.claim() == ""
    assert index.get("options") == package
    assert index.get("others") is None


def test_an_object_store_that_was_emptied_is_marked_again(clock: Clock) -> None:
    url = f"memory://marks-{uuid.uuid4().hex}"
    ours = mark(url, clock, OURS)
    assert ours.claim() == ""
    free(url)
    assert ours.claim() == ""
    assert read_facts(url) is not None


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.sampled_from(["file", "memory"]),
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2]),
            st.sampled_from(["claim", "claim", "claim", "free", "stop"]),
            st.sampled_from([0.0, RENEW_SECONDS, DAY, STALE_SECONDS + 1.0]),
        ),
        max_size=25,
    ),
)
def test_no_two_releases_that_give_signs_of_life_have_one_store(
    tmp_path_factory: pytest.TempPathFactory, kind: str, steps: list[tuple[int, str, float]]
) -> None:
    """Each that runs renews its mark, and ends once another has the store."""
    name = uuid.uuid4().hex
    folder = tmp_path_factory.mktemp("marks") / name
    url, clock = str(folder) if kind == "file" else f"memory://{name}", Clock()
    keys = [OURS, NEWER, THEIRS]
    running: set[int] = set()

    def renew() -> None:
        for each in sorted(running):
            if mark(url, clock, keys[each]).claim():
                running.discard(each)

    for who, what, seconds in steps:
        days = int(seconds // DAY) if running else 0
        for _ in range(days):  # more seldom than it renews: soon enough all the same
            clock.time += DAY
            renew()
        clock.time += seconds - days * DAY
        if what == "stop":
            running.discard(who)
        elif what == "free":
            free(url)
        else:
            others = running - {who}
            freed = read_facts(url) is None
            if mark(url, clock, keys[who]).claim() == "":
                assert not others or freed  # only a command takes it from one that lives
                running.add(who)
            else:
                running.discard(who)
            renew()
        assert len(running) <= 1

"""What the evaluate role holds follows from the log; what is gone from an endpoint ends."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from merged_windows import all_endpoints, all_windows
from prediction_batches import batches_of, record_of
from registry_fakes import endpoint, manifest, ref

from contracts.endpoint import Arm, EndpointStatus, ModelEndpoint, Route
from contracts.manifest import TOKENIZER, DataSet, Lineage, Manifest, PackageFile
from contracts.profile import ReferenceProfile
from contracts.statistics import EDGES, Statistic
from contracts.windows import RANGE_MESSAGES, WindowAggregate, WindowRecord
from measures.merging import MergedWindows
from stats.evaluation.drift import DriftSettings
from stats.evaluation.evaluation import Evaluation, WindowTiming
from stats.evaluation.references import StoredPackage
from stats.evaluation.totals import ArmKey, SeriesLimits

NOW = 1_000_100.0
STABLE, CANARY = ref("1", "a"), ref("2", "b")
DRIFT = DriftSettings(window_seconds=10, window_texts=100, calibration_seconds=1000)


EMPTY = [0] * len(EDGES[Statistic.TOKENS].upper)


def manifest_of(labels: tuple[str, ...] = ("bad", "good"), run_id: str = "") -> Manifest:
    """Of a version whose texts had two or three tokens."""
    profile = ReferenceProfile(
        texts=2000,
        source="reviews",
        histograms={Statistic.TOKENS: (0, 0, 1000, 1000, *EMPTY[3:])},
        labels=dict.fromkeys(labels, 1000),
    )
    lineage = Lineage(
        registered_model="m", version="1", run_id=run_id, data_sets=(DataSet(name="reviews"),)
    )
    return manifest(labels=labels).model_copy(update={"profile": profile, "lineage": lineage})


class Shelf:
    """References that a test fills."""

    def __init__(self, **known: StoredPackage) -> None:
        self.known = known

    def of(self, package: str) -> StoredPackage | None:
        return self.known.get(package)


def evaluation(shelf: Shelf | None = None) -> Evaluation:
    return Evaluation(shelf or Shelf(), DRIFT, WindowTiming(keep_seconds=600))


def record(
    aggregates: Sequence[WindowAggregate] = (),
    *,
    start: int = 0,
    end: int = 1,
    through: float = NOW,
) -> WindowRecord:
    return WindowRecord(
        "t", 0, start, start + end, 0.0, 0, through=through, aggregates=list(aggregates)
    )


def aggregate(start: int, texts: int, version: str = "1", package: str = "a") -> WindowAggregate:
    made = WindowAggregate("e", version, package * 64, Arm.STABLE, start, statuses={200: texts})
    made.texts, made.labels = texts, {"good": texts}
    made.histograms = {"tokens": {3: texts}}
    return made


def routed(*routes: Route) -> ModelEndpoint:
    return endpoint(EndpointStatus(routes=routes))


ON = routed(Route(arm=Arm.STABLE, ref=STABLE, weight=100))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_board_holds_the_merged_windows(seed: int) -> None:
    one, windows = evaluation(), MergedWindows()
    for number in range(3):
        batches = batches_of(seed + number, 3, events=4)
        first = number * RANGE_MESSAGES
        told = record_of(batches, partition=number % 2, start=first, through=NOW)
        one.take([told], NOW)
        windows.put(told)
    one.begin(NOW)
    board = one.look([], NOW + 100, connected=True)
    assert board.endpoints() == all_endpoints(windows)
    for name in board.endpoints():
        wanted: dict[tuple[object, ...], WindowAggregate] = {}
        for window in all_windows(windows, name):
            for item in window.aggregates:
                wanted[item.version, item.package, item.arm, item.start] = item
        shown = [window.aggregate() for series in board.series(name) for window in series.windows]
        assert len(shown) == len(wanted)
        for item in shown:
            other = wanted[item.version, item.package, item.arm, item.start]
            assert (item.statuses, item.histograms) == (other.statuses, other.histograms)
            assert item.latency == other.latency


def test_a_window_is_shown_once_all_partitions_are_folded_or_it_waited_too_long() -> None:
    one = evaluation()
    one.begin(NOW)
    one.take([record([aggregate(1_000_080, 5)], through=1_000_092.0)], NOW)
    assert one.look([], NOW, connected=True).series("e")[0].windows == ()
    one.take([record([aggregate(1_000_080, 5)], end=2, through=1_000_095.0)], NOW)
    assert len(one.look([], NOW, connected=True).series("e")[0].windows) == 1
    late = evaluation()
    late.begin(NOW)
    late.take([record([aggregate(1_000_080, 5)], through=1_000_092.0)], NOW)
    assert len(late.look([], NOW + 60, connected=True).series("e")[0].windows) == 1


def test_nothing_is_closed_while_the_past_is_read() -> None:
    one = evaluation()
    one.take([record([aggregate(1_000_000, 5)])], NOW)
    assert one.look([], NOW, connected=True).since == 0
    one.begin(NOW)
    assert len(one.look([], NOW + 60, connected=True).series("e")[0].windows) == 1


def test_an_arm_that_is_routed_to_is_shown_at_zero_with_the_labels_of_its_model() -> None:
    one = evaluation(Shelf(**{STABLE.package: StoredPackage(manifest_of(labels=("bad", "good")))}))
    one.begin(NOW)
    one.look([ON], NOW, connected=True)
    key = ArmKey("e", "1", Arm.STABLE)
    assert one.arms(NOW) == (key,)
    assert one.totals.arms[key].labels == {"bad": 0, "good": 0}
    assert one.refusals(NOW)["e"]["503 overloaded"] == 0


def test_series_of_a_version_that_is_gone_end_and_come_back_where_they_stood() -> None:
    one = evaluation()
    one.begin(NOW)
    one.look([ON], NOW, connected=True)
    one.take([record([aggregate(1_000_080, 5)])], NOW)
    key = ArmKey("e", "1", Arm.STABLE)
    one.look([], NOW + 600, connected=True)
    assert one.arms(NOW + 600) == (key,)
    assert one.arms(NOW + 601) == ()
    assert one.refusals(NOW + 601) == {}
    one.take([record([aggregate(1_000_080, 6)], end=2)], NOW + 700)
    assert one.arms(NOW + 700) == (key,)
    assert one.totals.arms[key].texts == 6


def test_where_a_version_comes_from_is_on_the_board() -> None:
    one = evaluation(Shelf(**{STABLE.package: StoredPackage(manifest_of(run_id="run"))}))
    one.begin(NOW)
    (origin,) = one.look([ON], NOW, connected=True).of("e").origins
    assert (origin.version, origin.run_id, origin.data_sets) == ("1", "run", ("reviews",))


def test_drift_waits_for_the_reference_and_then_sees_every_window() -> None:
    shelf = Shelf()
    one = evaluation(shelf)
    one.begin(NOW)
    for number in range(5):
        one.take([record([aggregate(1_000_000 + 10 * number, 200)], start=64 * number)], NOW)
    assert one.look([ON], NOW, connected=True).drift("e", "1") is None
    shelf.known[STABLE.package] = StoredPackage(manifest_of())
    drift = one.look([ON], NOW + 1, connected=True).drift("e", "1")
    assert drift is not None
    assert drift.reference.kind == "profile"
    assert drift.at == 1_000_050


def test_versions_past_the_bound_are_counted_and_not_watched() -> None:
    packages = [f"{number:0>64}" for number in range(SeriesLimits().versions + 2)]
    one = evaluation(Shelf(**{package: StoredPackage(None) for package in packages}))
    one.begin(NOW)
    aggregates = []
    for package in packages:
        made = aggregate(1_000_000, 5)
        made.package = package
        aggregates.append(made)
    one.take([record(aggregates)], NOW)
    one.look([], NOW, connected=True)
    assert one.totals.overflow["versions"] == 2


def test_a_package_that_the_store_lost_learns_its_reference_from_traffic() -> None:
    one = evaluation(Shelf(**{STABLE.package: StoredPackage(None)}))
    one.begin(NOW)
    one.take([record([aggregate(1_000_000, 200)])], NOW)
    drift = one.look([ON], NOW, connected=True).drift("e", "1")
    assert drift is not None
    assert drift.reference.kind == "none"


def test_what_drift_learnt_outlives_the_process() -> None:
    shelf = Shelf(**{STABLE.package: StoredPackage(manifest_of())})
    one = evaluation(shelf)
    one.begin(NOW)
    told = [record([aggregate(1_000_000 + 10 * n, 200)], start=64 * n) for n in range(5)]
    one.take(told, NOW)
    one.look([ON], NOW, connected=True)
    after = Evaluation(shelf, DRIFT, WindowTiming(), one.to_json())
    after.begin(NOW)
    after.take(told, NOW)
    after.look([ON], NOW, connected=True)
    assert after.to_json() == one.to_json()
    drift = after.look([ON], NOW, connected=True).drift("e", "1")
    assert drift is not None
    assert drift.calibration == 0.05


def test_versions_of_one_tokeniser_share_what_is_usual_of_texts_and_not_of_answers() -> None:
    files = {TOKENIZER: PackageFile(sha256="f" * 64, bytes=1)}
    same = manifest_of().model_copy(update={"files": files})
    other = same.model_copy(update={"files": {TOKENIZER: PackageFile(sha256="0" * 64, bytes=1)}})
    shelf = Shelf(
        **{
            "a" * 64: StoredPackage(same),
            "b" * 64: StoredPackage(same),
            "c" * 64: StoredPackage(other),
        }
    )
    one = evaluation(shelf)
    one.begin(NOW)
    told = [aggregate(1_000_000, 200, "1", "a"), aggregate(1_000_000, 200, "2", "b")]
    one.take([record(told)], NOW)
    one.look([ON], NOW, connected=True)
    usual = [key for key in one.to_json() if key.startswith("usual:")]
    assert len([key for key in usual if "/texts/" in key]) == 1
    assert len([key for key in usual if "/answers/" in key]) == 2
    later = record([aggregate(1_000_110, 200, "3", "c")], start=64, through=NOW + 60)
    one.take([later], NOW + 60)
    one.look([ON], NOW + 60, connected=True)
    assert len([key for key in one.to_json() if "/texts/" in key]) == 2
    again = Evaluation(shelf, DRIFT, WindowTiming(), one.to_json())
    assert again.to_json() == one.to_json()


def test_what_can_not_be_used_of_what_was_learnt_is_learnt_again() -> None:
    shelf = Shelf(**{STABLE.package: StoredPackage(manifest_of())})
    broken = {"/".join(("e", "1", STABLE.package)): {"through": "x", "statistics": {}}}
    one = Evaluation(shelf, DRIFT, WindowTiming(), broken)
    one.begin(NOW)
    one.take([record([aggregate(1_000_000, 200)])], NOW)
    assert one.look([ON], NOW, connected=True).drift("e", "1") is not None

"""``headrace space``: which spaces there are, and the change of the default."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from contracts.backfills import BACKFILLS, BackfillProgress, list_backfills, note_backfill
from contracts.endpoint import (
    Candidate,
    EndpointSpec,
    EndpointStatus,
    KeptSpace,
    Metadata,
    ModelEndpoint,
    Phase,
    Route,
)
from contracts.model import ModelRef
from contracts.rollout import RolloutState
from contracts.tasks import Task
from headrace.cli import app
from headrace.stack.state import Home, claim_home
from registry.stores.endpoints import FileEndpointStore
from rollout.view import list_spaces

OLDEST, OLD, NEW = (
    ModelRef(model="m", version=version, package=version * 64, space=version * 12)
    for version in "123"
)
SPEC = EndpointSpec(model="m")
NOW = time.time()


def endpoint(*, passed_at: float | None, promoted_at: float | None = None) -> ModelEndpoint:
    """An endpoint on its way from ``OLD`` to ``NEW``; somebody still asks for ``OLDEST``."""
    state = RolloutState(
        id="r",
        candidate=NEW,
        stable=OLD,
        began=1.0,
        step_began=1.0,
        passed_at=passed_at,
        promoted_at=promoted_at,
    )
    status = EndpointStatus(
        routes=(Route.all_callers(OLD if promoted_at is None else NEW),),
        packages=(OLDEST, OLD, NEW),
        kept=(KeptSpace(ref=OLDEST, asked_at=NOW - 7200),),
        candidate=Candidate(version="3", phase=Phase.SHADOW, ref=NEW),
        rollout=state,
    )
    return ModelEndpoint(metadata=Metadata(name="docs"), spec=SPEC, status=status)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with claim_home(tmp_path / "h"):
        pass
    return tmp_path / "h"


def run(root: Path, made: ModelEndpoint, *words: str) -> Result:
    store = FileEndpointStore(Home(root).endpoints)
    if not store.list():
        store.put(made)
    return CliRunner().invoke(app, ["space", *words, "--home", str(root)])


def test_it_says_who_gets_which_space_and_when_a_kept_one_leaves(root: Path) -> None:
    made = endpoint(passed_at=2.0)
    shown = " ".join(run(root, made, "status", "docs").output.split())
    for told in (
        f"{OLD.space} 2 all who name no space",
        f"{NEW.space} 3 who names it or next: it waits for its cutover",
        f"{OLDEST.space} 1 who names it; last asked for 2h",
        "leaves in 6d21h unless asked for",
    ):
        assert told in shown
    found = json.loads(run(root, made, "status", "docs", "-o", "json").stdout)
    assert [each["space"] for each in found] == [OLD.space, NEW.space, OLDEST.space]
    assert found[2]["leaves_at"] == pytest.approx(NOW - 7200 + SPEC.rollout.embedding.keep)


def test_after_the_cutover_the_old_space_is_there_for_who_names_it() -> None:
    made = endpoint(passed_at=None, promoted_at=3.0)
    assert [(each.version, each.who) for each in list_spaces(made)] == [
        ("3", "all who name no space"),
        ("2", "who names it"),
        ("1", "who names it"),
    ]


def test_it_says_how_much_is_re_embedded(root: Path) -> None:
    made = endpoint(passed_at=2.0)
    notes = dict[str, str]()
    for output, space, done in (("a", NEW, 5), ("b", NEW, 7), ("a", NEW, 1000), ("a", OLD, 3)):
        progress = BackfillProgress(output=output, space=space.space, done=done, rows=2000, at=1.0)
        notes = note_backfill(notes, progress)
    metadata = made.metadata.model_copy(update={"annotations": notes})
    made = made.model_copy(update={"metadata": metadata})
    at, waiting = "(1970-01-01 00:00:01 UTC)", (("7", "b"), ("1,000", "a"))
    assert [each.who for each in list_spaces(made)] == [
        f"all who name no space; 3 of 2,000 texts re-embedded in a {at}",
        "who names it or next: it waits for its cutover; "
        + "; ".join(f"{n} of 2,000 texts re-embedded in {of} {at}" for n, of in waiting),
        "who names it",
    ]
    assert "1,000 of 2,000 texts" in " ".join(run(root, made, "status", "docs").output.split())
    rollout = ["rollout", "status", "docs", "--home", str(root)]
    shown = " ".join(CliRunner().invoke(app, rollout).output.split())
    assert f"space {NEW.space} of version 3: who names it or next: it waits" in shown
    told = json.loads(CliRunner().invoke(app, [*rollout, "-o", "json"]).stdout)
    assert [each["space"] for each in told["spaces"]] == [OLD.space, NEW.space, OLDEST.space]


def test_of_many_outputs_the_newest_are_told_of_and_an_unreadable_note_tells_of_none() -> None:
    notes = {BACKFILLS: "no list", "mine": "kept"}
    for number in range(10):
        progress = BackfillProgress(output=f"{number}", space="s", done=1, rows=2, at=1.0)
        notes = note_backfill(notes, progress)
    assert [each.output for each in list_backfills(notes)] == list("23456789")
    assert notes["mine"] == "kept"
    assert list_backfills({BACKFILLS: '[{"output": 1}]'}) == ()
    assert list_backfills({BACKFILLS: notes[BACKFILLS].replace("9", "\\u001b[2J")}) == ()


def test_an_endpoint_without_vectors_has_none() -> None:
    words = OLD.model_copy(update={"space": ""})
    status = EndpointStatus(routes=(Route.all_callers(words),))
    assert list_spaces(endpoint(passed_at=1.0).model_copy(update={"status": status})) == ()


def test_no_space_is_cut_over_before_it_has_passed(root: Path) -> None:
    result = run(root, endpoint(passed_at=None), "cutover", "docs", "--no-wait")
    assert result.exit_code == 1
    assert "No space of docs waits for its cutover" in result.stderr
    (stored,) = FileEndpointStore(Home(root).endpoints).list()
    assert stored.metadata.annotations == {}


@pytest.mark.parametrize(
    ("words", "asked"), [("cutover", ("promote", "3")), ("undo", ("undo", None))]
)
def test_cutover_and_undo_are_decisions_about_the_rollout(
    root: Path, words: str, asked: tuple[str, Any]
) -> None:
    run(root, endpoint(passed_at=2.0), words, "docs", "--reason", "its index is whole", "--no-wait")
    (stored,) = FileEndpointStore(Home(root).endpoints).list()
    (text,) = (
        value
        for key, value in stored.metadata.annotations.items()
        if key.startswith("command.headrace.dev/")
    )
    told = json.loads(text)
    assert (told["verb"], told.get("version"), told["reason"]) == (*asked, "its index is whole")
    assert told.get("space") == (NEW.space if words == "cutover" else None)


# compare


DOCUMENTS = [{"_id": f"d{n}", "text": f"text {n}"} for n in range(90)]
QUERIES: list[dict[str, Any]] = [
    {"text": f"text {n}", "relevant": [f"d{n}"] if n % 2 else {f"d{n}": 3}} for n in range(80)
]


ROUTES = {
    Task.TEXT_EMBEDDING: "embed",
    Task.SPARSE_EMBEDDING: "embed_sparse",
    Task.MULTI_VECTOR_EMBEDDING: "embed_all",
}


class FakeGateway:
    """The new space finds each text; the old one takes every second query for another text."""

    task = Task.TEXT_EMBEDDING

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, str | None]] = []

    def post(
        self, url: str, *, json: dict[str, Any], headers: dict[str, str], **_: object
    ) -> httpx.Response:
        assert url == f"http://g/endpoints/docs/{ROUTES[self.task]}"
        assert headers["authorization"] == "Bearer k"
        space, prompt = headers["x-headrace-space"], json["prompt_name"]
        self.asked.append((space, len(json["inputs"]), prompt))
        made = []
        for text in json["inputs"]:
            number = int(text.split()[1])
            is_lost = space != NEW.space and prompt == "query" and number % 2
            seed = number + 1000 * is_lost
            numbers = np.random.default_rng(seed).normal(size=32)
            if self.task is Task.SPARSE_EMBEDDING:
                kept = [(i, float(n)) for i, n in enumerate(numbers) if n > 0]
                made.append([{"index": i, "value": n} for i, n in kept])
            elif self.task is Task.MULTI_VECTOR_EMBEDDING:
                made.append((numbers.reshape(4, 8)[: 2 + seed % 3]).tolist())
            else:
                made.append(numbers.tolist())
        return httpx.Response(200, json=made)


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    made = FakeGateway()
    monkeypatch.setattr(httpx, "post", made.post)
    return made


def compared(
    folder: Path,
    *words: str,
    queries: list[Any] = QUERIES,
    documents: list[Any] = DOCUMENTS,
    task: Task | None = None,
) -> Result:
    root = folder / "h"
    if not root.exists():
        with claim_home(root):
            pass
    for name, lines in (("q", queries), ("d", documents)):
        (folder / name).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    files = ("--queries", str(folder / "q"), "--documents", str(folder / "d"))
    place = ("--url", "http://g", "--key", "k")
    made = endpoint(passed_at=1.0)
    made = made.model_copy(update={"status": made.status.model_copy(update={"task": task})})
    return run(root, made, "compare", "docs", *files, *place, *words)


def test_both_searches_are_judged_with_intervals_of_the_difference(
    tmp_path: Path, gateway: FakeGateway
) -> None:
    told = json.loads(compared(tmp_path, "--query-prompt", "query", "-o", "json").stdout)
    assert told["queries"] == 80
    for name in ("recall@10", "nDCG@10"):
        assert told[name][NEW.space] == [1.0, 1.0, 1.0]
        old, better = told[name][OLD.space], told[name]["difference"]
        assert 0.5 <= old[0] < 0.7
        assert better[0] == pytest.approx(1 - old[0])
        assert 0.2 < better[1] < better[0] < better[2]
    assert 0.5 < told["nearest ten"]["shared"][0] < 0.7
    assert {space for space, *_ in gateway.asked} == {OLD.space, NEW.space}
    assert max(count for _, count, _ in gateway.asked) == 64
    shown = compared(tmp_path, "--query-prompt", "query").output
    assert f"recall@10 {NEW.space} 1.000 1.000 to 1.000" in " ".join(shown.split())


@pytest.mark.parametrize("is_hybrid", [False, True])
@pytest.mark.parametrize("task", [Task.SPARSE_EMBEDDING, Task.MULTI_VECTOR_EMBEDDING])
def test_sparse_vectors_and_those_of_tokens_are_compared_as_they_are_searched(
    tmp_path: Path, gateway: FakeGateway, task: Task, *, is_hybrid: bool
) -> None:
    gateway.task = task
    kind = "sparse" if task is Task.SPARSE_EMBEDDING else "tokens"
    words = ("--query-prompt", "query", "-o", "json", "--kind", kind)
    of = Task.HYBRID_EMBEDDING if is_hybrid else task
    result = compared(tmp_path, *words, task=of)
    told = json.loads(result.stdout)
    assert told["recall@10"][NEW.space][0] > 0.97
    assert told["recall@10"][OLD.space][0] < 0.75


def test_searches_of_a_hybrid_model_are_not_compared_by_no_kind(
    tmp_path: Path, gateway: FakeGateway
) -> None:
    result = compared(tmp_path, task=Task.HYBRID_EMBEDDING)
    assert (result.exit_code, "choose --kind" in result.stderr) == (10, True)
    assert gateway.asked == []


def test_a_kept_space_is_compared_if_it_is_named(tmp_path: Path, gateway: FakeGateway) -> None:
    assert compared(tmp_path, "--space", OLDEST.space).exit_code == 0
    assert {space for space, *_ in gateway.asked} == {OLD.space, OLDEST.space}


@pytest.mark.parametrize(
    ("words", "files", "said"),
    [
        (("--space", "x" * 12), {}, "holds no such other space"),
        ((), {"documents": DOCUMENTS[:5]}, "Ten documents are needed"),
        ((), {"queries": [{"text": "a", "relevant": ["nowhere"]}]}, "of each query a relevant one"),
        ((), {"queries": [{"text": "a"}]}, "object 1 lacks text or relevant"),
        ((), {"documents": ["a"]}, "can't be read as JSON objects"),
    ],
)
def test_what_can_not_be_compared_is_refused_before_anything_is_asked(
    tmp_path: Path, gateway: FakeGateway, words: tuple[str, ...], files: Any, said: str
) -> None:
    result = compared(tmp_path, *words, **files)
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (1, True)
    assert gateway.asked == []

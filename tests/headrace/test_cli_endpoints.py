"""What ``headrace apply``, ``get``, ``delete`` and ``rollout`` do, as a user runs them."""

import getpass
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fake_controller import FakeController
from typer.testing import CliRunner, Result
from waiting import until

from contracts.controller import ControllerBeat
from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Rejection,
    Route,
    Transition,
    Wait,
    WaitsFor,
)
from contracts.model import ModelRef
from contracts.rollout import COMMAND_PREFIX, Command, Outcome, RolloutState
from headrace import invocation
from headrace.cli import app
from headrace.commands import endpoints, rollout
from headrace.stack.state import Home, claim_home
from registry.stores.endpoints import FileEndpointStore
from registry.stores.heartbeats import FileHeartbeats

TONE = """\
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {name: tone}
spec:
  model: tone-model
  rollout: {deadline: 1h30m}
"""
STABLE = ModelRef(model="tone-model", version="3", package="a" * 64)
SERVING = EndpointStatus(
    generation=4,
    routes=(Route(arm=Arm.STABLE, ref=STABLE, weight=100),),
    packages=(STABLE,),
    history=(
        Transition(at=1e9, version="3", phase=Phase.PROMOTED, reason="all checks pass", by=""),
        Transition(at=1e9 + 60, version="3", phase=Phase.PROMOTED, reason="why not", by="ann"),
    ),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with claim_home(tmp_path / "h"):
        pass
    return tmp_path / "h"


@pytest.fixture
def store(root: Path) -> FileEndpointStore:
    return FileEndpointStore(Home(root).endpoints)


@pytest.fixture
def tone(store: FileEndpointStore) -> ModelEndpoint:
    spec = EndpointSpec(model="tone-model")
    return store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=spec, status=SERVING))


@pytest.fixture
def running(root: Path) -> Iterator[None]:
    """The home is held, as by a stack that runs."""
    with claim_home(root):
        yield


def run(root: Path, *words: str, text: str | None = None) -> Result:
    env = {"COLUMNS": "200", "HEADRACE_HOME": ""}
    return CliRunner().invoke(app, [*words, "--home", str(root)], input=text, env=env)


def stored(store: FileEndpointStore) -> ModelEndpoint:
    endpoint = store.get("tone")
    assert endpoint is not None
    return endpoint


def refuses(command: Command) -> tuple[bool, str]:
    return False, f"no rollout is on to {command.verb.value}"


def does(command: Command) -> tuple[bool, str]:
    return True, f"version 4 is {command.verb.value}d"


# apply, get, delete


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has ``apply`` wait for the controller's word as long as a thread of a busy machine takes."""
    monkeypatch.setattr(endpoints, "_CONTROLLER_SECONDS", 120.0)


@pytest.mark.usefixtures("running")
def test_apply_warns_of_what_the_controller_says_is_not_there(
    root: Path, store: FileEndpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_patient(monkeypatch)
    lacks = "MLflow has no registered model tone-model"
    waits = (
        Wait(cause=WaitsFor.MLFLOW, since=1.0),  # at first, which is no reason to warn
        Wait(cause=WaitsFor.MODEL, since=1.0, what=lacks),
    )

    def controller() -> None:
        found = until("the endpoint is written", 60, lambda: store.get("tone"))
        for wait in waits:
            status = EndpointStatus(waits=(wait,))
            found = store.put(found.model_copy(update={"status": status}))

    thread = threading.Thread(target=controller)
    thread.start()
    result = run(root, "apply", "-f", "-", text=TONE)
    thread.join()
    assert result.exit_code == 0
    assert result.stdout == "endpoint tone created\n"
    to_do = "register it, or change spec.model"
    assert result.stderr == f"Warning: endpoint tone: {lacks}: {to_do}.\n"


def test_the_status_as_json_says_what_each_endpoint_waits_for_and_what_to_do(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    candidate = Candidate(version="4", phase=Phase.BLOCKED, reason="no space left")
    waits = (Wait(cause=WaitsFor.RETRY, since=60.0, version="4"),)
    status = SERVING.model_copy(update={"candidate": candidate, "waits": waits})
    store.put(tone.model_copy(update={"status": status}))
    (told,) = json.loads(run(root, "status", "-o", "json").stdout)["waits"]["tone"]
    assert told.pop("to_do").startswith("put that right")
    since = "1970-01-01T00:01:00Z"
    assert told == {"cause": "retry", "since": since, "version": "4", "what": "no space left"}


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("before", "after"),
    [("model: tone-model", "model: other"), ("{deadline", "{alias: served, deadline")],
)
def test_apply_warns_by_what_the_controller_says_of_the_change_and_not_by_what_it_said_before(
    root: Path,
    store: FileEndpointStore,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
) -> None:
    assert run(root, "apply", "-f", "-", text=TONE).exit_code == 0
    be_patient(monkeypatch)
    stale, note = "MLflow has no registered model tone-model", "an alias is not moved"
    made = stored(store)
    store.put(made.model_copy(update={"status": EndpointStatus(notes=(stale,))}))
    spec = made.spec

    def controller() -> None:
        def changed() -> ModelEndpoint | None:
            found = store.get("tone")
            return found if found is not None and found.spec != spec else None

        found = until("the endpoint is changed", 60, changed)
        store.put(found.model_copy(update={"status": EndpointStatus(notes=(note,))}))

    thread = threading.Thread(target=controller)
    thread.start()
    result = run(root, "apply", "-f", "-", text=TONE.replace(before, after))
    thread.join()
    assert result.exit_code == 0
    assert result.stderr == f"Warning: endpoint tone: {note}.\n"


def test_apply_says_created_then_unchanged_then_what_changed(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "tone.yaml"
    file.write_text(TONE)
    assert run(root, "apply", "-f", str(file)).output == "endpoint tone created\n"
    assert run(root, "apply", "-f", str(file)).output == "endpoint tone unchanged\n"
    file.write_text(TONE.replace("1h30m", "2h"))
    assert run(root, "apply", "-f", str(file)).output == (
        "endpoint tone changed\n  spec.rollout.deadline: 1h30m -> 2h\n"
    )


def test_apply_reads_standard_input(root: Path, store: FileEndpointStore) -> None:
    made = json.loads(run(root, "apply", "-f", "-", "--json", text=TONE).output)
    assert made == [{"name": "tone", "what": "created", "changes": []}]
    assert stored(store).spec.rollout.deadline == 5400.0


def test_an_invalid_document_is_refused_and_all_that_runs_stays(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    bad = TONE.replace("{deadline: 1h30m}", "{steps: [{shadow: 100}, {weight: 100}]}")
    good = TONE.replace("name: tone", "name: mood")
    result = run(root, "apply", "-f", "-", text=f"{good}---\n{bad}")
    assert result.exit_code == 11
    assert "document 2 was refused" in result.stderr
    assert "spec.rollout.steps[1].weight: must be less than 100, not 100." in result.stderr
    assert store.list() == (tone,)


def test_apply_keeps_the_status(root: Path, store: FileEndpointStore, tone: ModelEndpoint) -> None:
    assert run(root, "apply", "-f", "-", text=TONE).exit_code == 0
    assert stored(store).status == tone.status


def test_a_folder_is_applied_whole(root: Path, store: FileEndpointStore, tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    (folder / "below").mkdir(parents=True)
    (folder / "b.yaml").write_text(TONE)
    (folder / "a.yml").write_text(TONE.replace("name: tone", "name: mood"))
    (folder / "below" / "c.yaml").write_text(TONE.replace("name: tone", "name: taste"))
    (folder / "README.md").write_text("# Endpoints")
    applied = run(root, "apply", "-f", str(folder)).output
    assert applied == "endpoint mood created\nendpoint tone created\n"
    assert "endpoint taste created" in run(root, "apply", "-f", str(folder), "-R").output
    (tmp_path / "empty").mkdir()
    result = run(root, "apply", "-f", str(tmp_path / "empty"))
    assert (result.exit_code, "holds no file" in result.stderr) == (10, True)


@pytest.mark.parametrize("how", ["client", "server"])
def test_a_dry_run_says_what_would_change_and_changes_nothing(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint, how: str
) -> None:
    text = f"{TONE}---\n{TONE.replace('name: tone', 'name: mood')}"
    said = run(root, "apply", "-f", "-", "--dry-run", how, text=text).output
    assert said == (
        f"endpoint tone changed ({how} dry run)\n"
        "  spec.rollout.deadline: 24h -> 1h30m\n"
        f"endpoint mood created ({how} dry run)\n"
    )
    assert store.list() == (tone,)


def test_diff_ends_with_one_only_where_something_differs(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    result = run(root, "diff", "-f", "-", text=TONE)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout == (
        "endpoint tone would be changed\n  spec.rollout.deadline: 24h -> 1h30m\n"
    )
    (told,) = json.loads(run(root, "diff", "-f", "-", "-o", "json", text=TONE).stdout)
    assert (told["name"], told["what"]) == ("tone", "changed")
    same = run(root, "get", "tone").output
    assert (run(root, "diff", "-f", "-", text=same).exit_code, store.list()) == (0, (tone,))
    broken = run(root, "diff", "-f", "-", text="kind: ModelEndpoint")
    assert broken.exit_code == 11


def test_get_prints_in_each_form(root: Path, tone: ModelEndpoint) -> None:
    assert yaml.safe_load(run(root, "get", "tone").output) == json.loads(
        run(root, "get", "tone", "-o", "json").output
    )
    assert "newest" in run(root, "get", "tone", "-o", "table").output
    assert run(root, "get", "tone", "-o", "wide").exit_code == 2
    assert yaml.safe_load(run(root, "rollout", "status", "tone", "-o", "yaml").output) == (
        json.loads(run(root, "rollout", "status", "tone", "-o", "json").output)
    )


def test_a_rollout_on_its_way_is_the_same_in_yaml_as_in_json(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    candidate = Candidate(version="8", phase=Phase.CONVERTING)
    store.put(
        tone.model_copy(update={"status": SERVING.model_copy(update={"candidate": candidate})})
    )
    told = json.loads(run(root, "rollout", "status", "tone", "-o", "json").stdout)
    assert [stage["mark"] for stage in told["stages"]][:2] == ["now", "todo"]
    assert yaml.safe_load(run(root, "rollout", "status", "tone", "-o", "yaml").stdout) == told


def test_apply_of_a_file_that_is_not_there_is_a_sentence(root: Path) -> None:
    result = run(root, "apply", "-f", "none.yaml")
    assert result.exit_code == 10
    assert "none.yaml can't be read: No such file or directory.\n" in result.stderr


def test_what_get_prints_can_be_applied(root: Path, store: FileEndpointStore) -> None:
    run(root, "apply", "-f", "-", text=TONE)
    shown = run(root, "get", "tone").output
    assert "deadline: 1h30m" in shown
    assert "status" not in shown
    assert "limits" not in shown
    assert "unchanged" in run(root, "apply", "-f", "-", text=shown).output
    everything = run(root, "get", "-o", "yaml", "--all").output
    assert "maxTokensInFlight: 65536" in everything
    assert "unchanged" in run(root, "apply", "-f", "-", text=everything).output


def test_get_lists_every_endpoint(root: Path, tone: ModelEndpoint) -> None:
    assert "tone-model" in run(root, "get").output
    (only,) = json.loads(run(root, "get", "-o", "json").output)
    assert only["spec"] == {"model": "tone-model"}


def test_delete_without_a_yes_deletes_nothing(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    result = run(root, "delete", "tone")
    assert result.exit_code == 1
    assert "404" in result.stderr
    assert store.list() == (tone,)


def test_delete_says_that_a_registered_model_comes_back(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    result = run(root, "delete", "tone", "--yes")
    assert "--no-auto-endpoints" in result.output
    assert store.list() == ()


def test_an_endpoint_that_can_not_be_read_can_be_deleted(
    root: Path, store: FileEndpointStore
) -> None:
    file = Home(root).endpoints / "tone.json"
    file.write_text("{")
    assert run(root, "delete", "tone", "--yes").exit_code == 0
    assert not file.exists()


# rollout


@pytest.mark.parametrize("verb", ["promote", "pause", "resume", "abort", "undo", "retry"])
def test_a_decision_is_told_to_the_controller_with_who_and_why(
    root: Path, tone: ModelEndpoint, running: None, verb: str
) -> None:
    with FakeController(Home(root).endpoints, does).running() as controller:
        result = run(root, "rollout", verb, "tone", "--by", "ann", "--reason", "it is time")
    assert result.output == f"Version 4 is {verb}d.\n"
    (command,) = controller.commands
    assert (command.verb.value, command.stated, command.reason) == (verb, "ann", "it is time")
    assert command.by == getpass.getuser()
    assert command.full is (verb != "promote")


def test_promote_is_the_next_step_and_full_is_all_of_it(
    root: Path, tone: ModelEndpoint, running: None
) -> None:
    with FakeController(Home(root).endpoints, does).running() as controller:
        run(root, "rollout", "promote", "tone")
        run(root, "rollout", "promote", "tone", "--full")
    assert [command.full for command in controller.commands] == [False, True]


def test_a_refusal_ends_with_status_one_and_its_reason(
    root: Path, tone: ModelEndpoint, running: None
) -> None:
    with FakeController(Home(root).endpoints, refuses).running():
        result = run(root, "rollout", "pause", "tone")
        answer = run(root, "rollout", "abort", "tone", "--json")
    assert result.exit_code == answer.exit_code == 1
    assert "pause was refused: no rollout is on to pause." in result.stderr
    assert json.loads(answer.stdout)["accepted"] is False
    assert "abort was refused" in run(root, "rollout", "history", "tone").output
    shown = json.loads(run(root, "rollout", "status", "tone", "--json").output)
    assert [one["accepted"] for one in shown["answers"]] == [False, False]


def test_a_decision_that_nobody_takes_fails_and_is_withdrawn(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    for words in (("promote", "tone"), ("pin", "tone", "3"), ("abort", "tone")):
        result = run(root, "rollout", *words)
        assert result.exit_code == 12
        assert "nothing is decided: no stack runs on this home" in result.stderr
        assert stored(store).metadata.annotations == {}
        assert stored(store).spec == tone.spec
    told = run(root, "rollout", "promote", "tone", "-o", "json")
    assert json.loads(told.stdout)["accepted"] is None
    assert json.loads(told.stderr)["error"]["code"] == "undelivered"


def test_an_unpin_that_nobody_takes_leaves_the_pin_and_what_was_before(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    run(root, "rollout", "pin", "tone", "3", "--no-wait")
    pinned = stored(store)
    assert run(root, "rollout", "unpin", "tone").exit_code == 12
    assert stored(store).spec == pinned.spec
    assert stored(store).metadata.annotations == pinned.metadata.annotations


def test_a_decision_may_be_left_for_a_controller_that_is_away(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    result = run(root, "rollout", "promote", "tone", "--no-wait")
    assert result.exit_code == 0
    assert "Promote is noted on tone" in result.output
    notes = stored(store).metadata.annotations
    assert sum(key.startswith(COMMAND_PREFIX) for key in notes) == 1
    assert "1 command waits" in run(root, "rollout", "status", "tone").output
    assert "No stack runs" in run(root, "rollout", "status", "tone").output


@pytest.mark.slow
def test_more_decisions_than_are_kept_are_refused(root: Path, tone: ModelEndpoint) -> None:
    for _ in range(20):
        assert run(root, "rollout", "pause", "tone", "--no-wait").exit_code == 0
    result = run(root, "rollout", "pause", "tone", "--no-wait")
    assert result.exit_code == 1
    assert "20 commands wait" in result.stderr


# wait


def ended(outcome: Outcome, reason: str) -> RolloutState:
    ref = STABLE.model_copy(update={"version": "4"})
    return RolloutState(
        id="r", candidate=ref, stable=STABLE, began=1.0, step_began=1.0, ended_at=2.0,
        outcome=outcome, reason=reason,
    )  # fmt: skip


DROPPED = Transition(at=1.0, version="7", phase=Phase.SUPERSEDED, reason="it was deleted")


@pytest.mark.parametrize(
    ("status", "words", "code", "said"),
    [
        ({"last_rollout": ended(Outcome.SETTLED, "all passed")}, (), 0, "Version 4 Settled"),
        ({"last_rollout": ended(Outcome.ROLLED_BACK, "slow")}, (), 13, "Not promoted: version 4"),
        ({"last_rollout": ended(Outcome.EXPIRED, "no traffic")}, (), 13, "no traffic"),
        ({"candidate": Candidate(version="4", phase=Phase.CANARY)}, (), 14, "version 4 Canary"),
        ({"candidate": Candidate(version="4", phase=Phase.CANARY)}, ("3",), 0, "3 Serving"),
        ({"candidate": Candidate(version="4", phase=Phase.CANARY)}, ("2",), 13, "gave way to"),
        ({}, ("7",), 14, "version 7 is not seen yet"),
        ({"history": (DROPPED,)}, ("7",), 13, "version 7 Superseded: it was deleted"),
        (
            {"history": (DROPPED,), "candidate": Candidate(version="7", phase=Phase.CONVERTING)},
            ("7",),
            14,
            "version 7 Converting",
        ),
        (
            {"rejected": (Rejection(version="7", options="", at=1.0, reason="no ONNX"),)},
            ("7",),
            13,
            "version 7 Rejected: no ONNX",
        ),
    ],
)
def test_wait_ends_with_a_status_for_scripts(
    root: Path,
    store: FileEndpointStore,
    tone: ModelEndpoint,
    *,
    status: dict[str, object],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    store.put(tone.model_copy(update={"status": SERVING.model_copy(update=status)}))
    version = ("--version", *words) if words else ()
    result = run(root, "rollout", "wait", "tone", "--timeout", "0.001s", *version)
    assert (result.exit_code, said in result.output) == (code, True), result.output
    told = run(root, "rollout", "wait", "tone", "--timeout", "0.001", *version, "-o", "json")
    assert (told.exit_code, json.loads(told.stdout)["endpoint"]) == (code, "tone")


def test_wait_takes_a_promotion_or_the_end_of_its_bake(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    state = ended(Outcome.SETTLED, "").model_copy(
        update={"outcome": None, "ended_at": None, "promoted_at": time.time()}
    )
    store.put(tone.model_copy(update={"status": SERVING.model_copy(update={"rollout": state})}))
    words = ("rollout", "wait", "tone", "--timeout", "0.001")
    assert run(root, *words).exit_code == 0
    assert run(root, *words, "--for", "settled").exit_code == 14


def test_wait_sees_what_happens_meanwhile(
    root: Path,
    store: FileEndpointStore,
    tone: ModelEndpoint,
    capsys: pytest.CaptureFixture[str],
) -> None:
    candidate = Candidate(version="4", phase=Phase.CANARY)
    status = SERVING.model_copy(update={"candidate": candidate})
    store.put(tone.model_copy(update={"status": status}))

    def settles(_: float) -> None:
        last = SERVING.model_copy(update={"last_rollout": ended(Outcome.SETTLED, "passed")})
        store.put(stored(store).model_copy(update={"status": last}))

    invocation.begin(is_plugin=False)
    rollout.wait(root, "tone", version=None, until="promoted", seconds=60, sleep=settles)
    assert capsys.readouterr().out == "Version 4 Canary.\nVersion 4 Settled: passed.\n"


def test_pin_and_unpin_change_what_is_asked_and_say_who(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint, running: None
) -> None:
    run(root, "apply", "-f", "-", text=TONE + "  version: {alias: blue}\n")
    with FakeController(Home(root).endpoints, does).running() as controller:
        assert run(root, "rollout", "pin", "tone", "3", "--by", "ann").exit_code == 0
        assert "pin: '3'" in run(root, "get", "tone").output
        assert "before-pin" not in run(root, "get", "tone").output
        assert run(root, "rollout", "unpin", "tone").exit_code == 0
    assert "version: {alias: blue}" in run(root, "get", "tone").output
    assert [command.version for command in controller.commands] == ["3", None]


@pytest.mark.parametrize(
    ("words", "said"),
    [(("unpin", "tone"), "not pinned"), (("pin", "tone", "newest"), "no version")],
)
def test_a_pin_that_makes_no_sense_is_refused_at_once(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint, words: tuple[str, ...], said: str
) -> None:
    result = run(root, "rollout", *words)
    assert result.exit_code == 1
    assert said in result.stderr
    assert store.list() == (tone,)


def test_history_tells_when_what_why_and_who(root: Path, tone: ModelEndpoint) -> None:
    shown = run(root, "rollout", "history", "tone").output
    assert "2001-09-09 01:46:40" in shown
    assert "all checks pass" in shown
    assert "ann" in shown
    assert [
        line["by"] for line in json.loads(run(root, "rollout", "history", "tone", "--json").output)
    ] == ["", "ann"]


def test_history_tells_a_steps_weight_beside_its_phase_and_with_details_figures_by_check(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    figures = {"percent": 20.0, "errorRate.candidate_requests": 1234.0, "errorRate.evidence": 0.5}
    line = Transition(at=1e9, version="4", phase=Phase.CANARY, reason="go", figures=figures)
    status = SERVING.model_copy(update={"history": (line,)})
    store.put(stored(store).model_copy(update={"status": status}))
    brief = run(root, "rollout", "history", "tone").output
    assert "Canary 20 %" in brief
    assert "1,234" not in brief
    for flag in ("--details", "-v"):
        shown = run(root, "rollout", "history", "tone", flag).output
        assert "errorRate: candidate requests 1,234, evidence 0.5" in shown
        assert "percent" not in shown


def test_rollout_status_says_where_nobody_could_take_a_candidate_back(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint, running: None
) -> None:
    del running
    routes = (
        Route(arm=Arm.STABLE, ref=STABLE, weight=95),
        Route(arm=Arm.CANARY, ref=ModelRef(model="tone", version="4", package="b" * 64), weight=5),
    )
    store.put(tone.model_copy(update={"status": EndpointStatus(routes=routes)}))
    place = FileHeartbeats(root / "endpoints")
    for ago, said in ((0.0, False), (7200.0, True)):
        place.put(ControllerBeat(instance="a", count=1, at=time.time() - ago))
        told = " ".join(run(root, "rollout", "status", "tone").output.split())
        assert ("The controller gave its last sign 2h" in told) is said
        assert ("version 4's callers to the stable version" in told) is said


@pytest.mark.parametrize("words", [("status",), ("history",), ("promote",), ("pin", "3")])
def test_an_unknown_endpoint_names_those_there_are(
    root: Path, tone: ModelEndpoint, words: tuple[str, ...]
) -> None:
    result = run(root, "rollout", words[0], "mood", *words[1:])
    assert result.exit_code == 10
    assert "tone" in result.stderr


# stats


def test_statistics_are_added_replaced_listed_and_removed(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint
) -> None:
    assert "declares no statistics" in run(root, "stats", "list", "tone").output
    length = ("stats", "add", "tone", "length", "--kind", "histogram")
    assert run(root, *length, "--edges", "1, 5,10").exit_code == 0
    assert (
        run(root, "stats", "add", "tone", "lang", "--kind=category", "--values=en,de").exit_code
        == 0
    )
    assert run(root, *length, "--edges=2,4").exit_code == 0
    assert json.loads(run(root, "stats", "list", "tone", "--json").output) == [
        {"name": "length", "kind": "histogram", "edges": [2.0, 4.0]},
        {"name": "lang", "kind": "category", "values": ["en", "de"]},
    ]
    assert "en, de" in run(root, "stats", "list", "tone").output
    assert run(root, "stats", "remove", "tone", "length").exit_code == 0
    assert [one.name for one in stored(store).spec.statistics] == ["lang"]
    assert stored(store).status == tone.status


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add", "tone", "length", "--kind", "histogram"), 10, "a histogram needs them"),
        (("add", "tone", "Length", "--kind", "counter"), 10, "name"),
        (("add", "tone", "length", "--kind", "histogram", "--edges", "2,1"), 10, "must grow"),
        (("add", "tone", "length", "--kind", "histogram", "--edges", "x"), 2, "edges are numbers"),
        (("add", "tone", "x", "--kind", "histogram", "--edges", "1,inf"), 10, "finite"),
        (("remove", "tone", "length"), 1, "declares no statistic length"),
    ],
)
def test_a_statistic_that_makes_no_sense_is_refused(
    root: Path,
    store: FileEndpointStore,
    tone: ModelEndpoint,
    *,
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    result = run(root, "stats", *words)
    assert result.exit_code == code
    assert said in result.stderr
    assert store.list() == (tone,)


def test_a_statistic_that_a_check_rests_on_stays(root: Path, store: FileEndpointStore) -> None:
    checked = TONE.replace("{deadline: 1h30m}", "{checks: {statistics: [{name: rare}]}}")
    run(root, "apply", "-f", "-", text=checked + "  statistics: [{name: rare, kind: counter}]\n")
    result = run(root, "stats", "remove", "tone", "rare")
    assert result.exit_code == 1
    assert "A check of the rollout rests on rare" in result.stderr
    assert stored(store).spec.statistics


# Tables


def test_tables_fit_eighty_columns_whatever_they_show(
    root: Path, store: FileEndpointStore, tone: ModelEndpoint, tmp_path: Path
) -> None:
    reason = "the label positive was given to 191 of 192 texts and that is far too often " * 3
    candidate = Candidate(version="4", phase=Phase.REJECTED, reason=reason)
    long = "n" * 60
    for name in ("mood", long):
        spec = EndpointSpec(model=f"model-of-{name}")
        status = SERVING.model_copy(update={"candidate": candidate})
        store.put(ModelEndpoint(metadata=Metadata(name=name), spec=spec, status=status))
    edges = ",".join(map(str, range(100)))
    added = ("stats", "add", "mood", "length", "--kind", "histogram", "--edges", edges)
    assert run(root, *added).exit_code == 0
    keys = ("--file", str(tmp_path / "keys.jsonl"))
    grants = ("--endpoint", "mood", "--endpoint", long, "--requests-per-second", "2.5")
    runner = CliRunner()
    assert runner.invoke(app, ["keys", "create", "search-team", *keys, *grants]).exit_code == 0
    home = ("--home", str(root))
    for words in (
        ("get", *home), ("status", *home), ("status", "--details", *home),
        ("stats", "list", "mood", *home),
        ("rollout", "status", "mood", *home), ("rollout", "history", "mood", *home),
        ("keys", "list", *keys),
    ):  # fmt: skip
        shown = runner.invoke(app, words, env={"HEADRACE_NAMESPACE": ""})
        assert shown.exit_code == 0
        assert max(map(len, shown.output.splitlines())) <= 80, shown.output
    assert long in runner.invoke(app, ["keys", "list", *keys]).output

"""The report of one rollout: whole, escaped, and by nothing but its own text."""

import json
from html.parser import HTMLParser

from contracts.endpoint import (
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Transition,
)
from contracts.model import ModelRef
from contracts.rollout import CheckResult, Outcome, RolloutState, SeriesPoint, Verdict
from rollout import report
from rollout.packed_evidence import pack
from rollout.series import gather

OLD = ModelRef(model="m", version="1", package="a" * 64)
NEW = ModelRef(model="m", version="2", package="b" * 64)
VOID = {"meta", "br"}


def point(start: float, requests: int = 10, errors: int = 0) -> SeriesPoint:
    return SeriesPoint(
        start=start,
        seconds=10,
        candidate_requests=requests,
        candidate_errors=errors,
        candidate_slow=1,
        stable_requests=90,
        stable_errors=1,
        stable_slow=4,
    )


def rollout(**fields: object) -> RolloutState:
    plain = {"id": "r", "candidate": NEW, "stable": OLD, "began": 100.0, "step_began": 100.0}
    return RolloutState.model_validate(plain | fields)


def line(at: float, phase: Phase, version: str = "2", **more: object) -> Transition:
    return Transition.model_validate({"at": at, "version": version, "phase": phase, **more})


def endpoint(*history: Transition, model: str = "m") -> ModelEndpoint:
    return ModelEndpoint(
        metadata=Metadata(name="e"),
        spec=EndpointSpec(model=model),
        status=EndpointStatus(history=history),
    )


class Reader(HTMLParser):
    """Sees that every tag is closed, and gathers text and addresses."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.links: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


FAILED = CheckResult(
    name="errorRate",
    verdict=Verdict.FAIL,
    reason="errors 12 of 400 (3.0 %) against 9 of 7,600 (0.1 %)",
    figures={"evidence": 143.25},
)
OPEN = CheckResult(
    name="drift", verdict=Verdict.UNKNOWN, reason="no data", gate=False, required=False, needs=1200
)


def test_a_rolled_back_version_reads_why_and_since_when() -> None:
    state = rollout(
        ended_at=190.0,
        outcome=Outcome.ROLLED_BACK,
        reason="errorRate: too many errors",
        series=(point(100.0), point(110.0, errors=9)),
        checks=(FAILED, OPEN),
    )
    one = endpoint(
        line(100.0, Phase.SHADOW, figures={"percent": 100}),
        line(190.0, Phase.ROLLED_BACK, reason="too many errors", by="ada"),
    )
    read = Reader(report.page(one, state))
    assert read.open == []
    assert read.links == []
    for words in (
        "e: version 2 of m",
        "Rolled back: errorRate: too many errors",
        "1m30s",
        "20 of the candidate, 180 of the stable version",
        "errors 12 of 400 (3.0 %) against 9 of 7,600 (0.1 %)",
        "evidence 143.2",
        "reports only",
        "(by ada)",
        "90 %",
    ):
        assert words in read.text, words


def test_a_promoted_version_and_one_without_any_data_have_a_page_too() -> None:
    assert "Promoted, and still compared" in report.page(endpoint(), rollout(promoted_at=150.0))
    page = report.page(endpoint(), rollout())
    assert "No verdict yet" in page
    assert page.count("no requests yet") == 3
    assert Reader(page).open == []


def test_before_its_first_request_a_candidate_has_no_rate_of_zero() -> None:
    early = (point(100.0, requests=0), point(110.0, requests=0))
    late = (point(120.0), point(130.0, requests=0))
    page = report.page(endpoint(), rollout(series=early + late))
    requests = page[page.index("Requests judged, per second") : page.index("Answered with an")]
    told = [said for said in requests.split("<title>") if said.startswith("candidate")]
    assert [said.split(" at ")[0] for said in told] == [
        "candidate, version 2: 1",
        "candidate, version 2: 0",
    ]


def test_wrong_answers_are_drawn_where_somebody_told_the_truth() -> None:
    told = point(100.0).model_copy(update={"candidate_feedback": 8, "candidate_wrong": 2})
    page = report.page(endpoint(), rollout(series=(told,)))
    assert "candidate, version 2: 25 %" in page[page.index("Wrong, of the answers") :]
    assert "Wrong, of the answers" not in report.page(endpoint(), rollout(series=(point(1.0),)))


def test_results_of_the_bake_are_said_to_be_of_the_bake() -> None:
    assert "Since the promotion" in report.page(endpoint(), rollout(promoted_at=150.0))
    assert "Since the promotion" not in report.page(endpoint(), rollout())


def test_everything_that_somebody_named_is_escaped() -> None:
    evil = "<script>alert(1)</script>&"
    state = rollout(
        id=evil,
        reason=evil,
        outcome=Outcome.REVERTED,
        ended_at=150.0,
        series=(point(100.0),),
        checks=(FAILED.model_copy(update={"name": evil, "reason": evil, "figures": {evil: 1.0}}),),
    )
    one = endpoint(line(110.0, Phase.CANARY, reason=evil, by=evil), model=evil)
    page = report.page(one, state)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in page


def test_only_this_rollouts_lines_are_told() -> None:
    one = endpoint(
        line(10.0, Phase.SHADOW, reason="first try"),
        line(20.0, Phase.ROLLED_BACK, reason="first end"),
        line(90.0, Phase.LOADED, reason="tried again"),
        line(95.0, Phase.SERVING, version="1", reason="another version"),
        line(100.0, Phase.SHADOW, reason="second try"),
        line(150.0, Phase.ROLLED_BACK, reason="second end"),
        line(500.0, Phase.SHADOW, reason="third try"),
    )
    state = rollout(ended_at=150.0, outcome=Outcome.ROLLED_BACK)
    told = [item["reason"] for item in report.document(one, state)["history"]]
    assert told == ["tried again", "second try", "second end"]


def test_the_document_is_json_and_holds_the_state_as_it_is() -> None:
    state = rollout(series=(point(100.0),), checks=(FAILED,), evidence={"errorRate": [1.5, 2]})
    document = json.loads(json.dumps(report.document(endpoint(), state), allow_nan=False))
    assert RolloutState.model_validate(document["rollout"]) == state
    assert (document["endpoint"], document["version"], document["compared_with"]) == ("e", "2", "1")
    assert document["spec"]["deadline"] == "24h"


def test_the_document_holds_the_evidence_unpacked_and_what_is_damaged_as_it_is() -> None:
    evidence = {"schema_version": 1, "history_windows": 3, "rates": {"logs": [0.1, -3.0, None]}}
    stored = pack(evidence)
    damaged = {**stored, "zlib": stored["zlib"][4:]}
    for kept, shown in ((stored, evidence), (evidence, evidence), (damaged, damaged)):
        document = report.document(endpoint(), rollout(evidence=kept))
        assert document["rollout"]["evidence"] == shown


def test_many_windows_are_gathered_without_losing_a_request() -> None:
    series = [point(100.0 + 10 * index, requests=index) for index in range(239)]
    few = gather(series, 60)
    assert len(few) <= 60
    assert sum(item.candidate_requests for item in few) == sum(range(239))
    assert (few[0].start, few[-1].start + few[-1].seconds) == (100.0, 2490.0)
    assert gather([], 60) == []
